"""A change is judged by its netlist and by failed checks, on a copy; sources stay as they are."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tools.mutate import judge
from tools.mutate.judge import KILLED, NOT_BUILT, SAME, SURVIVED, Copy, PlainFailure
from tools.mutate.points import Change

ROOT = Path(__file__).resolve().parents[2]

# A project as small as can be, whose only design is a counter.
BLOCK = """
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

class Block(wiring.Component):
    value: Out(8)

    def elaborate(self, platform):
        m = Module()
        count = Signal(8)
        m.d.sync += count.eq(count + STEP)
        m.d.comb += self.value.eq(count)
        return m

STEP = 1
UNUSED = 2
"""
TEST = """
import os, time
from amaranth.sim import Simulator
from stagecoach.gateware.mpa.block import STEP, Block

def test_block():
    if STEP == 3:
        time.sleep(60)
    dut = Block()
    values = []
    async def check(ctx):
        for _ in range(3):
            values.append(ctx.get(dut.value))
            await ctx.tick()
    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(check)
    sim.run()
    assert values[:2] == [0, 1] or STEP not in (2,)
"""
DESIGNS_OF_TEST = """
import json, sys
from pathlib import Path
from stagecoach.gateware.mpa.block import Block
from stagecoach.hw.rtlil import export
from tools.mutate.netlist import modules
Path(sys.argv[2]).write_text(json.dumps(modules(export(Block(), "block"))))
"""


@pytest.fixture
def small_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    for folder in ("gateware/mpa", "tests/mpa", "hw"):
        (root / folder).mkdir(parents=True)
        for part in (root / folder, (root / folder).parent):
            if part != root:
                (part / "__init__.py").touch()
    (root / "gateware/mpa/block.py").write_text(BLOCK)
    (root / "tests/mpa/test_block.py").write_text(TEST)
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\ntimeout = 5\n")
    for file in ("hw/rtlil.py", "hw/files.py"):
        shutil.copy(ROOT / file, root / file)
    shutil.copytree(ROOT / "tools", root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(
        ROOT / "src", root / "src", symlinks=True, ignore=shutil.ignore_patterns("*.egg-info")
    )
    (root / "tools/mutate/designs.py").write_text(DESIGNS_OF_TEST)
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    monkeypatch.setattr(judge, "designs_of", lambda file, graph: ["device"])
    return root


def _change(**replaced: str) -> Change:
    ((name, value),) = replaced.items()
    before = next(line for line in BLOCK.splitlines() if line.startswith(f"{name} ="))
    text = BLOCK.replace(before, f"{name} = {value}")
    return Change("gateware/mpa/block.py", 1, "", before, value, text)


@pytest.mark.parametrize(
    ("made", "verdict", "reason"),
    [
        ({"UNUSED": "3"}, SAME, ""),
        ({"STEP": "2"}, KILLED, "assert"),
        ({"STEP": "3"}, KILLED, "Timeout"),
        ({"STEP": "4"}, SURVIVED, ""),
        ({"STEP": "None"}, NOT_BUILT, "TypeError"),
        ({"STEP": "("}, NOT_BUILT, ""),
    ],
)
def test_a_change_is_judged_in_a_copy(
    made: dict[str, str], verdict: str, reason: str, small_project: Path
) -> None:
    copy = Copy(small_project, small_project / "build/copy", small_project / "build/plain.json", 5)
    said: list[str] = []
    result = copy.judge(_change(**made), said.append)
    assert (result.verdict, reason in result.reason) == (verdict, True), result
    if verdict == KILLED:
        assert result.by == "tests/mpa/test_block.py::test_block"
    assert (small_project / "gateware/mpa/block.py").read_text() == BLOCK
    assert (small_project / "build/copy/gateware/mpa/block.py").read_text() == BLOCK


def test_a_test_that_fails_without_a_change_kills_nothing(small_project: Path) -> None:
    (small_project / "tests/mpa/test_block.py").write_text("def test_it():\n    assert False\n")
    copy = Copy(small_project, small_project / "build/copy", small_project / "build/plain.json", 5)
    with pytest.raises(PlainFailure, match="test_it fails without a change"):
        copy.judge(_change(STEP="2"), lambda _: None)
