"""A board in simulation: its compiled top, UART included, and a pseudo-terminal at its pins.

`python -m stagecoach.sim.board` starts one, prints how to name it in `--device`, and runs until
interrupted.
"""

import argparse
import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stagecoach.gateware.config import RnicConfig
from stagecoach.hw.boards.configs import SMALL
from stagecoach.hw.cached_verilog import cached_verilog
from stagecoach.sim.build import VERILATOR_ARGUMENTS, Parts, compile_parts

RUNTIME = Path(__file__).resolve().parent / "board_runtime"
BOARDS = Path(__file__).resolve().parents[1] / "hw" / "boards"
CLOCKS = Path(__file__).resolve().parents[1] / "hw" / "cells" / "clocks.v"
PARTS = Parts((CLOCKS,), (RUNTIME, RUNTIME / "rnic"), "board")
TOP = "board"

DIVISOR = 4
"""Cycles of a bit: the fewest that the UART takes, because each costs time."""

CLOCK_HZ = 500_000
"""What the simulated board says of itself, near to what it reaches; its timers follow from it."""

BAUD = CLOCK_HZ // DIVISOR

QUIET_CYCLES = 2 * CLOCK_HZ // 10
"""Longer than the link waits before it repeats."""

_REPLACED = ("--prefix", "--top-module")


def build_board(config: RnicConfig = SMALL, progress: Callable[[str], None] | None = None) -> Path:
    """Return the program that simulates a board, built if it is not in the cache."""

    def component() -> Any:
        from stagecoach.sim.board_top import SimulatedTop

        return SimulatedTop(config, CLOCK_HZ, BAUD)

    sources = [*sorted(BOARDS.glob("*.py")), Path(__file__).with_name("board_top.py")]
    key = f"{config!r} {CLOCK_HZ} {BAUD} " + "".join(path.read_text() for path in sources)
    verilog = cached_verilog(key, component, TOP, progress)
    return compile_parts(verilog, PARTS, verilator_arguments(), progress=progress)


def verilator_arguments() -> list[str]:
    """Those of a device, with the names that the runtime of a board has."""
    given = list(VERILATOR_ARGUMENTS)
    for name, value in zip(_REPLACED, (f"V{TOP}", TOP), strict=True):
        given[given.index(name) + 1] = value
    return given


class SimulatedBoard:
    """A running board; its `port` is opened as that of a board.

    Parameters
    ----------
    program: what `build_board` returned; `None`: it is called.
    fault_rate: bytes in a million that are lost, as many that are changed, and as many after
        which one is inserted, in either direction. seed: of the faults.
    divisor, quiet_cycles, baud: of the program, if it is none of `build_board`: cycles of a bit,
        cycles without a byte until it sleeps, and the rate that `url` names.
    more, descriptors: further arguments of the program, and files that it gets.
    """

    def __init__(
        self,
        program: Path | None = None,
        *,
        fault_rate: int = 0,
        seed: int = 1,
        divisor: int = DIVISOR,
        quiet_cycles: int = QUIET_CYCLES,
        baud: int = BAUD,
        more: tuple[int, ...] = (),
        descriptors: tuple[int, ...] = (),
    ):
        if not 0 <= fault_rate <= 1_000_000:
            raise ValueError(f"fault_rate is {fault_rate}; allowed: 0 to 1000000")
        arguments = [divisor, quiet_cycles, seed, fault_rate, *more]
        self.baud = baud
        self.process = subprocess.Popen(
            [str(program or build_board()), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=descriptors,
            # It ends with its input, and tells what it has counted also after an interrupt.
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.port = self.process.stdout.readline().strip()
        self.counters: dict[str, int] = {}
        if not self.port:
            self.close()
            raise RuntimeError(f"the board ended with status {self.process.returncode}")

    @property
    def url(self) -> str:
        """How programs name the device."""
        return f"serial://{self.port}?baud={self.baud}"

    def close(self) -> None:
        """Ends the board; `counters` has what it counted. May be called again."""
        if self.process.poll() is None or self.process.stdin:
            out, _ = self.process.communicate()
            self.process.stdin = None
            lines = (out or "").splitlines()
            self.counters = json.loads(lines[-1]) if lines else {}

    def __enter__(self) -> "SimulatedBoard":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def main(arguments: list[str] | None = None) -> int:
    """Runs a board until it is interrupted, or until it ends; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m stagecoach.sim.board", description=__doc__)
    parser.add_argument(
        "--faults",
        type=int,
        default=0,
        metavar="COUNT",
        help="bytes in a million that are lost, changed, and inserted, each (0)",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the faults (1)")
    options = parser.parse_args(arguments)
    if not 0 <= options.faults <= 1_000_000:
        parser.error(f"--faults {options.faults}; allowed: 0 to 1000000")
    program = build_board(progress=lambda step: print(step, file=sys.stderr))
    with SimulatedBoard(program, fault_rate=options.faults, seed=options.seed) as board:
        print(board.url, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            board.process.wait()
    print(json.dumps(board.counters))
    return 0


if __name__ == "__main__":
    sys.exit(main())
