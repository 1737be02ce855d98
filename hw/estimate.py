"""Estimates the paths of a netlist before it is placed, from its gates and their fan-out.

`python -m stagecoach.hw.estimate` takes seconds for a netlist that `hw.timing` has made, and
minutes where it has to make one. The figures are no timing: they rank paths, and show what a change
does to them.
"""

import argparse
import json
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from stagecoach.hw import blocks
from stagecoach.hw.cache import CacheError
from stagecoach.hw.harness import Harness
from stagecoach.hw.nextpnr import ToolError
from stagecoach.hw.rtlil import export
from stagecoach.hw.synthesis import BUILD, SYNTHESIS_OPTIONS, synthesize
from stagecoach.hw.timing import CONFIGS

CLOCK_TO_OUTPUT = 0.40
MEMORY_TO_OUTPUT = 3.7
REGISTERED_MEMORY_TO_OUTPUT = 0.6
DISTRIBUTED_RAM_READ = 0.95
CONTROL_SETUP = 0.3
"""Of a clock enable, a reset or a write enable."""

GATE = {"LUT4": 0.20, "PFUMX": 0.16, "L6MUX21": 0.16}
GATE_INPUTS = {
    "LUT4": ("A", "B", "C", "D"),
    "PFUMX": ("BLUT", "ALUT", "C0"),
    "L6MUX21": ("D0", "D1", "SD"),
}
NO_WIRE = {("PFUMX", "BLUT"), ("PFUMX", "ALUT"), ("L6MUX21", "D0"), ("L6MUX21", "D1")}
"""Inputs that come from within the slice."""

CARRY_STEP, CARRY_IN_TO_SUM, INTO_CARRY, INPUT_TO_SUM = 0.06, 0.40, 0.40, 0.45
LEVELS = ("LUT4", "CCU2C")


def wire(fan_out: int) -> float:
    """Delay of a wire to so many gates in a full device, in ns."""
    return 0.45 + 0.144 * math.log2(max(1, fan_out))


@dataclass(frozen=True)
class PathEnd:
    """Where a path ends: after `delay` ns at input `port` of `cell`, through the nets `bits`."""

    delay: float
    cell: str
    port: str
    bits: tuple[int, ...]


class Estimate:
    """The longest path to each input of a register or memory of a flat ECP5 netlist.

    Parameters
    ----------
    netlist: JSON of Yosys. top: the module.
    """

    def __init__(self, netlist: Path, top: str = "rnic"):
        module = json.loads(netlist.read_text())["modules"][top]
        self._cells: dict[str, dict[str, Any]] = module["cells"]
        self._names = _names(module["netnames"])
        self._drivers: dict[int, tuple[str, str]] = {}
        self._fan_out: Counter[int] = Counter()
        for name, cell in self._cells.items():
            for port, bits in cell["connections"].items():
                for bit in bits:
                    if cell["port_directions"].get(port) == "output":
                        self._drivers[bit] = (name, port)
                    elif isinstance(bit, int):
                        self._fan_out[bit] += 1
        self._arrivals: dict[int, tuple[float, int | None]] = {}

    def name(self, bit: int) -> str:
        """The net's name in the source, or the nearest one behind a `~`."""
        return self._names.get(bit, "?")

    def fan_out(self, bit: int) -> int:
        """Inputs that the net leads to."""
        return self._fan_out[bit]

    def levels(self, end: PathEnd) -> int:
        """Gates and carry cells of a path."""
        drivers = (self._drivers[bit][0] for bit in end.bits if bit in self._drivers)
        return sum(self._cells[name]["type"] in LEVELS for name in drivers)

    def ends(self) -> list[PathEnd]:
        """All ends of paths, longest first."""
        found = []
        for name, port, bit in self._endpoints():
            delay = self._arrival(bit)[0]
            if delay < 0:
                continue
            if port != "DI" or self._kind(bit) not in (*GATE, "CCU2C"):
                delay += wire(self._fan_out[bit])
            if port in ("CE", "LSR", "WRE"):
                delay += CONTROL_SETUP
            found.append(PathEnd(delay, name, port, tuple(self._bits(bit))))
        return sorted(found, key=lambda end: -end.delay)

    def _kind(self, bit: int) -> str:
        return str(self._cells[self._drivers[bit][0]]["type"]) if bit in self._drivers else ""

    def _endpoints(self) -> Iterator[tuple[str, str, int]]:
        for name, cell in self._cells.items():
            match cell["type"]:
                case "TRELLIS_FF":
                    ports: tuple[str, ...] = ("DI", "M", "CE", "LSR")
                case "TRELLIS_DPR16X4":
                    ports = ("DI", "WAD", "WRE")
                case "DP16KD":
                    inputs = (p for p, way in cell["port_directions"].items() if way == "input")
                    ports = tuple(port for port in inputs if not port.startswith("CLK"))
                case _:
                    continue
            for port in ports:
                for bit in cell["connections"].get(port, []):
                    if isinstance(bit, int):
                        yield name, port, bit

    def _bits(self, bit: int | None) -> list[int]:
        path = []
        while bit is not None:
            path.append(bit)
            bit = self._arrivals[bit][1]
        return path[::-1]

    def _arrival(self, bit: int) -> tuple[float, int | None]:
        """When the net has its value after the clock edge, and the net that it waits for."""
        if bit not in self._arrivals:
            self._arrivals[bit] = -math.inf, None  # a port, or a loop
            if bit in self._drivers:
                self._arrivals[bit] = self._output(bit)
        return self._arrivals[bit]

    def _output(self, bit: int) -> tuple[float, int | None]:
        name, port = self._drivers[bit]
        cell = self._cells[name]
        kind = cell["type"]
        if kind == "TRELLIS_FF":
            return CLOCK_TO_OUTPUT, None
        if kind == "DP16KD":
            mode = cell["parameters"].get(f"REGMODE_{port[2]}", "NOREG")
            registered = "OUTREG" in mode
            return (REGISTERED_MEMORY_TO_OUTPUT if registered else MEMORY_TO_OUTPUT), None
        found: tuple[float, int | None] = (-math.inf, None)
        for source, through in self._inputs(cell, kind, port):
            delay = self._arrival(source)[0] + through
            if delay > found[0]:
                found = delay, source
        if kind == "TRELLIS_DPR16X4":
            return max(found, (DISTRIBUTED_RAM_READ, None), key=lambda one: one[0])
        return found

    def _inputs(self, cell: dict[str, Any], kind: str, output: str) -> Iterator[tuple[int, float]]:
        """The inputs of a gate and their delays to its output, with the wires to them."""
        if kind in GATE:
            ports = {port: (GATE[kind], (kind, port) not in NO_WIRE) for port in GATE_INPUTS[kind]}
        elif kind == "TRELLIS_DPR16X4":
            ports = {"RAD": (GATE["LUT4"], True)}
        elif kind == "CCU2C":
            carries = output == "COUT"
            ports = {"CIN": (CARRY_STEP if carries else CARRY_IN_TO_SUM, False)}
            for half in "0" if output == "S0" else "01":
                for letter in "ABCD":
                    ports[letter + half] = (INTO_CARRY if carries else INPUT_TO_SUM, True)
        else:
            return
        for port, (delay, wired) in ports.items():
            for bit in cell["connections"].get(port, []):
                if isinstance(bit, int):
                    yield bit, delay + (wire(self._fan_out[bit]) if wired else 0)


