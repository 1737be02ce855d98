"""Synthesis maps with abc, and short additions to LUTs; a state has a register of its own."""

from pathlib import Path

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.hw import nextpnr as pnr
from stagecoach.hw import synthesis
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
    monkeypatch.setattr(synthesis, "BUILD", Path("build"))


def passes(folder):
    return (folder / "yosys.log").read_text()


def test_the_mapper_is_abc():
    folder = synthesis.synthesize(export(Counter(8), "rnic"))
    assert "Executing ABC pass" in passes(folder)
    assert "Executing ABC9 pass" not in passes(folder)
    assert synthesis.cell_counts(folder)["TRELLIS_FF"] == 8


def test_the_other_flow_maps_with_abc9():
    folder = synthesis.synthesize(export(Counter(8), "rnic"), "")
    assert "Executing ABC9 pass" in passes(folder)


@pytest.mark.parametrize(
    ("width", "chained"), [(synthesis.SHORT_CARRY, False), (synthesis.SHORT_CARRY + 1, True)]
)
def test_short_additions_are_made_of_luts(width, chained):
    cells = synthesis.cell_counts(synthesis.synthesize(export(Counter(width), "rnic")))
    assert ("CCU2C" in cells) == chained


def test_netlists_of_different_flows_are_different_files():
    text = export(Counter(8), "rnic")
    assert synthesis.synthesize(text) != synthesis.synthesize(text, "")


def test_packed_tells_what_a_netlist_takes_of_a_part():
    folder = synthesis.synthesize(export(Counter(8), "rnic"))
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
    cells = synthesis.cell_counts(synthesis.synthesize(export(Walk(), "rnic")))
    assert cells["TRELLIS_FF"] >= Walk.STATES
