"""What an INFO told is kept, with what is settled now and counts after it."""

from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.tcp.connection_info import ConnectionInfo
from stagecoach.gateware.tcp.transmit_info import SENDING_WORDS
from stagecoach.hw.interface.network_entries import CONNECTION_INFO
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.support.runner import run_cocotb


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_words_that_are_kept(dut: Any) -> None:
    """Each a cycle after its number; then what is settled now, and counts as they are."""
    rng = seeded_random()
    dut.write.value = dut.read.value = dut.shown.value = 0
    await start_clock_and_reset(dut)
    kept = {}
    for place in rng.sample(range(SENDING_WORDS), SENDING_WORDS):
        kept[place] = rng.getrandbits(32)
        dut.write.value, dut.place.value, dut.word.value = 1, place, kept[place]
        await RisingEdge(dut.clk)
    dut.write.value = 0
    for _ in range(100):
        dut.settled.value = number = rng.getrandbits(32)
        place = rng.randrange(len(CONNECTION_INFO))
        dut.read.value = place
        dut.word.value = rng.getrandbits(32)
        counted = rng.getrandbits(32)
        if place > SENDING_WORDS:
            await RisingEdge(dut.clk)
            assert int(dut.count.value) == place - SENDING_WORDS - 1
            for shown in (0,) * rng.randrange(3) + (1,):
                dut.shown.value = shown
                dut.counted.value = counted if shown else rng.getrandbits(32)
                await RisingEdge(dut.clk)
            dut.shown.value = 0
        else:
            await RisingEdge(dut.clk)
        dut.settled.value = rng.getrandbits(32)
        dut.counted.value = rng.getrandbits(32)
        await RisingEdge(dut.clk)
        assert int(dut.value.value) == {**kept, SENDING_WORDS: number}.get(place, counted)


def test_connection_info() -> None:
    run_cocotb(ConnectionInfo(), __name__)
