"""What a soak counts of the segments that a card sends."""

from ipaddress import IPv4Address

import pytest

from stagecoach.host_driver.network.ipv4 import Datagram, Protocol
from stagecoach.host_driver.network.tcp import Flag, Segment
from stagecoach.sim.soak_tcp.frames import SegmentLog

ENDS = (IPv4Address("192.0.2.1"), 7), (IPv4Address("192.0.2.2"), 9)
SACK = bytes((1, 1, 5, 10)) + bytes(8)


def frame(sequence: int, data: bytes = b"", flags: int = Flag.ACK, options: bytes = b"") -> bytes:
    segment = Segment(*ENDS, sequence % (1 << 32), 0, flags, options=options, data=data).encode()
    datagram = Datagram(ENDS[0][0], ENDS[1][0], Protocol.TCP, segment)
    return (bytes(12) + b"\x08\x00" + datagram.encode()).ljust(60, b"\0")


def counted(*frames: bytes) -> dict[str, int]:
    log = SegmentLog()
    for each in frames:
        log.note(0, each, sent=True)
        log.note(0, each, sent=False)
    assert log.received == len(frames)
    return {name: count for name, count in log.counts.items() if count}


def test_octets_that_were_sent_before_are_retransmitted():
    begin = frame(99, flags=Flag.SYN)
    found = counted(begin, frame(100, bytes(10)), frame(110, bytes(10)), frame(100, bytes(20)))
    assert found == {"segments": 4, "syn": 1, "with_data": 3, "retransmitted": 1}


@pytest.mark.parametrize(("sequence", "wraps"), [(-10, False), (-9, True), (-1, True), (0, False)])
def test_segments_past_the_end_of_the_numbers_are_counted(sequence, wraps):
    found = counted(frame(sequence - 1, flags=Flag.SYN), frame(sequence, bytes(10)))
    assert found.get("wrapped", 0) == wraps
    assert "retransmitted" not in found


def test_kinds_of_segments_and_frames():
    flags = Flag.ACK
    found = counted(
        frame(1),
        frame(1, options=SACK),
        frame(1, flags=flags | Flag.FIN),
        frame(2, flags=flags | Flag.RST),
        bytes(60),
    )
    assert found == {
        "segments": 4,
        "pure_acks": 2,
        "with_sack_blocks": 1,
        "fin": 1,
        "rst": 1,
        "others": 1,
    }
