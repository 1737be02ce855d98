"""The pieces of an FPDU are seen together when they are committed, or never."""

from collections import deque

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.rdmap.transmit.pieces import HeldFifo
from stagecoach.hw.interface.queue_entries import SCATTER_GATHER_ELEMENTS
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    seeded_random,
    start_clock_and_reset,
    width_of,
)
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig()
PIECE = Layouts(CONFIG).gather_piece
FPDUS = 200
DEPTH = 16


@pytest.mark.parametrize("pattern", ["always", "random", "bursty", "slow"])
def test_held_fifo(pattern):
    run_cocotb(
        HeldFifo(PIECE, DEPTH, SCATTER_GATHER_ELEMENTS), __name__, parameters={"PATTERN": pattern}
    )


class Writer:
    """Writes the pieces of one FPDU after the other, each when there is room for it."""

    def __init__(self, dut, rng):
        self.committed = deque()
        self._dut, self._rng = dut, rng
        dut.offer.value = dut.write.value = dut.commit.value = dut.discard.value = 0

    async def _pulse(self, signal):
        signal.value = 1
        await RisingEdge(self._dut.clk)
        signal.value = 0

    async def fpdu(self, count, keep):
        dut, rng = self._dut, self._rng
        while not dut.room.value:
            await RisingEdge(dut.clk)
        pieces = [rng.getrandbits(width_of(PIECE)) for _ in range(count)]
        for piece in pieces:
            # What is offered and not written is forgotten.
            dut.offer.value = 1
            if rng.random() < 0.5:
                await ClockCycles(dut.clk, rng.randint(1, 3))
            dut.item.value = piece
            await self._pulse(dut.offer)
            dut.item.value = rng.getrandbits(width_of(PIECE))
            if rng.random() < 0.3:
                await ClockCycles(dut.clk, rng.randint(1, 4))
            await self._pulse(dut.write)
            if rng.random() < 0.3:
                await ClockCycles(dut.clk, rng.randint(1, 4))
        if keep:
            self.committed += pieces
        await self._pulse(dut.commit if keep else dut.discard)
        # `room` knows of the last write two cycles later.
        await RisingEdge(dut.clk)


async def check_offers(dut, committed):
    """What is offered is always the oldest committed piece that was not taken."""
    while True:
        await RisingEdge(dut.clk)
        if dut.o__valid.value and not dut.rst.value:
            assert committed, "a piece is seen that was not committed"
            assert int(dut.o__payload.value) == committed[0]
            if dut.o__ready.value:
                committed.popleft()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_pieces_leave_when_committed(dut):
    rng = seeded_random(parameter("PATTERN"))
    sink = StreamSink(dut, "o", PIECE, rng=rng, pattern=parameter("PATTERN"))
    StreamMonitor(dut, "o", keep=False)
    writer = Writer(dut, rng)
    await start_clock_and_reset(dut)
    cocotb.start_soon(check_offers(dut, writer.committed))
    kept = 0
    for number in range(FPDUS):
        # Now and then until there is no room.
        sink.paused = number % 50 >= 40 and bool(dut.room.value)
        count = rng.randint(0, SCATTER_GATHER_ELEMENTS)
        keep = rng.random() < 0.7
        kept += count * keep
        await writer.fpdu(count, keep)
    sink.paused = False
    await sink.get_many(kept)
    await ClockCycles(dut.clk, 10)
    assert not writer.committed
    assert not dut.o__valid.value


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_room_is_what_the_memory_has_left(dut):
    rng = seeded_random(parameter("PATTERN"))
    sink = StreamSink(dut, "o", PIECE)
    sink.paused = True
    writer = Writer(dut, rng)
    await start_clock_and_reset(dut)
    # One piece waits after the memory; one place is kept for a write of the cycle before.
    fitting = DEPTH - SCATTER_GATHER_ELEMENTS
    for _ in range(fitting):
        await ClockCycles(dut.clk, 3)
        assert dut.room.value
        await writer.fpdu(1, True)
    await ClockCycles(dut.clk, 3)
    assert dut.room.value
    await writer.fpdu(1, True)
    await ClockCycles(dut.clk, 3)
    assert not dut.room.value
