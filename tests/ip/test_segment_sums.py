"""The checksums of whole frames, of every header length, with padding, one bit right or wrong."""

from typing import Any

import cocotb
import pytest

from stagecoach.gateware.ip.segment_sums import SegmentSums
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from stagecoach.sim.model.tcp.checksum import checksum
from tests.ethernet.frame_bus import drive
from tests.ip.arp_and_echo import echo_message, echo_request
from tests.support.runner import parameter, run_cocotb
from tests.tcp.frames import datagram, summed

TCP, ICMP = 6, 1
PAYLOADS = [*range(18), 63, 64, 65, 1460]
OPTIONS = [0, 4, 20, 36, 40]


@pytest.mark.parametrize("gaps", [0, 0.4])
def test_segment_sums(gaps: float) -> None:
    run_cocotb(SegmentSums(), __name__, parameters={"GAPS": str(gaps)})


@pytest.mark.parametrize("gaps", [0, 0.4])
def test_sums_of_icmp(gaps: float) -> None:
    parameters = {"GAPS": str(gaps), "ICMP": "1"}
    run_cocotb(SegmentSums(icmp=True), __name__, parameters=parameters)


def _is_right(frame: bytes) -> tuple[bool, bool]:
    """By RFC 1071 and RFC 9293, 3.1: the sums of header and segment, their fields among them.

    That of an ICMP message is of itself (RFC 792).
    """
    header = frame[14 : 14 + 4 * (frame[14] & 15)]
    segment = frame[14 + len(header) : 14 + int.from_bytes(frame[16:18], "big")]
    pseudo = header[12:20] + bytes([0, header[9]]) + len(segment).to_bytes(2, "big")
    if parameter("ICMP", "0") == "1" and header[9] != TCP:
        pseudo = b""
    return checksum(header) == 0, checksum(pseudo + segment) == 0


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_sums_are_those_of_the_frame(dut: Any) -> None:
    rng = seeded_random()
    frames = []
    for payload in PAYLOADS:
        for options in OPTIONS:
            protocol = TCP
            segment = summed(rng.randbytes(20 + payload))
            if parameter("ICMP", "0") == "1" and rng.random() < 0.5:
                protocol = ICMP
                segment = echo_message(echo_request(rng.randbytes(payload)))
            frame = bytearray(datagram(rng, segment, options, protocol))
            if rng.random() < 0.5:
                frame[rng.randrange(14, len(frame))] ^= 1 << rng.randrange(8)
            # What says how long it is stays: a frame too short for its header has any result.
            right = datagram(rng, segment, options, protocol)
            frame[14:15], frame[16:18] = right[14:15], right[16:18]
            frames.append(bytes(frame))
    dut.i__valid.value = 0
    await start_clock_and_reset(dut)
    ended: list[tuple[int, int]] = []  # edge, and the frame that ended there
    verdicts = []
    bus = drive(dut, "i", frames, rng, float(parameter("GAPS")))
    edge = 0
    while len(verdicts) < len(frames):
        number = await anext(bus)
        if ended and ended[0][0] + SegmentSums.LATENCY == edge:
            verdicts.append((bool(dut.ip_good.value), bool(dut.tcp_good.value)))
            ended.pop(0)
        if number is not None:
            ended.append((edge, number))
        edge += 1
    assert verdicts == [*map(_is_right, frames)]
    for which in zip(*verdicts, strict=True):
        assert set(which) == {True, False}
