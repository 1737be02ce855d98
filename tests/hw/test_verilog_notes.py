"""Comments and names of states in exported Verilog: they add, and change nothing."""

import itertools
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.mpa.framer import Framer
from stagecoach.gateware.rnic import Rnic
from stagecoach.hw.cached_verilog import TOP, export_verilog
from stagecoach.hw.rtlil import export, to_verilog
from stagecoach.hw.verilog_notes import STATE_NAMES, annotate, notes

SMALL = RnicConfig(qps=4, cqs=4, stags=16)


@pytest.fixture(scope="module")
def verilog() -> str:
    return export_verilog(SMALL)


@pytest.fixture(scope="module")
def annotated(verilog) -> str:
    return annotate(verilog, notes(Rnic(SMALL), TOP))


def test_without_its_notes_the_text_is_what_the_simulation_is_built_from(verilog, annotated):
    added = rf"^(//.*|`ifdef {STATE_NAMES}\n(  .*\n)+`endif)\n"
    left = re.sub(added, "", annotated, flags=re.MULTILINE)
    assert left == verilog
    assert len(annotated) > len(verilog)


def test_the_docstring_of_a_block_stands_above_its_module(annotated):
    above, _, _ = annotated.partition("module \\rnic.framer (")
    comment = re.split(r"^[^/]", above, flags=re.MULTILINE)[-1]
    assert Framer.__doc__ is not None
    said = [line.removeprefix("//").strip() for line in comment.splitlines() if "//" in line]
    assert [line for line in said if line] == [
        line.strip() for line in Framer.__doc__.splitlines() if line.strip()
    ]


def test_every_state_register_has_names(annotated):
    found = re.findall(r"^  reg .*\bfsm_state.* = .*\n(.*)$", annotated, re.MULTILINE)
    assert len(found) > 15
    assert set(found) == {f"`ifdef {STATE_NAMES}"}


class TwoMachines(wiring.Component):
    """Counts in two ways."""

    go: In(1)
    done: Out(1)

    def elaborate(self, platform):
        m = Module()
        count = Signal(2)
        m.d.sync += count.eq(count + 1)
        with m.FSM():
            with m.State("WAIT"), m.If(self.go):
                m.next = "RUN"
            with m.State("RUN"), m.If(count == 3):
                m.next = "END"
            with m.State("END"):
                m.d.comb += self.done.eq(1)
        with m.FSM(name="other"):
            with m.State("A"):
                m.next = "LONGER"
            with m.State("LONGER"):
                m.next = "A"
        return m


BENCH = r"""
module bench;
  reg clk = 0, go = 0, rst = 1;
  wire done;
  top top(.clk(clk), .rst(rst), .go(go), .done(done));
  integer cycle;
  initial begin
    #1 clk = 1; #1 clk = 0; rst = 0;
    for (cycle = 0; cycle < 8; cycle = cycle + 1) begin
      $display("%0s %0s", top.\fsm_state.name , top.\other_state.name );
      go = cycle == 1;
      #1 clk = 1; #1 clk = 0;
    end
  end
endmodule
"""


@pytest.mark.skipif(shutil.which("iverilog") is None, reason="Icarus is not installed")
def test_a_simulation_shows_the_names_of_states(tmp_path: Path):
    source = tmp_path / "top.v"
    text = to_verilog(export(TwoMachines(), "top"))
    source.write_text(annotate(text, notes(TwoMachines(), "top")) + BENCH)
    program = tmp_path / "program"
    command = ["iverilog", "-g2005", f"-D{STATE_NAMES}", "-o", str(program), str(source)]
    subprocess.run(command, check=True)
    shown = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    first, second = zip(*(line.split() for line in shown.splitlines()), strict=True)
    assert second == ("A", "LONGER") * 4
    assert [state for state, _ in itertools.groupby(first)] == ["WAIT", "RUN", "END"]
