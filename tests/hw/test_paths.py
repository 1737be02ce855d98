"""The ranking of slow paths agrees with nextpnr, and says what is on them."""

import re

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.hw import flow
from stagecoach.hw.harness import Harness
from stagecoach.hw.paths import main, register_name, slow_paths
from stagecoach.hw.placer.delays import Delays, NotSdf
from stagecoach.hw.rtlil import export

SDF = """(DELAYFILE
  (SDFVERSION "3.0")
  (CELL
    (CELLTYPE "top")
    (INSTANCE )
    (DELAY
      (ABSOLUTE
        (INTERCONNECT first_TRELLIS_FF_Q/Q sum_LUT4_Z/A (100:200:1000) (100:200:1000))
        (INTERCONNECT sum_LUT4_Z/F second_TRELLIS_FF_Q/DI (1:1:500) (1:1:500))
        (INTERCONNECT \\$PACKER_VCC/Y sum_LUT4_Z/B (1:1:90000) (1:1:90000))
        (INTERCONNECT sum_LUT4_Z/F first_TRELLIS_FF_Q/CE (1:1:2) (1:1:2))
      )
    )
    )
  (CELL
    (CELLTYPE "TRELLIS_COMB")
    (INSTANCE sum_LUT4_Z)
    (DELAY
      (ABSOLUTE
        (IOPATH A F (100:150:200) (100:150:200))
        (IOPATH B F (100:150:200) (100:150:200))
      )
    )
    )
  (CELL
    (CELLTYPE "TRELLIS_FF")
    (INSTANCE first_TRELLIS_FF_Q)
    (DELAY (ABSOLUTE
        (IOPATH CLK Q (200:250:300) (200:250:300))
    ))
    (TIMINGCHECK
      (SETUPHOLD (posedge CE) (posedge CLK) (0:0:40) (88:89:90))
    )
    )
  (CELL
    (CELLTYPE "TRELLIS_FF")
    (INSTANCE second_TRELLIS_FF_Q)
    (TIMINGCHECK
      (SETUPHOLD (posedge DI) (posedge CLK) (0:0:0) (166:173:181))
    )
    )
)
"""


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


def test_a_loop_is_cut_somewhere():
    delays = Delays(
        wires={
            "g/DI": ("d/F", 1.0),  # after the loop, and looked at first
            "d/A": ("b/F", 1.0),
            "a/A": ("s/Q", 1.0),
            "a/B": ("b/F", 1.0),
            "b/A": ("a/F", 1.0),
            "c/A": ("s/Q", 1.0),
            "b/B": ("c/F", 1.0),
            "e/DI": ("b/F", 1.0),
        },
        through={
            "s/Q": [("s/CLK", 0.5)],
            "a/F": [("a/A", 0.1), ("a/B", 0.1)],
            "b/F": [("b/A", 0.1), ("b/B", 0.1)],
            "c/F": [("c/A", 0.1)],
            "d/F": [("d/A", 0.1)],
        },
        setup={"e/DI": 0.0, "g/DI": 0.0},
    )
    longer, shorter = slow_paths(delays, 0)
    assert shorter.delay == pytest.approx(0.5 + 3 * 1.0 + 2 * 0.1)
    assert longer.delay == pytest.approx(shorter.delay + 1.1)


def test_only_ends_over_the_limit_are_shown(sdf, capsys):
    assert main([str(sdf), "--over", "1.6"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == "1 of 2 ends take more than 1.6 ns"
    assert second == "2.00 ns, 1 ends: first 1.00 > sum 0.50 > second.DI"


@pytest.mark.parametrize("text", ["", "{}", "\0"])
def test_other_files_are_refused(tmp_path, capsys, text):
    path = tmp_path / "report.json"
    path.write_text(text)
    assert main([str(path)]) == 1
    assert "is no SDF file" in capsys.readouterr().err
    with pytest.raises(NotSdf, match="No such file"):
        Delays.read(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "(1:1:500)",
            "(1:1)",
            r"line 9: delay '\(1:1\)'; allowed: \(minimum:typical:maximum\) in ps",
        ),
        ("(1:1:500)", "(1:1:x)", r"line 9: delay"),
        ("(200:250:300)", "(:)", r"line 29: delay"),
        ("(0:0:40)", "()", r"line 32: delay"),
        ("sum_LUT4_Z/A", "sum_LUT4_Z", r"line 8: pin 'sum_LUT4_Z'; allowed: cell/port"),
        ("first_TRELLIS_FF_Q/Q", "first", r"line 8: pin 'first'; allowed: cell/port"),
    ],
)
def test_a_delay_or_pin_that_is_none_is_named(tmp_path, capsys, before, after, message):
    path = tmp_path / "delays.sdf"
    assert before in SDF
    path.write_text(SDF.replace(before, after, 1))
    assert main([str(path)]) == 1
    assert re.search(rf"paths: .*delays\.sdf, {message}", capsys.readouterr().err)


@pytest.mark.parametrize("lines", [1, 2, 8, 21, 35, SDF.count("\n") - 1])
def test_a_file_that_is_cut_off_is_refused(tmp_path, capsys, lines):
    path = tmp_path / "delays.sdf"
    path.write_text("".join(SDF.splitlines(keepends=True)[:lines]))
    assert main([str(path)]) == 1
    assert "delays.sdf is cut off: it has no closing parenthesis" in capsys.readouterr().err


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
    monkeypatch.setattr(flow, "BUILD", flow.Path("build"))
    folder = flow.synthesize(export(Harness(Adder()), "rnic"))
    placed = flow.place(folder / "rnic.json", seed=1)
    slowest = slow_paths(Delays.read(flow.delays(folder / "rnic.json", 1)), 0)[0]
    assert slowest.delay == pytest.approx(1000 / placed.fmax_mhz, abs=0.01)
