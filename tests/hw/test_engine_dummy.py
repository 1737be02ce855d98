"""The dummy of an engine has the cells that are planned for one, and the device beside it is whole.

The whole of it is counted by `hw.timing --engine-dummy` before it is placed.
"""

import json
from pathlib import Path

import pytest

from stagecoach.gateware.config import RnicConfig
from stagecoach.hw import synthesis, timing
from stagecoach.hw.area import of_part
from stagecoach.hw.engine_dummy import (
    LEVELS,
    PIPELINES,
    TARGETS,
    EngineDummy,
    Pipeline,
    RnicBesideDummy,
    excess_of_dummy,
)
from stagecoach.hw.estimate import Estimate
from stagecoach.hw.harness import Harness
from stagecoach.hw.nextpnr import DEFAULT_PART, ToolError
from stagecoach.hw.rtlil import export


def test_a_pipeline_has_its_share_of_the_cells_and_four_levels_of_logic(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # paths of a WebAssembly program are relative to where it runs
    monkeypatch.setattr(synthesis, "BUILD", Path("build"))
    netlist = synthesis.synthesize(export(Harness(Pipeline(1)), "rnic")) / "rnic.json"
    found = of_part(netlist, "device")
    assert found["dp16kd"] == 9
    # The rest is at the ports of the dummy, and in its buffers.
    assert 0.95 < found["lut4"] * PIPELINES / TARGETS["lut4"] <= 1
    assert 0.90 < found["ff"] * PIPELINES / TARGETS["ff"] <= 1
    estimate = Estimate(netlist)
    levels = [estimate.levels(end) for end in estimate.ends()]
    assert max(levels) == LEVELS
    assert levels.count(LEVELS) > 900


@pytest.mark.parametrize("name", TARGETS)
def test_three_percent_are_allowed(name):
    assert excess_of_dummy(TARGETS) == []
    for share, allowed in ((0.96, False), (0.98, True), (1.02, True), (1.04, False)):
        found = TARGETS | {name: round(TARGETS[name] * share)}
        assert (excess_of_dummy(found) == []) is allowed
    (told,) = excess_of_dummy(TARGETS | {name: 0})
    assert told.startswith(f"the engine dummy has 0 {name.upper()}; allowed: ")


def test_a_dummy_of_another_size_is_not_placed(tmp_path, monkeypatch):
    cells = {"device.dummy.a": {"type": "LUT4"}, "device.rnic.framer.b": {"type": "LUT4"}}
    (tmp_path / "rnic.json").write_text(json.dumps({"modules": {"rnic": {"cells": cells}}}))
    monkeypatch.setattr(timing, "export", lambda *_: "")
    monkeypatch.setattr(timing, "synthesize", lambda *_: tmp_path)
    with pytest.raises(ToolError, match="the engine dummy has 1 LUT4; allowed: 20,000 within 3%"):
        timing.measure(RnicConfig(), DEFAULT_PART, [], 1, "", lambda _: None, True)


def test_all_ports_but_the_llp_port_are_there():
    config = RnicConfig()
    beside = set(RnicBesideDummy(config).signature.members)
    assert beside == {"s_axi", "m_axi", "irq"} | set(EngineDummy(config).signature.members) - {
        "llp"
    }
