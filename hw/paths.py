"""Ranks what is too slow in a placed device, by the delays that nextpnr left in an SDF file.

nextpnr names one path; here every end of a path that takes longer than `--over` counts, those with
the same registers at both ends together, slowest first. `hw.timing` leaves the file beside the
netlist. Paths from constants and from the pins of the harness are left out.
"""

import argparse
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from hw.delays import CLOCKS, NO_START, Delays, NotSdf
from hw.flow import TARGET_MHZ

PERIOD_NS = 1000 / TARGET_MHZ

_MAPPED = re.compile(
    r"\$(DPRAM_COMB|RAMW_SLICE|CCU2_COMB)\d*|_(LUT4|TRELLIS|PFUMX|CCU2C|L6MUX21|DP16KD)_.*"
    r"|(\.\d+)+$|\[\d+\]$"
)


def register_name(cell: str) -> str:
    """What a cell is called in the source: its name without what the tools added to it."""
    name = _MAPPED.sub("", cell)
    return _MAPPED.sub("", name).removeprefix("device.")


@dataclass(frozen=True)
class TimedPath:
    """From a register to the input `end`: outputs on the way, and the delay of the wire from each.

    `delay` in ns, with the setup time.
    """

    delay: float
    end: str
    wires: tuple[tuple[str, float], ...]

    def ends(self) -> tuple[str, str, str]:
        """Register it starts from, register or memory it ends in, and at which input."""
        end, port = self.end.rsplit("/", 1)
        return register_name(self.wires[0][0].rsplit("/", 1)[0]), register_name(end), port


class Arrivals:
    """When every pin has its value after the clock edge."""

    def __init__(self, delays: Delays):
        self._delays = delays
        self._known: dict[str, tuple[float, str | None]] = {}

    def paths(self, over: float) -> list[TimedPath]:
        """The longest path to each end that takes more than `over` ns, slowest first."""
        found = []
        for end, setup in self._delays.setup.items():
            if end in self._delays.wires:
                source, wire = self._delays.wires[end]
                arrival = self._arrival(source)[0]
                if arrival and arrival + wire + setup > over:
                    path = TimedPath(arrival + wire + setup, end, self._wires(end))
                    found.append(path)
        return sorted(found, key=lambda path: -path.delay)

    def _wires(self, pin: str | None) -> tuple[tuple[str, float], ...]:
        path = []
        while pin is not None:
            source, wire = self._delays.wires[pin]
            path.append((source, wire))
            pin = self._known[source][1]
        return tuple(path[::-1])

    def _arrival(self, output: str) -> tuple[float, str | None]:
        """When an output has its value, 0 if it has no start; and the input that it waits for."""
        if output in self._known:
            return self._known[output]
        latest: tuple[float, str | None] = (0.0, None)
        self._known[output] = latest  # should it be in a loop
        if not any(name in output for name in NO_START):
            for pin, delay in self._delays.through.get(output, ()):
                if pin.rsplit("/", 1)[1] in CLOCKS:
                    latest = max(latest, (delay, None), key=lambda one: one[0])
                elif pin in self._delays.wires:
                    source, wire = self._delays.wires[pin]
                    before = self._arrival(source)[0]
                    if before and before + wire + delay > latest[0]:
                        latest = before + wire + delay, pin
        self._known[output] = latest
        return latest


def describe(path: TimedPath, ends: int) -> str:
    """A path in a line: the cells on it, and behind each the delay of its wire."""
    wires = " > ".join(f"{register_name(pin.rsplit('/', 1)[0])} {w:.2f}" for pin, w in path.wires)
    _, end, port = path.ends()
    return f"{path.delay:.2f} ns, {ends} ends: {wires} > {end}.{port}"


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m hw.paths", description=__doc__)
    parser.add_argument("sdf", type=Path, help="delays of a placed device")
    parser.add_argument("--over", type=float, default=PERIOD_NS, help="ns (default %(default)s)")
    parser.add_argument("--paths", type=int, default=20, help="how many to show (default 20)")
    options = parser.parse_args(arguments)
    try:
        delays = Delays.read(options.sdf)
    except NotSdf as error:
        print(f"paths: {error}", file=sys.stderr)
        return 1
    # As deep as the longest chain of cells, which is a carry chain.
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 20_000))
    groups: dict[tuple[str, str, str], list[TimedPath]] = defaultdict(list)
    for path in Arrivals(delays).paths(options.over):
        groups[path.ends()].append(path)
    console = Console()
    count = sum(map(len, groups.values()))
    console.print(f"{count} of {len(delays.setup)} ends take more than {options.over} ns")
    for paths in list(groups.values())[: options.paths]:
        console.print(describe(paths[0], len(paths)), soft_wrap=True, markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
