"""The ranking of slow paths agrees with nextpnr, and says what is on them."""

import re
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.hw import flow, synthesis
from stagecoach.hw.harness import Harness
from stagecoach.hw.paths import main, register_name, slow_paths
from stagecoach.hw.placer.delays import Delays
from stagecoach.hw.rtlil import export
from tests.hw.placer.sdf import SDF


@pytest.fixture
def sdf(tmp_path):
    path = tmp_path / "delays.sdf"
    path.write_text(SDF)
    return path


def test_a_path_is_the_sum_of_its_cells_and_wires(sdf):
    slow, fast = slow_paths(Delays.read(sdf), 0)
    assert slow.delay == pytest.approx(0.3 + 1.0 + 0.2 + 0.5)
    assert slow.ends() == ("first", "second", "DI")
    assert slow.wires == (("first_TRELLIS_FF_Q/Q", 1.0), ("sum_LUT4_Z/F", 0.5))
    # With the setup time of the enable.
    assert fast.delay == pytest.approx(0.3 + 1.0 + 0.2 + 0.002 + 0.04)
    assert fast.ends() == ("first", "first", "CE")


def test_only_ends_over_the_limit_are_shown(sdf, capsys):
    assert main([str(sdf), "--over", "1.6"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == "1 of 2 ends take more than 1.6 ns"
    assert second == "2.00 ns, 1 ends: first 1.00 > sum 0.50 > second.DI"


def test_other_files_are_refused(tmp_path, capsys):
    path = tmp_path / "report.json"
    path.write_text("{}")
    assert main([str(path)]) == 1
    assert re.search(r"paths: .*report\.json is not an SDF file", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--paths", "-1"], "--paths -1; allowed: 0 or more"),
        (["--over", "nan"], "--over nan; allowed: 0 or more ns"),
        (["--over", "inf"], "--over inf; allowed: 0 or more ns"),
        (["--over", "-1"], "--over -1.0; allowed: 0 or more ns"),
    ],
)
def test_options_that_say_nothing_are_refused(sdf, capsys, options, message):
    with pytest.raises(SystemExit):
        main([str(sdf), *options])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        ("device.gather.active_TRELLIS_FF_Q_1", "gather.active"),
        ("device.a.table.0.3$DPRAM_COMB3", "a.table"),
        ("device.a.sum_CCU2C_S1$CCU2_COMB0", "a.sum"),
        ("device.a.kind[2]", "a.kind"),
    ],
)
def test_names_are_those_of_the_source(cell, name):
    assert register_name(cell) == name


class Adder(wiring.Component):
    """A long sum of three registers."""

    a: In(24)
    b: In(24)
    sum: Out(24)

    def elaborate(self, platform):
        m = Module()
        a = Signal(24)
        m.d.sync += [a.eq(self.a), self.sum.eq((a + self.b) ^ (self.sum + a))]
        return m


def test_the_slowest_path_is_the_one_that_nextpnr_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(synthesis, "BUILD", Path("build"))
    folder = synthesis.synthesize(export(Harness(Adder()), "rnic"))
    placed = flow.place(folder / "rnic.json", seed=1)
    slowest = slow_paths(Delays.read(flow.delays(folder / "rnic.json", 1)), 0)[0]
    assert slowest.delay == pytest.approx(1000 / placed.fmax_mhz, abs=0.01)
