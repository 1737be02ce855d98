"""Frames are counted by fate, one in each cycle if they come so."""

from collections import Counter
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.ethernet.frame_counters import FrameCounters
from stagecoach.gateware.ethernet.layouts import FrameFate
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.support.runner import run_cocotb

CLEARING = 33


def test_frame_counters() -> None:
    run_cocotb(FrameCounters(), __name__)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_counts_are_those_of_the_frames(dut: Any) -> None:
    rng = seeded_random()
    dut.valid.value = 0
    await start_clock_and_reset(dut)
    for _ in range(2):  # the second time, counts of the first are there before the reset
        dut.rst.value = 1
        await RisingEdge(dut.clk)
        dut.rst.value = 0
        for _ in range(CLEARING):
            await RisingEdge(dut.clk)
        expected: Counter[FrameFate] = Counter()
        for _ in range(1000):
            fate, comes = rng.choice([*FrameFate, FrameFate.RAW]), rng.random() < 0.8
            dut.valid.value, dut.fate.value = comes, fate.value
            expected[fate] += comes
            await RisingEdge(dut.clk)
        dut.valid.value = 0
        for fate in FrameFate:
            dut.fate_read.value = fate.value
            await RisingEdge(dut.clk)
            await RisingEdge(dut.clk)
            await RisingEdge(dut.clk)
            assert int(dut.value.value) == expected[fate], fate
