"""Words of a memory come in order, one per cycle, and no more are fetched than can wait."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.stream.read_ahead import WORDS_AHEAD, ReadAhead
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb

WORDS = 1000
BITS = 11


@pytest.mark.parametrize("pattern", ["always", "random", "bursty", "slow"])
def test_read_ahead(pattern: str) -> None:
    run_cocotb(ReadAhead(BITS), __name__, parameters={"PATTERN": pattern})


class Memory:
    """A memory of numbers, its port, and who counts what was taken from there."""

    def __init__(self, dut: Any) -> None:
        self._dut = dut
        self.fetched = 0

    async def edge(self, there: bool) -> None:
        """One cycle, in which the word at the port may be taken, or not."""
        self._dut.there.value = there
        await RisingEdge(self._dut.clk)
        if int(self._dut.fetch.value):
            assert there, "fetched what is not there"
            self._dut.word.value = self.fetched & ((1 << BITS) - 1)
            self.fetched += 1


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_words_come_in_order(dut: Any) -> None:
    pattern = parameter("PATTERN")
    rng = seeded_random(pattern)
    dut.there.value = 0
    sink = StreamSink(dut, "o", BITS, rng=rng, pattern=pattern)
    StreamMonitor(dut, "o", BITS)
    await start_clock_and_reset(dut)
    memory = Memory(dut)
    while memory.fetched < WORDS:
        await memory.edge(rng.random() < 0.9)
    for _ in range(8 * WORDS_AHEAD):
        await memory.edge(False)
    assert sink.take_all() == [number & ((1 << BITS) - 1) for number in range(WORDS)]


@cocotb.test(timeout_time=100, timeout_unit="us")
async def check_cycles(dut: Any) -> None:
    """The first word after 3 cycles, and then one in each."""
    dut.there.value = dut.o__ready.value = 0
    await start_clock_and_reset(dut)
    dut.o__ready.value = 1
    memory = Memory(dut)
    seen = []
    for cycle in range(40):
        await memory.edge(True)
        if int(dut.o__valid.value):
            seen.append((cycle, int(dut.o__payload.value)))
    assert seen == [(number + 3, number) for number in range(37)]


@cocotb.test(timeout_time=100, timeout_unit="us")
async def check_a_reader_that_waits_for_ever(dut: Any) -> None:
    """Some words wait, none is lost, and the memory is left alone."""
    dut.there.value = dut.o__ready.value = 0
    await start_clock_and_reset(dut)
    memory = Memory(dut)
    for _ in range(100):
        await memory.edge(True)
    waiting = memory.fetched
    assert 0 < waiting <= WORDS_AHEAD
    dut.o__ready.value = 1
    taken = []
    for _ in range(20):
        await memory.edge(False)
        if int(dut.o__valid.value):
            taken.append(int(dut.o__payload.value))
    assert taken == list(range(waiting)) and memory.fetched == waiting
