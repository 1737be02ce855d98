"""The octets of RDMAP headers leave as words, in order, and never more than there is room for."""

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.rdmap.headers import READ_REQUEST_HEADER_OCTETS, TERMINATE_HEADER_OCTETS
from stagecoach.gateware.rdmap.transmit.inline import (
    INLINE_WORDS,
    WORD_OCTETS,
    WORDS,
    InlineKind,
    TransmitInline,
)
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


@pytest.mark.parametrize("pattern", ["always", "random", "bursty", "slow"])
def test_transmit_inline(pattern):
    run_cocotb(TransmitInline(), __name__, parameters={"PATTERN": pattern})


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_headers_leave_as_words(dut):
    rng = seeded_random(parameter("PATTERN"))
    sink = StreamSink(dut, "o", 64, rng=rng, pattern=parameter("PATTERN"))
    StreamMonitor(dut, "o", keep=False)
    dut.start.value = 0
    await start_clock_and_reset(dut)
    expected = []
    waited = 0
    for _ in range(HEADERS):
        await ClockCycles(dut.clk, GAP + rng.choice([0, 0, rng.randint(1, 20)]))
        while not dut.room.value:
            waited += 1
            await RisingEdge(dut.clk)
        octets = rng.randbytes(WORD_OCTETS * INLINE_WORDS)
        kind = rng.choice(list(InlineKind))
        length = rng.choice([length for length in LENGTHS if length <= WORD_OCTETS * WORDS[kind]])
        words = -(-length // WORD_OCTETS)
        expected += [
            int.from_bytes(octets[WORD_OCTETS * n : WORD_OCTETS * (n + 1)], "little")
            for n in range(words)
        ]
        dut.start.value = 1
        for number in range(len(InlineKind)):
            port = getattr(dut, f"octets__{number}")
            port.value = rng.getrandbits(64 * INLINE_WORDS)
        getattr(dut, f"octets__{kind.value}").value = int.from_bytes(octets, "little")
        dut.kind.value, dut.length.value = kind.value, length
        await RisingEdge(dut.clk)
        dut.start.value = 0
        cycles = 0
        while True:
            await RisingEdge(dut.clk)
            cycles += 1
            if dut.done.value:
                break
        # At once, and one per cycle.
        assert cycles <= words + 1
        getattr(dut, f"octets__{kind.value}").value = rng.getrandbits(64 * INLINE_WORDS)
        dut.length.value = rng.randint(1, TERMINATE_HEADER_OCTETS)
    assert await sink.get_many(len(expected)) == expected
    await ClockCycles(dut.clk, 30)
    assert not len(sink)
    if parameter("PATTERN") == "slow":
        assert waited > HEADERS
