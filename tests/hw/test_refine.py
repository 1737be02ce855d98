"""Refining makes slow paths faster, by the same delays that other code reads from the same file."""

import json

import numpy as np
import pytest
from amaranth.hdl import Array, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw import flow, wires
from hw.delays import Delays
from hw.harness import Harness
from hw.paths import Arrivals
from hw.placement import Placement, bels
from hw.refine import Refiner, TimingGraph, refine
from hw.rtlil import export


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
        patch.setattr(flow, "BUILD", flow.Path("build"))
        netlist = flow.synthesize(export(Harness(Sums()), "rnic")) / "rnic.json"
        how = (*flow.place_arguments(1), "--no-route", "--write", "placed.json", "--sdf", "sdf")
        flow.nextpnr(flow.DEFAULT_PART, netlist, flow.Path("log"), *how)
    return folder


def test_the_slowest_path_is_that_of_the_ranking(placed):
    delays = Delays.read(placed / "sdf")
    graph = TimingGraph(delays, Placement(placed / "placed.json"))
    graph.update(5)
    slowest = Arrivals(delays).paths(0)[0].delay
    assert graph.slowest() == pytest.approx(slowest)
    # The wires on it have the least slack, which is what it leaves of the goal.
    assert graph.slack.min() == pytest.approx(5 - slowest)


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


def test_what_is_refined_can_be_routed(placed, monkeypatch):
    monkeypatch.chdir(placed)
    refine(flow.Path("placed.json"), flow.Path("sdf"), flow.Path("refined"), 1.0, 1)
    refined = bels(json.loads(flow.Path("refined").read_text()))
    as_placed = bels(json.loads(flow.Path("placed.json").read_text()))
    assert refined.keys() == as_placed.keys()
    assert refined != as_placed
    assert len(set(refined.values())) == len(refined)
    options = ("--no-pack", "--no-place", "--timing-allow-fail", "--sdf", "routed")
    flow.nextpnr(flow.DEFAULT_PART, flow.Path("refined"), flow.Path("log"), *options)
    # What was estimated is near what was routed, without a bias of half a wire.
    placement, routed = Placement(flow.Path("refined")), Delays.read(flow.Path("routed"))
    estimated = Refiner(placement, Delays.read(flow.Path("routed")), 1.0, 1).slowest
    assert estimated == pytest.approx(Arrivals(routed).paths(0)[0].delay, rel=0.3)


def test_wires_get_slower_with_the_distance():
    table = wires.by_distance(100, 80)
    assert table[0, 0] == wires.SHORTEST_NS
    assert (np.diff(table, axis=0) >= -0.02).all() and (np.diff(table, axis=1) >= -0.02).all()


def test_the_figures_of_wires_are_found_again(placed):
    # A file in which each wire has the delay that the figures say, and the command's reading of it.
    placement, delays = Placement(placed / "placed.json"), Delays.read(placed / "sdf")
    table = wires.by_distance(200, 200)
    for pin, (source, delay) in delays.wires.items():
        ends = [placement.number.get(one.rsplit("/", 1)[0]) for one in (source, pin)]
        if delay and None not in ends:
            across, along = (
                abs(axis[ends[0]] - axis[ends[1]]) for axis in (placement.column, placement.row)
            )
            delays.wires[pin] = source, float(table[across, along])
    figures, _, left = wires.fit(placement, delays)
    assert left == pytest.approx(0, abs=1e-6)
    assert figures[0] == pytest.approx(wires.SHORTEST_NS, abs=1e-6)


def test_the_command_refuses_what_it_cannot_read(tmp_path, capsys):
    assert wires.main([str(tmp_path / "none.json"), str(tmp_path / "none.sdf")]) == 1
    assert "none.json" in capsys.readouterr().err
