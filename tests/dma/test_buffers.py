"""The reserved queue keeps order, frees a place per word and never loses a word it had room for."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.dma.buffers import ReservedQueue
from stagecoach.gateware.host_memory import READ_WORD
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    active_cycles,
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
)
from tests.support.runner import parameter, run_cocotb

DEPTH = 32
WORDS = 400


@pytest.mark.parametrize("sink", ["always", "random", "bursty"])
@pytest.mark.parametrize("source", ["always", "random", "bursty"])
def test_reserved_queue(source, sink):
    run_cocotb(
        ReservedQueue(READ_WORD, DEPTH),
        __name__,
        test_filter="check_words",
        parameters={"SOURCE": source, "SINK": sink},
    )


@pytest.mark.parametrize("source", ["always", "random"])
def test_the_smallest_queue_loses_no_word(source):
    parameters = {"SOURCE": source, "SINK": "random", "DEPTH": "2"}
    run_cocotb(
        ReservedQueue(READ_WORD, 2), __name__, test_filter="check_words", parameters=parameters
    )


def test_full_queue_keeps_all_words():
    run_cocotb(ReservedQueue(READ_WORD, DEPTH), __name__, test_filter="check_full")


def test_depth_is_checked():
    with pytest.raises(ValueError, match="depth is 3"):
        ReservedQueue(READ_WORD, 3)


class Writer:
    """Pushes words whenever it is willing and a place is left, as the read engine does."""

    def __init__(self, dut, rng, pattern):
        self.pushed = []
        self.places = self.depth = int(parameter("DEPTH", str(DEPTH)))
        self.limit = WORDS
        self._dut, self._rng = dut, rng
        self._active = active_cycles(pattern, rng)
        dut.push.value = 0
        cocotb.start_soon(self._run())

    async def _run(self):
        dut = self._dut
        while True:
            await RisingEdge(dut.clk)
            if dut.rst.value:
                continue
            self.places += int(dut.freed.value)
            assert self.places <= self.depth
            word = self._rng.getrandbits(66)
            push = next(self._active) and self.places > 0 and len(self.pushed) < self.limit
            dut.push.value, dut.word.value = int(push), pack(READ_WORD, word)
            if push:
                self.places -= 1
                self.pushed.append(unpack(READ_WORD, word))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_words_leave_in_order(dut):
    rng = seeded_random(parameter("SOURCE"), parameter("SINK"))
    writer = Writer(dut, rng, parameter("SOURCE"))
    sink = StreamSink(dut, "o", READ_WORD, rng=rng, pattern=parameter("SINK"))
    monitor = StreamMonitor(dut, "o")
    await start_clock_and_reset(dut)
    assert await sink.get_many(WORDS) == writer.pushed
    if parameter("SOURCE") == parameter("SINK") == "always":
        assert monitor.cycles <= WORDS + 10
    assert writer.places == writer.depth


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_full_queue(dut):
    rng = seeded_random()
    writer = Writer(dut, rng, "always")
    sink = StreamSink(dut, "o", READ_WORD)
    await start_clock_and_reset(dut)
    for _ in range(10):
        sink.paused = True
        before = len(writer.pushed)
        writer.limit = before + 3 * DEPTH
        for _ in range(2 * DEPTH + rng.randrange(10)):
            await RisingEdge(dut.clk)
        # Its memory is full, and what left it waits in front of the user.
        assert writer.places == 0
        # All but two of the 16 places of the FIFO there are used.
        assert DEPTH + 14 <= len(writer.pushed) - before <= DEPTH + 16
        sink.paused = False
        expected = writer.pushed[before:]
        assert await sink.get_many(len(expected)) == expected
        writer.limit = len(writer.pushed)
        await sink.get_many(len(writer.pushed) - before - len(expected))
