"""A board's netlist in simulation: what is placed, with a pseudo-terminal at its pins.

Everything between the pins is what was synthesized, with the board's clock, baud rate and reset.
The cut is the PLL: one cycle of the board's oscillator is one of the core (`hw/cells/clocks.v`);
and pins have one direction (`hw/cells/pins.v`).
`python -m stagecoach.sim.board_netlist BOARD` builds the program that simulates it.
"""

import argparse
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from stagecoach.hw.bitstream import NAME, sources, synthesize
from stagecoach.hw.boards.board import NAMES, Board, find
from stagecoach.hw.gates import CELLS, in_one_module, own_cells
from stagecoach.sim.board import PARTS as BOARD_PARTS
from stagecoach.sim.board import SimulatedBoard, verilator_arguments
from stagecoach.sim.build import compile_parts

PARTS = replace(BOARD_PARTS, level="-Os")
"""Megabytes of code run in each cycle: the fewer they are, the faster."""

QUIET_CYCLES = 500_000
"""A fraction of what the link waits at the clock of a board before it repeats."""

_PIN = re.compile(r'TRELLIS_IO #\((\s*\.DIR\()"(INPUT|OUTPUT)"')


def build_netlist(board: Board, progress: Callable[[str], None] | None = None) -> Path:
    """Return the program that simulates the netlist of a board, built if it is not in the cache."""
    platform, texts = sources(board)
    if progress is not None:
        progress(f"synthesize {board.name}")
    netlist = in_one_module(synthesize(board, texts) / f"{NAME}.json")
    pins = (CELLS / "pins.v").read_text()
    netlist = _PIN.sub(r'\2_PIN #(\1"\2"', netlist)
    verilog = "\n".join([own_cells(), pins, netlist, _surroundings(platform)])
    return compile_parts(verilog, PARTS, verilator_arguments(), progress=progress)


def _surroundings(platform: Any) -> str:
    """The module `board` of the runtime around the netlist: its `rst` is the board's button."""
    uart = platform.lookup("uart")
    pins = {f"uart_{uart.number}__{name}__io": name for name in ("rx", "tx")}
    clock = platform.lookup(platform.default_clk)
    pins[f"{clock.name}_{clock.number}__io"] = "clk"
    if platform.default_rst is not None:
        button = platform.lookup(platform.default_rst)
        level = "~rst" if button.ios[0].invert else "rst"
        pins[f"{button.name}_{button.number}__io"] = level
    ports = ", ".join(f".{pin}({signal})" for pin, signal in pins.items())
    return f"module board(input clk, rst, rx, output tx);\n    {NAME} {NAME}({ports});\nendmodule\n"


def simulate(board: Board, program: Path | None = None) -> SimulatedBoard:
    """Starts the netlist of a board; `program` is what `build_netlist` returned."""
    return SimulatedBoard(
        program or build_netlist(board),
        divisor=board.clock_hz // board.baud,
        quiet_cycles=QUIET_CYCLES,
        baud=board.baud,
    )


def main(arguments: list[str] | None = None) -> int:
    """Builds the simulation of a board's netlist and prints the name of the program."""
    parser = argparse.ArgumentParser(
        prog="python -m stagecoach.sim.board_netlist", description=__doc__
    )
    parser.add_argument("board", choices=NAMES)
    options = parser.parse_args(arguments)
    board = find(options.board)
    print(build_netlist(board, progress=lambda step: print(step, file=sys.stderr)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
