"""The first check of TCP that a frame fails, and its fields, as the model has them."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.ethernet.layouts import FRAME_WORD_AT, FrameFate
from stagecoach.gateware.tcp.header import TcpHeader
from stagecoach.sim.cosim.streams import pack, seeded_random, start_clock_and_reset
from stagecoach.sim.model.tcp.checksum import checksum
from tests.ethernet.frame_bus import words_of
from tests.support.runner import parameter, run_cocotb
from tests.tcp.frames import datagram, fate_of, random_frame, record_of, summed

FRAMES = 800
SEEN = {fate for fate in FrameFate if fate.name.startswith("TCP_")} | {FrameFate.SEGMENT}


@pytest.mark.parametrize("gaps", [0, 0.4])
def test_tcp_header(gaps: float) -> None:
    run_cocotb(TcpHeader(), __name__, parameters={"GAPS": str(gaps)})


def _spoiled(rng: Any, frame: bytes) -> bytes:
    """The frame with something of TCP wrong: its length, sum, offset, or a port."""
    header = 14 + 4 * (frame[14] & 15)
    segment = bytearray(frame[header : 14 + int.from_bytes(frame[16:18], "big")])
    match rng.randrange(5):
        case 0:
            segment = segment[: rng.randrange(21)]
        case 1:
            return frame[: header + 4] + bytes([frame[header + 4] ^ 1]) + frame[header + 5 :]
        case 2:
            segment[12] = rng.randrange(16) << 4
        case 3:
            at = rng.choice([0, 2])
            segment[at : at + 2] = bytes(2)
        case 4:
            segment[rng.choice([0, 2])] = 0  # half of a port is none
    return datagram(rng, summed(bytes(segment)), header - 34)


def _sum_is_right(frame: bytes) -> bool:
    header = frame[14 : 14 + 4 * (frame[14] & 15)]
    segment = frame[14 + len(header) : 14 + int.from_bytes(frame[16:18], "big")]
    pseudo = header[12:20] + bytes([0, header[9]]) + len(segment).to_bytes(2, "big")
    return checksum(pseudo + segment) == 0


@cocotb.test(timeout_time=8, timeout_unit="ms")
async def check_segments_are_judged_as_the_model_does(dut: Any) -> None:
    rng = seeded_random()
    dut.i__valid.value = dut.previous__valid.value = dut.good.value = 0
    await start_clock_and_reset(dut)
    seen: set[FrameFate] = set()
    for _ in range(FRAMES):
        frame = random_frame(rng)
        if rng.random() < 0.6:
            frame = _spoiled(rng, frame)
        ihl, total = frame[14] & 15, int.from_bytes(frame[16:18], "big")
        dut.ihl.value, dut.total.value = rng.getrandbits(4), rng.getrandbits(16)
        for word in words_of(frame):
            while rng.random() < float(parameter("GAPS")):
                dut.i__valid.value, dut.i__p.value = 0, rng.getrandbits(len(dut.i__p))
                await RisingEdge(dut.clk)
            dut.i__valid.value, dut.i__p.value = 1, pack(FRAME_WORD_AT, word)
            await RisingEdge(dut.clk)
            # What IPv4's header says is there a cycle after its word.
            if word["index"] == 1:
                dut.ihl.value = ihl
            elif word["index"] == 2:
                dut.total.value = total
            dut.previous__p.value = pack(FRAME_WORD_AT, word)
        dut.i__valid.value, dut.good.value = 0, int(_sum_is_right(frame))
        await RisingEdge(dut.clk)
        expected = fate_of(frame)
        assert FrameFate(int(dut.fate.value)) is expected, frame.hex()
        seen.add(expected)
        if expected is FrameFate.SEGMENT:
            record = record_of(frame)
            key: Any = record["key"]
            assert int(dut.source_port.value) == key["remote_port"]
            assert int(dut.destination_port.value) == key["local_port"]
            for name in ("sequence", "acknowledgment", "flags", "window", "payload"):
                assert int(getattr(dut, name).value) == record[name], name
            assert int(dut.header.value) == record["header"] - 14 - 4 * ihl
    assert seen == SEEN
