"""The octets of RDMAP headers leave as words, in order, or not at all if their FPDU fails."""

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.rdmap.headers import TERMINATE_HEADER_OCTETS
from stagecoach.gateware.rdmap.transmit.inline import (
    INLINE_WORDS,
    WORD_OCTETS,
    WORDS,
    InlineKind,
    TransmitInline,
)
from stagecoach.hw.interface.wire import READ_REQUEST_HEADER_OCTETS
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb

HEADERS = 150
LENGTHS = (1, 4, 20, 24, READ_REQUEST_HEADER_OCTETS, TERMINATE_HEADER_OCTETS)
# Cycles after the last word until `room` knows of it.
GAP = 2
FIRST_WORD = 2
"""Cycles from `start` until the first word is looked at."""
WRITTEN = 2
"""From then until it is being written, for the last one."""


@pytest.mark.parametrize("pattern", ["always", "random", "bursty", "slow"])
def test_transmit_inline(pattern):
    run_cocotb(TransmitInline(), __name__, parameters={"PATTERN": pattern})


async def _pulse(dut, signal):
    signal.value = 1
    await RisingEdge(dut.clk)
    signal.value = 0


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_headers_leave_as_words(dut):
    rng = seeded_random(parameter("PATTERN"))
    sink = StreamSink(dut, "o", 64, rng=rng, pattern=parameter("PATTERN"))
    StreamMonitor(dut, "o", keep=False)
    dut.start.value = dut.commit.value = dut.discard.value = 0
    await start_clock_and_reset(dut)
    expected = []
    waited = kept = 0
    for _ in range(HEADERS):
        await ClockCycles(dut.clk, GAP + rng.choice([0, 0, rng.randint(1, 20)]))
        while not dut.room.value:
            waited += 1
            await RisingEdge(dut.clk)
        octets = rng.randbytes(WORD_OCTETS * INLINE_WORDS)
        kind = rng.choice(list(InlineKind))
        length = rng.choice([length for length in LENGTHS if length <= WORD_OCTETS * WORDS[kind]])
        words = -(-length // WORD_OCTETS)
        await _pulse(dut, dut.start)
        # Word by word what was looked at changes, and what is not looked at too.
        for cycle in range(1, words + FIRST_WORD):
            for number in range(len(InlineKind)):
                getattr(dut, f"octets__{number}").value = rng.getrandbits(64 * INLINE_WORDS)
            gone = WORD_OCTETS * max(cycle - FIRST_WORD, 0)
            left = rng.randbytes(gone) + octets[gone:]
            getattr(dut, f"octets__{kind.value}").value = int.from_bytes(left, "little")
            dut.kind.value = kind.value if cycle == 1 else rng.choice(list(InlineKind)).value
            dut.length.value = length if cycle == 1 else rng.randint(1, TERMINATE_HEADER_OCTETS)
            await RisingEdge(dut.clk)
            assert not dut.written.value
        await ClockCycles(dut.clk, WRITTEN)
        assert dut.written.value
        keep = rng.random() < 0.7
        kept += keep
        if keep:
            expected += [
                int.from_bytes(octets[WORD_OCTETS * n : WORD_OCTETS * (n + 1)], "little")
                for n in range(words)
            ]
        await _pulse(dut, dut.commit if keep else dut.discard)
    assert await sink.get_many(len(expected)) == expected
    await ClockCycles(dut.clk, 30)
    assert not len(sink)
    assert HEADERS // 2 < kept < HEADERS
    if parameter("PATTERN") == "slow":
        assert waited > HEADERS
