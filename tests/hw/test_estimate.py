"""Deeper logic, longer carries and more fan-out make longer paths."""

from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.hw import synthesis
from stagecoach.hw.estimate import CLOCK_TO_OUTPUT, Estimate, wire
from stagecoach.hw.rtlil import export


class Parity(wiring.Component):
    """Parity of a register of `width` bits, and a sum."""

    def __init__(self, width):
        super().__init__({"given": In(width), "odd": Out(1), "sum": Out(width)})

    def elaborate(self, platform):
        m = Module()
        held = Signal.like(self.given)
        m.d.sync += [
            held.eq(self.given),
            self.odd.eq(held.xor()),
            self.sum.eq(held + self.sum),
        ]
        return m


@pytest.fixture
def ends(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(synthesis, "BUILD", Path("build"))

    def of(width):
        estimate = Estimate(synthesis.synthesize(export(Parity(width), "rnic")) / "rnic.json")
        return estimate, estimate.ends()

    return of


def test_deeper_logic_takes_longer(ends):
    (narrow, few), (wide, many) = ends(4), ends(40)
    assert [end.delay for end in many] == sorted((end.delay for end in many), reverse=True)
    parity = [
        next(
            end
            for end in found
            if estimate.name(end.bits[0]).startswith("held") and "odd" in end.cell
        )
        for estimate, found in ((narrow, few), (wide, many))
    ]
    assert narrow.levels(parity[0]) == 1
    assert wide.levels(parity[1]) >= 2
    assert parity[1].delay > parity[0].delay > CLOCK_TO_OUTPUT


def test_a_carry_is_as_long_as_its_bits(ends):
    _, short = ends(12)
    _, long = ends(40)
    sums = [max(end.delay for end in found if "sum" in end.cell) for found in (short, long)]
    assert sums[1] > sums[0]


def test_fan_out_makes_wires_longer():
    assert wire(1) < wire(16) < wire(256)
