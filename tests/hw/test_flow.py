"""The flow maps with abc, and short additions to LUTs."""

from pathlib import Path

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw import flow
from hw.rtlil import export


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
    assert flow.packed(folder, flow.PARTS["45F"])["TRELLIS_FF"] == 8


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
