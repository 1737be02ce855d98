"""Moves cells of a placed netlist to where its slow paths are faster.

nextpnr's static placer keeps wires short, but all alike: it does not see that one bit is late, and
its estimate of what is far away is wrong (`wires.py`). After it there is room: half of the LUTs
of the chip are free. So the units of the netlist (`placement.py`) that are on slow paths are
moved one by one, each to the place where the paths over it are best.

What is better is a sum over the wires of a unit: exp(-slack / softness), where the slack of a wire
is what the longest path over it has left of the goal. The softness falls from sweep to sweep: at
first cells are drawn together along all paths that are somewhat slow, in the end only the slowest
count.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stagecoach.hw.placer import wires
from stagecoach.hw.placer.delays import Delays
from stagecoach.hw.placer.placement import DIRECT, LOGIC_INPUTS, Placement
from stagecoach.hw.placer.timing_graph import NEVER, Numbers, Times, TimingGraph

SOFTNESS_NS = (0.8, 0.6, 0.4, 0.3, 0.25, 0.2, 0.2, 0.2)
"""Of each sweep over all units that are slow: those with less slack than that."""

TILE_COST = 0.02
"""Of each tile that a wire is long. Where wires get much longer, the router finds no room."""

REACH = 8
"""Tiles around the unit, and around where its slow wires pull it, that are tried."""

MOST_TILES = 30
"""Columns and rows tried at most; of more, some are chosen at random."""

MOST_SINKS = 48
"""Inputs driven by a unit that are looked at, those with the least slack."""

BATCH = 25
"""Moves after which all delays are computed again."""

RECIPE = b"".join(
    Path(__file__).with_name(f"{name}.py").read_bytes()
    for name in ("refine", "delays", "placement", "timing_graph", "wires")
)
"""What decides where cells are moved: results that are kept are kept by it."""


@dataclass(frozen=True)
class _Timing:
    """What a unit is for the paths over it; rows are its inputs, columns its outputs.

    `through` is the longest way from an input to an output, `ends` from an input to a register of
    the unit with its setup time, `starts` from its clock to an output; `NEVER` where there is none.
    `sinks` are the inputs of others that its outputs drive, `sink_output` which output.
    """

    inputs: Numbers
    outputs: Numbers
    through: Times
    ends: Times
    starts: Times
    sinks: Numbers
    sink_output: Numbers


class Refiner:
    """Moves the units of a placement."""

    def __init__(self, placement: Placement, delays: Delays, goal: float, seed: int):
        self._placement = placement
        self._graph = graph = TimingGraph(delays)
        self._cell_of_input = self._cells(graph.inputs)
        self._cell_of_output = self._cells(graph.outputs)
        self._goal = goal
        self._random = np.random.default_rng(seed)
        self._distance = wires.by_distance(
            int(placement.column.max()) + 1, int(placement.row.max()) + 1
        )
        self._last_step = np.array(
            [
                wires.INPUTS_NS.get(wires.kind(placement.type(cell), pin.rsplit("/", 1)[1]), 0.0)
                for pin, cell in zip(graph.inputs, self._cell_of_input, strict=True)
            ]
        )
        self._timing: dict[int, _Timing] = {}
        self._softness = SOFTNESS_NS[0]
        cells = zip(self._cell_of_output[graph.driver], self._cell_of_input, strict=True)
        self._routed = np.array(
            [self._is_routed(pin, *ends) for pin, ends in zip(graph.inputs, cells, strict=True)]
        )
        self._estimate(np.flatnonzero(self._routed))
        graph.update(goal)

    @property
    def slowest(self) -> float:
        """The longest path in ns, as it is estimated."""
        return self._graph.slowest()

    def run(self) -> None:
        """Moves all units that are slow, again and again, until the goal is reached."""
        for self._softness in SOFTNESS_NS:
            if self.slowest > self._goal:
                self._sweep()

    def _cells(self, pins: Mapping[str, int]) -> Numbers:
        number = self._placement.number
        return np.array([number.get(pin.rsplit("/", 1)[0], -1) for pin in pins], dtype=np.intp)

    def _is_routed(self, pin: str, source: int, target: int) -> bool:
        """Whether the delay of a wire depends on where its cells are."""
        if source < 0 or target < 0 or pin.rsplit("/", 1)[1] in DIRECT:
            return False
        return self._placement.type(source) not in ("TRELLIS_RAMW", "DCCA")

    def _estimate(self, pins: Numbers) -> None:
        graph = self._graph
        sources, targets = self._cell_of_output[graph.driver[pins]], self._cell_of_input[pins]
        graph.wire[pins] = self._between(sources, targets) + self._last_step[pins]

    def _between(self, sources: Numbers, targets: Numbers) -> Times:
        column, row = self._placement.column, self._placement.row
        found: Times = self._distance[
            np.abs(column[sources] - column[targets]), np.abs(row[sources] - row[targets])
        ]
        return found

    def _sweep(self) -> None:
        """Tries to move every unit that is slow, in random order."""
        graph, placement = self._graph, self._placement
        least = np.full(len(placement.units), -NEVER)
        for cells in (self._cell_of_input, self._cell_of_output[graph.driver]):
            units = placement.unit[cells]
            there = (units >= 0) & (cells >= 0)
            np.minimum.at(least, units[there], graph.slack[there])
        slow = np.flatnonzero(least < self._softness)
        self._random.shuffle(slow)
        moved = 0
        for unit in slow:
            if self._move(int(unit)):
                moved += 1
                if moved % BATCH == 0:
                    graph.update(self._goal)
        graph.update(self._goal)

    def _move(self, unit: int) -> bool:
        """Moves a unit to the best tile that has room for it; returns whether it moved."""
        placement = self._placement
        timing = self._timing_of(unit)
        column, row = placement.tile(placement.units[unit][0])
        columns, rows = self._tiles(timing, column, row)
        if not len(columns):
            return False
        costs = self._costs(timing, columns, rows)
        now = self._costs(timing, np.array([column]), np.array([row]))[0]
        for number in np.argsort(costs):
            if costs[number] >= 0.98 * now:
                break
            tile = int(columns[number]), int(rows[number])
            places = placement.places(unit, tile)
            if places is not None:
                placement.move(unit, tile, places)
                self._estimate(np.concatenate([timing.inputs, timing.sinks]))
                return True
        return False

    def _tiles(self, timing: _Timing, column: int, row: int) -> tuple[Numbers, Numbers]:
        """Tiles to try: around where a unit is, to where the slowest of its wires lead."""
        graph, placement = self._graph, self._placement
        pins = np.concatenate([timing.inputs, timing.sinks])
        if not len(pins):
            return pins, pins
        others = np.concatenate(
            [self._cell_of_output[graph.driver[timing.inputs]], self._cell_of_input[timing.sinks]]
        )
        pull = np.exp(-np.clip(graph.slack[pins], -3, 3) / self._softness)
        pull /= pull.sum()
        found = []
        for here, there, all_of in (
            (column, placement.column[others], placement.columns),
            (row, placement.row[others], placement.rows),
        ):
            ends = here, float((there * pull).sum())
            near = all_of[(all_of >= min(ends) - REACH) & (all_of <= max(ends) + REACH)]
            if len(near) > MOST_TILES:
                near = self._random.choice(near, MOST_TILES, replace=False)
            found.append(near)
        return np.repeat(found[0], len(found[1])), np.tile(found[1], len(found[0]))

    def _costs(self, timing: _Timing, columns: Numbers, rows: Numbers) -> Times:
        """The sum over the wires of a unit, were it in each of these tiles."""
        graph = self._graph
        cost = np.zeros(len(columns))
        sources = graph.driver[timing.inputs]
        wire = self._to(self._cell_of_output[sources], columns, rows, cost)
        there = graph.arrival[sources] + wire + self._last_step[timing.inputs]
        ends = timing.ends > NEVER / 2
        cost += self._lateness(self._goal - there[:, ends] - timing.ends[ends])
        leaves = np.broadcast_to(timing.starts, (len(columns), len(timing.outputs)))
        if len(timing.inputs):
            leaves = np.maximum((there[:, :, None] + timing.through).max(axis=1), leaves)
        sinks, output = timing.sinks, timing.sink_output
        if len(sinks) > MOST_SINKS:
            slowest = np.argpartition(graph.slack[sinks], MOST_SINKS)[:MOST_SINKS]
            sinks, output = sinks[slowest], output[slowest]
        wire = self._to(self._cell_of_input[sinks], columns, rows, cost) + self._last_step[sinks]
        cost += self._lateness(graph.required[sinks] - leaves[:, output] - wire)
        return cost

    def _to(self, cells: Numbers, columns: Numbers, rows: Numbers, cost: Times) -> Times:
        """Delays between tiles (rows of the result) and cells; adds their distances to `cost`."""
        placement = self._placement
        across = np.abs(columns[:, None] - placement.column[cells])
        along = np.abs(rows[:, None] - placement.row[cells])
        cost += TILE_COST * (across + along).sum(axis=1)
        found: Times = self._distance[across, along]
        return found

    def _lateness(self, slack: Times) -> Times:
        found: Times = np.exp(-slack / self._softness).sum(axis=1)
        return found

    def _timing_of(self, unit: int) -> _Timing:
        if unit not in self._timing:
            self._timing[unit] = self._find_timing(self._placement.units[unit])
        return self._timing[unit]

    def _find_timing(self, cells: list[int]) -> _Timing:
        graph, placement = self._graph, self._placement
        pins = [
            f"{placement.names[cell]}/{port}"
            for cell in cells
            for port in placement.cells[cell]["port_directions"]
        ]
        all_inputs = [graph.inputs[pin] for pin in pins if pin in graph.inputs]
        outputs = sorted(
            (graph.outputs[pin] for pin in pins if pin in graph.outputs),
            key=graph.level.__getitem__,
        )
        column_of = {output: number for number, output in enumerate(outputs)}
        inside = {
            pin: column_of[graph.driver[pin]]
            for pin in all_inputs
            if graph.driver[pin] in column_of
        }
        inputs = [pin for pin in all_inputs if pin not in inside and self._routed[pin]]
        through = np.full((len(inputs), len(outputs)), NEVER)
        starts = graph.start[outputs].copy()
        for output, number in column_of.items():
            for pin, delay in graph.through.get(output, ()):
                if pin in inside:
                    before, way = inside[pin], graph.wire[pin] + delay
                    through[:, number] = np.maximum(through[:, number], through[:, before] + way)
                    starts[number] = max(starts[number], starts[before] + way)
                elif pin in inputs:
                    at = inputs.index(pin)
                    through[at, number] = max(through[at, number], delay)
        ends = np.where(np.isnan(graph.setup[inputs]), NEVER, graph.setup[inputs])
        for pin, number in inside.items():
            if not np.isnan(graph.setup[pin]):
                ends = np.maximum(ends, through[:, number] + graph.wire[pin] + graph.setup[pin])
        sinks = [
            (pin, number)
            for output, number in column_of.items()
            for pin in graph.sinks(output)
            if pin not in inside and self._routed[pin]
        ]
        return _Timing(
            np.array(inputs, dtype=np.intp),
            np.array(outputs, dtype=np.intp),
            through,
            ends,
            starts,
            np.array([pin for pin, _ in sinks], dtype=np.intp),
            np.array([number for _, number in sinks], dtype=np.intp),
        )


def refine(
    placed: Path, estimated: Path, refined: Path, goal: float, seed: int
) -> tuple[float, float]:
    """Writes the netlist `placed` with better places to `refined`; no path should take over `goal`.

    `estimated` has nextpnr's delays of it. Returns the longest path before and after, in ns, as it
    is estimated here. Raises `NotPlaced` and `NotSdf`.
    """
    placement = Placement(placed)
    placement.check()
    delays = Delays.read(estimated)
    drives_now = placement.globals_to_logic()
    for pin, (source, delay) in delays.wires.items():
        if source in drives_now and pin.rsplit("/", 1)[1] in LOGIC_INPUTS:
            delays.wires[pin] = drives_now[source], delay
    refiner = Refiner(placement, delays, goal, seed)
    before = refiner.slowest
    refiner.run()
    placement.check()
    placement.write(refined)
    return before, refiner.slowest
