"""The transmitter of frames keeps what its memory holds, and writes nothing over."""

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.hostlink.frame_transmitter import FRAME_OCTET, FrameTransmitter
from stagecoach.hw.interface.hostlink import WINDOW
from stagecoach.sim.cosim.streams import StreamSink, seeded_random, start_clock_and_reset
from tests.support.runner import run_cocotb

RETRY_CYCLES = 1 << 20
HELD_OCTETS = 2040
"""Of messages that are not acknowledged: the memory has 2048, of which 8 stay free."""

LENGTHS = (130, 1023, 2, 511, 374)


def test_a_full_memory_takes_no_more_and_keeps_all():
    run_cocotb(FrameTransmitter(RETRY_CYCLES), __name__, test_filter="check_full")


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_full_memory(dut):
    rng = seeded_random()
    names = ("expected", "acknowledged", "acknowledged_number", "again", "acknowledge", "reject")
    for name in (*names, "hello", "hello_payload", "i__valid", "i__payload"):
        getattr(dut, name).value = 0
    sink = StreamSink(dut, "o", FRAME_OCTET)
    await start_clock_and_reset(dut)

    async def take(octet: int, last: int) -> bool:
        """Whether an octet is taken; the next one comes when the memory has seen this one."""
        dut.i__valid.value, dut.i__payload.value = 1, octet | last << 8
        taken = False
        for _ in range(40):
            await RisingEdge(dut.clk)
            taken = bool(dut.i__ready.value)
            if taken:
                break
        dut.i__valid.value = 0
        await ClockCycles(dut.clk, 4)
        return taken

    async def frames(count: int) -> list[tuple[int, bytes]]:
        """Numbers and messages of frames, without what is not of the message."""
        found: list[tuple[int, bytes]] = []
        octets = bytearray()
        while len(found) < count:
            item = await sink.get()
            if not item["flag"]:
                octets.append(item["octet"])
            elif octets:
                kind, number, body = octets[:1], octets[1], octets[3:-4]
                found.append((number, bytes(kind + body)))
                octets.clear()
        return found

    # Each round begins elsewhere in the memory, and in the numbers.
    number = 0
    for _ in range(3):
        messages = [rng.randbytes(length) for length in LENGTHS]
        assert sum(LENGTHS) == HELD_OCTETS and len(LENGTHS) < WINDOW
        for message in messages:
            for at, octet in enumerate(message):
                assert await take(octet, int(at == len(message) - 1))
        assert not await take(0, 0)
        wanted = [((number + n) % 256, message) for n, message in enumerate(messages)]
        assert await frames(len(messages)) == wanted
        dut.again.value = 1
        await RisingEdge(dut.clk)
        dut.again.value = 0
        assert await frames(len(messages)) == wanted
        # The first one is acknowledged: there is room for as many octets, no more.
        dut.acknowledged.value, dut.acknowledged_number.value = 1, (number + 1) % 256
        await RisingEdge(dut.clk)
        dut.acknowledged.value = 0
        await ClockCycles(dut.clk, 4)
        late = rng.randbytes(LENGTHS[0])
        for at, octet in enumerate(late):
            assert await take(octet, int(at == len(late) - 1))
        assert not await take(0, 0)
        assert await frames(1) == [((number + len(messages)) % 256, late)]
        number = (number + len(messages) + 1) % 256
        dut.acknowledged.value, dut.acknowledged_number.value = 1, number
        await RisingEdge(dut.clk)
        dut.acknowledged.value = 0
        await ClockCycles(dut.clk, 4)
