"""The flow maps with abc, and short additions to LUTs; what it keeps is whole."""

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.hw import flow, gates
from stagecoach.hw import nextpnr as pnr
from stagecoach.hw.cache import LIMIT_VARIABLE
from stagecoach.hw.placer.same_logic import OtherLogic
from stagecoach.hw.rtlil import export


class Counter(wiring.Component):
    """Counts to `width` bits."""

    def __init__(self, width):
        super().__init__({"enable": In(1), "count": Out(width)})

    def elaborate(self, platform):
        m = Module()
        with m.If(self.enable):
            m.d.sync += self.count.eq(self.count + 1)
        return m


@pytest.fixture(autouse=True)
def build(tmp_path, monkeypatch):
    # Paths of a WebAssembly program are relative to where it runs.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(flow, "BUILD", flow.Path("build"))


def passes(folder):
    return (folder / "yosys.log").read_text()


def test_the_mapper_is_abc():
    folder = flow.synthesize(export(Counter(8), "rnic"))
    assert "Executing ABC pass" in passes(folder)
    assert "Executing ABC9 pass" not in passes(folder)
    assert flow.cell_counts(folder)["TRELLIS_FF"] == 8


def test_the_other_flow_maps_with_abc9():
    folder = flow.synthesize(export(Counter(8), "rnic"), "")
    assert "Executing ABC9 pass" in passes(folder)


@pytest.mark.parametrize(
    ("width", "chained"), [(flow.SHORT_CARRY, False), (flow.SHORT_CARRY + 1, True)]
)
def test_short_additions_are_made_of_luts(width, chained):
    cells = flow.cell_counts(flow.synthesize(export(Counter(width), "rnic")))
    assert ("CCU2C" in cells) == chained


def test_netlists_of_different_flows_are_different_files():
    text = export(Counter(8), "rnic")
    assert flow.synthesize(text) != flow.synthesize(text, "")


def test_placements_of_other_recipes_are_different_files(monkeypatch):
    files = {flow.delays(Path("rnic.json"), seed) for seed in (1, 2)}
    monkeypatch.setattr(flow, "RECIPE", b"other")
    files.add(flow.delays(Path("rnic.json"), 1))
    monkeypatch.setattr(flow, "version", lambda name: "other")
    files.add(flow.delays(Path("rnic.json"), 1))
    assert len(files) == 4


def test_packed_tells_what_a_netlist_takes_of_a_part():
    folder = flow.synthesize(export(Counter(8), "rnic"))
    assert pnr.packed(folder, pnr.PARTS["45F"])["TRELLIS_FF"] == 8


class Walk(wiring.Component):
    """A state machine of more states than yosys recodes of its own accord."""

    STATES = 40

    def __init__(self):
        super().__init__({"turn": In(self.STATES), "at": Out(self.STATES)})

    def elaborate(self, platform):
        m = Module()
        with m.FSM():
            for number in range(self.STATES):
                with m.State(f"{number}"):
                    m.d.comb += self.at[number].eq(1)
                    with m.If(self.turn[number]):
                        m.next = f"{(number + 1) % self.STATES}"
        return m


def test_a_long_state_machine_has_a_register_for_each_state():
    cells = flow.cell_counts(flow.synthesize(export(Walk(), "rnic")))
    assert cells["TRELLIS_FF"] >= Walk.STATES


class Tools:
    """Stands for Yosys and nextpnr, whose files it writes; `together` waits for so many runs."""

    FMAX = {"fast": {"achieved": 300.0}, "slow": {"achieved": 150.0}}

    def __init__(self, monkeypatch, together=1, fails=""):
        self.runs = 0
        self.fails = fails
        self._barrier = threading.Barrier(together)
        monkeypatch.setattr(flow, "run", self.yosys)
        monkeypatch.setattr(gates, "run", self.yosys)
        monkeypatch.setattr(flow, "nextpnr", self.nextpnr)
        monkeypatch.setattr(flow, "refine", lambda placed, *_: placed.read_text())
        monkeypatch.setattr(flow, "check_same_logic", lambda *_: None)
        monkeypatch.setattr(flow, "check_places", lambda *_: None)

    def yosys(self, name, arguments, log):
        self.runs += 1
        time.sleep(0.1)
        steps = arguments[-1].replace(";", " ").split()
        for option in ("-json", "-noattr"):
            if option in steps:
                Path(steps[steps.index(option) + 1]).write_text("netlist")

    def nextpnr(self, part, netlist, log, *arguments):
        placing = "--no-route" in arguments
        self.runs += placing
        given = dict(pairwise(arguments))
        if placing:
            Path(given["--write"]).write_text("placed")
            self._barrier.wait(timeout=5)
            time.sleep(0.1)
        Path(given["--sdf"]).write_text("(DELAYFILE")
        if not placing and self.fails:
            raise pnr.ToolError(self.fails)
        if not placing:
            Path(given["--report"]).write_text(json.dumps({"fmax": self.FMAX}))


def at_once(*jobs):
    with ThreadPoolExecutor(len(jobs)) as pool:
        return [each.result() for each in [pool.submit(job) for job in jobs]]


def test_what_two_want_at_once_is_made_once(monkeypatch):
    tools = Tools(monkeypatch)
    folder, other = at_once(*[lambda: flow.synthesize("text")] * 2)
    assert folder == other and tools.runs == 1
    netlist = folder / "rnic.json"
    at_once(*[lambda: flow.place(netlist, 1)] * 2)
    assert tools.runs == 2
    at_once(*[lambda: gates.as_verilog(netlist)] * 2)
    assert tools.runs == 3


def test_netlists_are_kept_to_the_limit_of_the_cache(monkeypatch):
    Tools(monkeypatch)
    used, unused = flow.synthesize("used"), flow.synthesize("unused")
    for folder in (used, unused):
        os.utime(folder, (0, 0))
    assert flow.synthesize("used") == used
    monkeypatch.setenv(LIMIT_VARIABLE, "0")
    assert flow.synthesize("new").exists() and used.exists()
    assert not unused.exists()


def test_seeds_of_a_netlist_are_placed_at_the_same_time(monkeypatch):
    Tools(monkeypatch, together=2)
    netlist = flow.BUILD / "rnic.json"
    netlist.parent.mkdir()
    found = at_once(*[lambda seed=seed: flow.place(netlist, seed) for seed in (1, 2)])
    assert [each.seed for each in found] == [1, 2]


def test_the_slowest_clock_counts(monkeypatch):
    Tools(monkeypatch)
    assert flow.place(Path("rnic.json"), 1).fmax_mhz == 150.0


def test_what_is_refined_to_other_logic_is_not_routed(monkeypatch):
    def refuse(before, after):
        raise OtherLogic(f"{after} is not the logic of {before}")

    Tools(monkeypatch)
    monkeypatch.setattr(flow, "check_same_logic", refuse)
    netlist = Path("rnic.json")
    with pytest.raises(pnr.ToolError, match=r"refined is not the logic of .*placed"):
        flow.place(netlist, 1)
    assert not flow.delays(netlist, 1).exists()


def test_routing_that_ends_early_leaves_no_delays(monkeypatch):
    Tools(monkeypatch, fails="interrupted")
    netlist = Path("rnic.json")
    with pytest.raises(pnr.ToolError, match="interrupted"):
        flow.place(netlist, 1)
    assert not flow.delays(netlist, 1).exists()
    Tools(monkeypatch)
    flow.place(netlist, 1)
    assert flow.delays(netlist, 1).exists()
