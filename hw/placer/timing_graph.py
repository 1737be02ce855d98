"""When every pin of a netlist has its value after the clock edge, and when it must have it."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stagecoach.hw.placer.delays import CLOCKS, NO_START, Delays

NEVER = -1e3
"""ns: earlier than everything."""

Numbers = npt.NDArray[np.intp]
Times = npt.NDArray[np.float64]


class TimingGraph:
    """Inputs and outputs of cells, the wires and the arcs between them; all times in ns.

    `inputs` and `outputs` have the number of each pin. `driver` is the output that drives an
    input, `wire` the delay from it, `setup` what a register wants before its clock (NaN if it is
    none); `through` has the inputs on which an output depends, with delays. `update` finds for each
    output when it has its value (`arrival`), and for each input when it must have it (`required`).
    """

    def __init__(self, delays: Delays):
        self.inputs: dict[str, int] = {}
        self.outputs: dict[str, int] = {}
        driver = []
        wire = []
        for pin, (source, delay) in delays.wires.items():
            if pin.rsplit("/", 1)[1] in CLOCKS or any(name in source for name in NO_START):
                continue
            self.inputs[pin] = len(self.inputs)
            driver.append(self.outputs.setdefault(source, len(self.outputs)))
            wire.append(delay)
        self.driver: Numbers = np.array(driver, dtype=np.intp)
        self.wire: Times = np.array(wire)
        self.start = np.full(len(self.outputs), NEVER)
        self.through: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for output, arcs in delays.through.items():
            if output in self.outputs:
                for pin, delay in arcs:
                    number = self.outputs[output]
                    if pin.rsplit("/", 1)[1] in CLOCKS:
                        self.start[number] = max(self.start[number], delay)
                    elif pin in self.inputs:
                        self.through[number].append((self.inputs[pin], delay))
        self.setup = np.full(len(self.inputs), np.nan)
        for pin, time in delays.setup.items():
            if pin in self.inputs:
                self.setup[self.inputs[pin]] = time
        by_driver = np.argsort(self.driver, kind="stable")
        self._sinks = np.split(
            by_driver, np.cumsum(np.bincount(self.driver, minlength=len(self.outputs)))[:-1]
        )
        self._levels = self._in_order()

    def sinks(self, output: int) -> Numbers:
        """Inputs that an output drives."""
        found: Numbers = self._sinks[output]
        return found

    def update(self, goal: float) -> None:
        """Computes `arrival`, `required` and `slack` anew, for paths of up to `goal` ns."""
        self.arrival = self.start.copy()
        for level in self._levels:
            before = self.arrival[self.driver[level.arc_from]] + self.wire[level.arc_from]
            np.maximum.at(self.arrival, level.arc_to, before + level.arc_delay)
        self.required = np.where(np.isnan(self.setup), -NEVER, goal - self.setup)
        of_output = np.full(len(self.outputs), -NEVER)
        for level in reversed(self._levels):
            latest = self.required[level.inputs] - self.wire[level.inputs]
            np.minimum.at(of_output, self.driver[level.inputs], latest)
            np.minimum.at(self.required, level.arc_from, of_output[level.arc_to] - level.arc_delay)
        self.slack = self.required - self.arrival[self.driver] - self.wire

    def latest_input(self, output: int) -> int | None:
        """The input for which an output waits longest; None if it is the clock."""
        latest, found = self.start[output], None
        for pin, delay in self.through.get(output, ()):
            time = self.arrival[self.driver[pin]] + self.wire[pin] + delay
            if time > latest:
                latest, found = time, pin
        return found

    def ends(self) -> tuple[Numbers, Times]:
        """Inputs at which paths end, and how long the longest path to each is."""
        ends = np.flatnonzero(~np.isnan(self.setup))
        return ends, self.arrival[self.driver[ends]] + self.wire[ends] + self.setup[ends]

    def slowest(self) -> float:
        """The longest path."""
        return float(self.ends()[1].max(initial=0))

    def _in_order(self) -> list["_Level"]:
        """Outputs by the number of cells before them, with what leads to and from them."""
        behind: dict[int, list[int]] = defaultdict(list)
        waits = np.zeros(len(self.outputs), dtype=np.intp)
        for output, arcs in self.through.items():
            waits[output] = len(arcs)
            for pin, _ in arcs:
                behind[pin].append(output)
        self.level = level = np.zeros(len(self.outputs), dtype=np.intp)
        ready = np.flatnonzero(waits == 0).tolist()
        while True:
            for output in ready:
                for pin in self.sinks(output).tolist():
                    for after in behind.get(pin, ()):
                        level[after] = max(int(level[after]), int(level[output]) + 1)
                        waits[after] -= 1
                        if not waits[after]:
                            ready.append(after)
            if not waits.any():
                break
            arc, after = self._closes_loop(waits)
            self.through[after].remove(arc)
            behind[arc[0]].remove(after)
            waits[after] -= 1
            ready = [] if waits[after] else [after]
        all_arcs = [(*arc, output) for output, arcs in self.through.items() for arc in arcs]
        arc_from = np.array([pin for pin, _, _ in all_arcs], dtype=np.intp)
        arc_to = np.array([output for _, _, output in all_arcs], dtype=np.intp)
        arc_delay = np.array([delay for _, delay, _ in all_arcs])
        found = []
        for number in range(level.max(initial=0) + 1):
            there = np.flatnonzero(level[arc_to] == number)
            inputs = np.flatnonzero(level[self.driver] == number)
            found.append(_Level(inputs, arc_from[there], arc_to[there], arc_delay[there]))
        return found

    def _closes_loop(self, waits: Numbers) -> tuple[tuple[int, float], int]:
        """An arc of a loop of outputs that wait for each other, and the output that it leads to."""
        seen: set[int] = set()
        before = int(np.flatnonzero(waits)[0])
        while before not in seen:
            seen.add(before)
            after = before
            arc = next(each for each in self.through[after] if waits[self.driver[each[0]]])
            before = int(self.driver[arc[0]])
        return arc, after


@dataclass(frozen=True)
class _Level:
    """Outputs of one level: the inputs that they drive, and the arcs that lead to them."""

    inputs: Numbers
    arc_from: Numbers
    arc_to: Numbers
    arc_delay: Times
