"""Registers that hold the same stay apart in the netlist if they are marked, and only then."""

import json
from collections import Counter

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.registers_apart import keep_apart
from stagecoach.hw.rtlil import export, to_verilog
from stagecoach.hw.synthesis import synthesize

WIDTH = 3


class Copies(wiring.Component):
    """A register, a part of a wider one and an output, all with what `i` was when `en` was high."""

    def __init__(self, marked):
        self._marked = marked
        super().__init__(
            {"i": In(WIDTH), "en": In(1), "o": Out(WIDTH), "p": Out(WIDTH), "q": Out(WIDTH)}
        )

    def elaborate(self, platform):
        m = Module()
        one, wide = Signal(WIDTH), Signal(data.StructLayout({"low": 1, "same": WIDTH}))
        if self._marked:
            keep_apart(one, wide, self.q)
        with m.If(self.en):
            m.d.sync += [one.eq(self.i), wide.same.eq(self.i), wide.low.eq(1), self.q.eq(self.i)]
        m.d.comb += [self.o.eq(one ^ 1), self.p.eq(wide.same ^ 2 ^ wide.low)]
        return m


@pytest.mark.parametrize("marked", [True, False])
def test_marked_registers_stay_apart(marked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = synthesize(export(Copies(marked), "top"), top="top")
    cells = json.loads((folder / "rnic.json").read_text())["modules"]["top"]["cells"]
    kinds = Counter(cell["type"] for cell in cells.values())
    assert kinds["TRELLIS_FF"] == (3 if marked else 1) * WIDTH + 1


def test_other_tools_find_the_attribute():
    for marked, registers in ((True, 3), (False, 0)):
        assert to_verilog(export(Copies(marked), "top")).count("(* keep = ") == registers


def test_what_cannot_be_kept_apart_is_refused():
    with pytest.raises(ValueError, match="1 registers are kept apart; allowed: 2 or more"):
        keep_apart(Signal())
    with pytest.raises(TypeError, match="kept apart; allowed: a Signal"):
        keep_apart(Signal(), Signal(2)[0])
