"""Refining makes slow paths faster, by the same delays that other code reads from the same file."""

import json
from pathlib import Path

import pytest
from amaranth.hdl import Array, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.hw import flow, synthesis
from stagecoach.hw.harness import Harness
from stagecoach.hw.paths import slow_paths
from stagecoach.hw.placer.delays import Delays
from stagecoach.hw.placer.placement import Placement, bels, top_module
from stagecoach.hw.placer.refine import Refiner, refine
from stagecoach.hw.placer.same_logic import check_same_logic
from stagecoach.hw.placer.timing_graph import TimingGraph
from stagecoach.hw.rtlil import export


class Sums(wiring.Component):
    """Choices and sums of registers: multiplexers, carry chains, flip-flops with enables."""

    def __init__(self):
        super().__init__({"address": In(4), "data": In(8), "en": In(1), "sum": Out(12)})

    def elaborate(self, platform):
        m = Module()
        kept = Array(Signal(8, name=f"kept_{number}") for number in range(16))
        chosen = Signal(8)
        with m.If(self.en):
            m.d.sync += kept[self.address].eq(self.data)
        m.d.sync += [
            chosen.eq(kept[self.address ^ self.data[:4]]),
            self.sum.eq(self.sum + chosen + kept[self.address]),
        ]
        return m


@pytest.fixture(scope="module")
def placed(tmp_path_factory):
    # Paths of a WebAssembly program are relative to where it runs.
    folder = tmp_path_factory.mktemp("refine")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(synthesis, "BUILD", Path("build"))
        netlist = synthesis.synthesize(export(Harness(Sums()), "rnic")) / "rnic.json"
        how = (*flow.place_arguments(1), "--no-route", "--write", "placed.json", "--sdf", "sdf")
        flow.nextpnr(flow.DEFAULT_PART, netlist, Path("log"), *how)
    return folder


def test_the_wires_of_the_slowest_path_have_the_least_slack(placed):
    delays = Delays.read(placed / "sdf")
    graph = TimingGraph(delays)
    graph.update(5)
    slowest = slow_paths(delays, 0)[0]
    assert graph.slack.min() == pytest.approx(5 - slowest.delay)
    pins = [graph.inputs[slowest.end]]
    while (before := graph.latest_input(int(graph.driver[pins[0]]))) is not None:
        pins.insert(0, before)
    assert graph.slack[pins] == pytest.approx(5 - slowest.delay)
    assert len(pins) == len(slowest.wires)


def test_a_cell_that_lies_far_away_is_brought_back(placed, tmp_path):
    placement, delays = Placement(placed / "placed.json"), Delays.read(placed / "sdf")
    before = Refiner(placement, delays, 1.0, 1).slowest
    far = placement.number[next(name for name in placement.names if "chosen_TRELLIS_FF" in name)]
    unit, corner = int(placement.unit[far]), (110, 5)
    places = placement.places(unit, corner)
    assert places is not None
    placement.move(unit, corner, places)
    placement.write(tmp_path / "far.json")
    worse, after = refine(tmp_path / "far.json", placed / "sdf", tmp_path / "refined", 1.0, 1)
    assert worse > before + 1
    assert after < before
    column, row = Placement(tmp_path / "refined").tile(far)
    assert abs(column - corner[0]) + abs(row - corner[1]) > 20


def test_a_goal_that_is_reached_moves_nothing(placed, tmp_path):
    refine(placed / "placed.json", placed / "sdf", tmp_path / "refined", 50.0, 1)
    as_placed = bels(json.loads((placed / "placed.json").read_text()))
    assert bels(json.loads((tmp_path / "refined").read_text())) == as_placed


@pytest.fixture(scope="module")
def refined(placed):
    path = placed / "refined"
    refine(placed / "placed.json", placed / "sdf", path, 1.0, 1)
    return path


def test_no_place_is_taken_twice(placed, refined):
    after = bels(json.loads(refined.read_text()))
    before = bels(json.loads((placed / "placed.json").read_text()))
    assert after.keys() == before.keys()
    assert after != before
    assert len(set(after.values())) == len(after)


