"""Frames that are kept come out whole and in order; of others, and without room, nothing does."""

from collections import deque
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.ethernet.frame_store import FrameStore
from stagecoach.gateware.ethernet.layouts import FRAME_WORD
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    pack,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb

OCTETS = 1024


@pytest.mark.parametrize("pattern", ["always", "bursty", "slow"])
def test_frame_store(pattern: str) -> None:
    run_cocotb(FrameStore(OCTETS), __name__, parameters={"PATTERN": pattern})


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_random_frames_come_out_if_they_are_kept(dut: Any) -> None:
    pattern = parameter("PATTERN")
    rng = seeded_random(pattern)
    sink = StreamSink(dut, "o", FRAME_WORD, rng=rng, pattern=pattern)
    StreamMonitor(dut, "o", FRAME_WORD)
    dut.write.value = dut.keep.value = 0
    await start_clock_and_reset(dut)
    expected: deque[dict[str, int]] = deque()
    overflows = kept = 0
    for _ in range(300):
        words_of_store = OCTETS // 8
        some = rng.randint(1, 20), rng.randint(1, words_of_store), words_of_store + 2
        length = rng.choice([1, 2, *some])
        words = [{"data": rng.getrandbits(64), "last": at == length - 1} for at in range(length)]
        for word in words:
            while pattern == "always" and rng.random() < 0.1:
                dut.write.value, dut.keep.value = 0, rng.getrandbits(1)
                await RisingEdge(dut.clk)
            dut.write.value, dut.word.value = 1, pack(FRAME_WORD, word)
            dut.keep.value = 0
            await cocotb.triggers.ReadWrite()
            full = bool(dut.full.value)
            keeps = word["last"] and not full and rng.random() < 0.7
            overflows += word["last"] and full
            dut.keep.value = keeps
            if keeps:
                expected += words
                kept += 1
            await RisingEdge(dut.clk)
        dut.write.value = dut.keep.value = 0
        if rng.random() < 0.2:
            for _ in range(rng.randint(1, 150)):
                await RisingEdge(dut.clk)
    for word in expected:
        assert await sink.get() == word
    for _ in range(20):
        await RisingEdge(dut.clk)
    assert not len(sink)
    assert kept > 20
    assert overflows > 5
