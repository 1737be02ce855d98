"""Ranks what is too slow in a placed device, by the delays that nextpnr left in an SDF file.

nextpnr names one path; here every end of a path that takes longer than `--over` counts, those with
the same registers at both ends together, slowest first. `hw.timing` leaves the file beside the
netlist. Paths from constants and from the pins of the harness are left out.
"""

import argparse
import math
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

from stagecoach.hw.nextpnr import TARGET_MHZ
from stagecoach.hw.placer.delays import Delays, NotSdf
from stagecoach.hw.placer.timing_graph import TimingGraph

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


def slow_paths(delays: Delays, over: float) -> list[TimedPath]:
    """The longest path to each end that takes more than `over` ns, slowest first."""
    graph = TimingGraph(delays)
    graph.update(over)
    inputs, outputs = list(graph.inputs), list(graph.outputs)

    def wires(pin: int) -> tuple[tuple[str, float], ...]:
        path: list[tuple[str, float]] = []
        before: int | None = pin
        while before is not None:
            output = int(graph.driver[before])
            path.append((outputs[output], float(graph.wire[before])))
            before = graph.latest_input(output)
        return tuple(path[::-1])

    ends, times = graph.ends()
    slow = np.flatnonzero(times > over)
    ranked = slow[np.argsort(-times[slow], kind="stable")]
    return [TimedPath(float(times[at]), inputs[ends[at]], wires(ends[at])) for at in ranked]


def describe(path: TimedPath, ends: int) -> str:
    """A path in a line: the cells on it, and after each the delay of its wire."""
    wires = " > ".join(f"{register_name(pin.rsplit('/', 1)[0])} {w:.2f}" for pin, w in path.wires)
    _, end, port = path.ends()
    return f"{path.delay:.2f} ns, {ends} ends: {wires} > {end}.{port}"


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m stagecoach.hw.paths", description=__doc__)
    parser.add_argument("sdf", type=Path, help="delays of a placed device")
    parser.add_argument("--over", type=float, default=PERIOD_NS, help="ns (default %(default)s)")
    parser.add_argument("--paths", type=int, default=20, help="how many to show (default 20)")
    options = parser.parse_args(arguments)
    if options.paths < 0:
        parser.error(f"--paths {options.paths}; allowed: 0 or more")
    if not 0 <= options.over < math.inf:
        parser.error(f"--over {options.over}; allowed: 0 or more ns")
    try:
        delays = Delays.read(options.sdf)
    except NotSdf as error:
        print(f"paths: {error}", file=sys.stderr)
        return 1
    groups: dict[tuple[str, str, str], list[TimedPath]] = defaultdict(list)
    for path in slow_paths(delays, options.over):
        groups[path.ends()].append(path)
    console = Console()
    count = sum(map(len, groups.values()))
    console.print(f"{count} of {len(delays.setup)} ends take more than {options.over} ns")
    for paths in list(groups.values())[: options.paths]:
        console.print(describe(paths[0], len(paths)), soft_wrap=True, markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