def test_the_logic_is_the_same(placed, refined):
    check_same_logic(placed / "placed.json", refined)


def test_nextpnr_finds_every_cell_where_it_may_be(placed, refined, monkeypatch):
    monkeypatch.chdir(placed)
    path = Path(refined.name)
    flow.check_places(path, flow.DEFAULT_PART, Path("log"))
    count = len(bels(json.loads(path.read_text())))
    assert f"Placed {count} cells based on constraints" in Path("log").read_text()
    assert not path.with_suffix(".fixed").exists()


def move(netlist, moved, **places):
    """Writes a placed netlist with cells at other places."""
    design = json.loads(netlist.read_text())
    cells = top_module(design)["cells"]
    for name, bel in places.items():
        cells[name]["attributes"]["NEXTPNR_BEL"] = bel
    moved.write_text(json.dumps(design))


def register(placement, name):
    return next(
        cell
        for cell, number in placement.number.items()
        if f".{name}_TRELLIS_FF" in cell and placement.type(number) == "TRELLIS_FF"
    )


def test_nextpnr_refuses_what_the_rules_refuse(placed, refined, monkeypatch):
    monkeypatch.chdir(placed)
    placement = Placement(refined)
    # Two flip-flops of a slice, with enables of their own.
    enabled, other = register(placement, "kept_0"), register(placement, "kept_1")
    together = {enabled: "X20/Y20/SLICEA.FF0", other: "X20/Y20/SLICEA.FF1"}
    numbers = {("FF", place): placement.number[name] for place, name in enumerate(together)}
    assert not placement.fits(numbers)
    move(refined, Path("moved.json"), **together)
    with pytest.raises(flow.ToolError, match=r"moved\.json is not legal; ERROR: .*not valid for"):
        flow.check_places(Path("moved.json"), flow.DEFAULT_PART, Path("log"))


def test_a_place_that_is_taken_twice_is_refused(placed, refined, monkeypatch):
    monkeypatch.chdir(placed)
    placement = Placement(refined)
    one, other = register(placement, "kept_0"), register(placement, "kept_1")
    move(refined, Path("twice.json"), **{one: bels(json.loads(refined.read_text()))[other]})
    with pytest.raises(flow.ToolError, match=r"twice\.json is not legal; ERROR: "):
        flow.check_places(Path("twice.json"), flow.DEFAULT_PART, Path("log"))


def test_what_is_refined_is_checked_before_it_is_routed(placed, monkeypatch):
    """In the flow of every seed: a step that moves cells to a wrong place ends it."""
    monkeypatch.chdir(placed)
    real = flow.refine

    def wrong(source, estimated, refined, goal, seed):
        found = real(source, estimated, refined, goal, seed)
        placement = Placement(refined)
        one, other = register(placement, "kept_0"), register(placement, "kept_1")
        taken = bels(json.loads(refined.read_text()))[other]
        move(refined, refined, **{one: taken})
        return found

    monkeypatch.setattr(flow, "refine", wrong)
    (folder,) = Path("build/timing").glob("*/")
    with pytest.raises(flow.ToolError, match="is not legal; ERROR: "):
        flow.place(folder / "rnic.json", 1)
    assert not list(folder.glob("*.routed"))


def test_what_is_refined_can_be_routed(placed, refined, monkeypatch):
    monkeypatch.chdir(placed)
    options = ("--no-pack", "--no-place", "--timing-allow-fail", "--sdf", "routed")
    flow.nextpnr(flow.DEFAULT_PART, Path(refined.name), Path("log"), *options)
    # The wires are about as slow as they were estimated.
    estimated = Refiner(Placement(refined), Delays.read(Path("routed")), 1.0, 1).slowest
    routed = slow_paths(Delays.read(Path("routed")), 0)[0].delay
    assert estimated == pytest.approx(routed, rel=0.3)
