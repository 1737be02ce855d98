"""Comparisons of sequence numbers, held to the known answers and to numbers around the wrap."""

from typing import Any

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import Timer

from stagecoach.gateware.tcp.sequence import acceptable, before, distance, latest, within
from stagecoach.sim.cosim.streams import seeded_random
from tests.sim.model.tcp.vectors import VECTORS
from tests.support.runner import run_cocotb

SPACE, HALF = 1 << 32, 1 << 31


class Comparisons(wiring.Component):
    """The functions of `tcp/sequence.py`, each with an output."""

    a: In(32)
    b: In(32)
    length: In(17)
    window: In(31)
    before: Out(1)
    distance: Out(32)
    latest: Out(32)
    within: Out(1)
    acceptable: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += [
            self.before.eq(before(self.a, self.b)),
            self.distance.eq(distance(self.a, self.b)),
            self.latest.eq(latest(self.a, self.b)),
            self.within.eq(within(self.a, self.b, self.window)),
            self.acceptable.eq(acceptable(self.a, self.length, self.b, self.window)),
        ]
        return m


@pytest.mark.requirement("TCP-3.4-01", "TCP-3.4-03", "TCP-MUST-1")
def test_sequence() -> None:
    run_cocotb(Comparisons(), __name__)


async def answers(dut: Any, a: int, b: int, length: int = 0, window: int = 0) -> Any:
    """What the functions say of two numbers."""
    dut.a.value, dut.b.value, dut.length.value, dut.window.value = a, b, length, window
    await Timer(1, "ns")
    return dut


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_order_holds_around_the_wrap(dut: Any) -> None:
    rng = seeded_random()
    bases = [0, 1, HALF - 1, HALF, SPACE - 1, *(rng.randrange(SPACE) for _ in range(50))]
    steps = [1, 2, 0x8000, 0xFFFF, HALF - 1, *(rng.randrange(1, HALF) for _ in range(20))]
    for base in bases:
        said = await answers(dut, base, base, window=1)
        assert (int(said.before.value), int(said.latest.value)) == (0, base)
        assert int(said.within.value)
        for step in steps:
            after = (base + step) % SPACE
            said = await answers(dut, base, after)
            assert (int(said.before.value), int(said.latest.value)) == (1, after)
            said = await answers(dut, after, base, window=step)
            assert (int(said.before.value), int(said.latest.value)) == (0, after)
            assert int(said.distance.value) == step
            assert not int(said.within.value)
            said = await answers(dut, after, base, window=min(step + 1, HALF - 1))
            assert int(said.within.value) == (step + 1 < HALF)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_acceptability_is_as_in_the_known_answers(dut: Any) -> None:
    assert VECTORS["window"]
    for vector in VECTORS["window"]:
        number, following = int(vector["seg_seq"], 16), int(vector["rcv_nxt"], 16)
        said = await answers(dut, number, following, vector["seg_len"], vector["rcv_wnd"])
        assert bool(said.acceptable.value) == vector["acceptable"], vector