def _names(nets: dict[str, Any]) -> dict[int, str]:
    """The shortest name of each bit; those that the mapper made end with `~`."""
    names: dict[int, str] = {}
    for net, found in nets.items():
        made = next((at for mark in _MADE if (at := net.find(mark)) > 0), None)
        for index, bit in enumerate(found["bits"]):
            name = f"{net[:made]}~" if made else net
            name += f"[{index}]" if len(found["bits"]) > 1 and not made else ""
            key = (bool(made), len(name))
            if bit not in names or key < (names[bit].endswith("~"), len(names[bit])):
                names[bit] = name
    return names


_MADE = ("_LUT4_", "_PFUMX_", "_L6MUX21_", "_CCU2C_", "_TRELLIS_")


def _block(name: str) -> str:
    return name.removeprefix("device.").split(".")[0].split("_TRELLIS")[0].split("[")[0]


def main() -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m stagecoach.hw.estimate", description=__doc__)
    parser.add_argument("--config", choices=CONFIGS, default="default", help="sizes of the device")
    parser.add_argument("--block", metavar="NAME", help="this block alone, as in hw.timing")
    parser.add_argument("--from", dest="source", metavar="NAME", help="only paths from this block")
    parser.add_argument("--paths", type=int, default=10, help="how many paths to show")
    arguments = parser.parse_args()
    if arguments.paths < 0:
        parser.error(f"--paths {arguments.paths}; allowed: 0 or more")
    config = CONFIGS[arguments.config]
    BUILD.mkdir(exist_ok=True)
    try:
        device = blocks.find(config, arguments.block) if arguments.block else blocks.Rnic(config)
        folder = synthesize(export(Harness(device), "rnic"), SYNTHESIS_OPTIONS)
    except (ToolError, CacheError, blocks.NoSuchBlock) as error:
        print(f"estimate: {error}", file=sys.stderr)
        return 1
    estimate = Estimate(folder / "rnic.json")
    _print(estimate, arguments.source, arguments.paths, Console())
    return 0


def _print(estimate: Estimate, source: str | None, most: int, console: Console) -> None:
    groups: dict[tuple[str, str], list[PathEnd]] = defaultdict(list)
    shown = []
    for end in estimate.ends():
        begin = _block(estimate.name(end.bits[0]))
        if source in (None, begin):
            group = groups[begin, _block(end.cell)]
            group.append(end)
            # One path of each pair of blocks says enough.
            if len(group) == 1:
                shown.append(end)
    table = Table(title="estimated, in ns")
    for column in ("from", "to", "longest", "ends"):
        table.add_column(column)
    for (begin, block), ends in list(groups.items())[:most]:
        table.add_row(begin, block, f"{ends[0].delay:.1f}", str(len(ends)))
    console.print(table)
    for end in shown[:most]:
        nets = " > ".join(f"{estimate.name(bit)}({estimate.fan_out(bit)})" for bit in end.bits)
        console.print(
            f"{end.delay:.1f} ns, {estimate.levels(end)} levels, to {end.cell}.{end.port}: {nets}",
            soft_wrap=True,
            markup=False,
        )


if __name__ == "__main__":
    sys.exit(main())
