"""What the flow keeps is whole, and made once; what is not right is not routed."""

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from stagecoach.hw import flow, gates, synthesis
from stagecoach.hw import nextpnr as pnr
from stagecoach.hw.cache import LIMIT_VARIABLE
from stagecoach.hw.placer.same_logic import OtherLogic


@pytest.fixture(autouse=True)
def build(tmp_path, monkeypatch):
    # Paths of a WebAssembly program are relative to where it runs.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(synthesis, "BUILD", Path("build"))


def test_placements_of_other_recipes_are_different_files(monkeypatch):
    files = {flow.delays(Path("rnic.json"), seed) for seed in (1, 2)}
    monkeypatch.setattr(flow, "RECIPE", b"other")
    files.add(flow.delays(Path("rnic.json"), 1))
    monkeypatch.setattr(flow, "version", lambda name: "other")
    files.add(flow.delays(Path("rnic.json"), 1))
    assert len(files) == 4


class Tools:
    """Stands for Yosys and nextpnr, whose files it writes; `together` waits for so many runs."""

    FMAX = {"fast": {"achieved": 300.0}, "slow": {"achieved": 150.0}}

    def __init__(self, monkeypatch, together=1, fails=""):
        self.runs = 0
        self.fails = fails
        self._barrier = threading.Barrier(together)
        monkeypatch.setattr(synthesis, "run", self.yosys)
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
    folder, other = at_once(*[lambda: synthesis.synthesize("text")] * 2)
    assert folder == other and tools.runs == 1
    netlist = folder / "rnic.json"
    at_once(*[lambda: flow.place(netlist, 1)] * 2)
    assert tools.runs == 2
    at_once(*[lambda: gates.as_verilog(netlist)] * 2)
    assert tools.runs == 3


def test_netlists_are_kept_to_the_limit_of_the_cache(monkeypatch):
    Tools(monkeypatch)
    used, unused = synthesis.synthesize("used"), synthesis.synthesize("unused")
    for folder in (used, unused):
        os.utime(folder, (0, 0))
    assert synthesis.synthesize("used") == used
    monkeypatch.setenv(LIMIT_VARIABLE, "0")
    assert synthesis.synthesize("new").exists() and used.exists()
    assert not unused.exists()


def test_seeds_of_a_netlist_are_placed_at_the_same_time(monkeypatch):
    Tools(monkeypatch, together=2)
    netlist = synthesis.BUILD / "rnic.json"
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
