"""The pcapng writer, judged by tshark."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecoach.sim.capture.connections import Direction
from stagecoach.sim.capture.file import read_packets
from stagecoach.sim.capture.pcapng import (
    PcapngWriter,
    TcpConversation,
    internet_checksum,
    split_fpdus,
)
from stagecoach.sim.model.endpoint import Endpoint
from stagecoach.sim.model.mpa import Framer, StartupFrame
from tests.sim.capture.tshark import fields, tcp_fields, verdict

Log = list[tuple[Direction, bytes]]


def traffic(octets: int, *, mulpdu: int = 1454, markers: bool = False) -> Log:
    """A session of two endpoints: one Write, one Read, a Send each way."""
    both = {"mulpdu": mulpdu, "markers_out": markers, "markers_in": markers}
    initiator = Endpoint(**both)
    responder = Endpoint(**both, responder=True)
    responder.register(bytearray(octets), stag=7)
    initiator.register(bytearray(octets), stag=8)
    initiator.rdma_write(bytes(octets), 7, 0)
    initiator.rdma_read(8, 0, octets, 7, 0)
    initiator.post_send(b"a digest")
    responder.post_receive(8)
    responder.post_send(b"an answer")
    initiator.post_receive(9)
    log = [
        (Direction.TO_RESPONDER, StartupFrame(reply=False, markers=markers).encode()),
        (Direction.TO_INITIATOR, StartupFrame(reply=True, markers=markers).encode()),
    ]
    while not (initiator.idle and responder.idle):
        for source, destination, direction in (
            (initiator, responder, Direction.TO_RESPONDER),
            (responder, initiator, Direction.TO_INITIATOR),
        ):
            for fpdu in source.take_output():
                log.append((direction, fpdu))
                destination.receive(fpdu)
    assert initiator.error is None
    assert responder.error is None
    return log


def write(path, log: Log, *, conversations: int = 1) -> None:
    with PcapngWriter(path) as writer:
        for number in range(conversations):
            conversation = TcpConversation(writer, initiator=("10.0.0.1", 49152 + number))
            for i, (direction, octets) in enumerate(log):
                conversation.add(direction, octets, number + i * 1e-6)
            conversation.close(number + len(log) * 1e-6)


@pytest.mark.parametrize("conversations", [1, 3])
@pytest.mark.parametrize("mulpdu", [128, 1454, 64768])
def test_tshark_decodes_every_fpdu(tmp_path, mulpdu, conversations):
    log = traffic(100_000, mulpdu=mulpdu)
    path = tmp_path / "session.pcapng"
    write(path, log, conversations=conversations)
    found = verdict(path)
    fpdus = len(log) - 2
    assert found.malformed == found.bad_crc == found.bad_checksums == found.sequence_trouble == 0
    assert found.good_crc == fpdus * conversations
    assert found.requests == found.replies == conversations
    segments = -(-100_000 // (mulpdu - 14))
    assert found.opcodes == {
        "Write": segments * conversations,
        "Read Response": segments * conversations,
        "Read Request": conversations,
        "Send": 2 * conversations,
    }


def test_sequence_and_acknowledgment_numbers_follow_the_octets(tmp_path):
    path = tmp_path / "session.pcapng"
    write(path, traffic(5000))
    fin_syn, ack = 0x03, 0x10
    following: dict[int, int] = {}
    ports = {port for port, *_ in tcp_fields(path)}
    for port, sequence, acknowledgment, length, flags in tcp_fields(path):
        (other,) = ports - {port}
        assert sequence == following.get(port, sequence)
        following[port] = sequence + length + bool(flags & fin_syn)
        assert acknowledgment == (following[other] if flags & ack else 0)


def test_tshark_decodes_markers(tmp_path):
    # tshark 4.0 counts a Marker directly after an FPDU to that FPDU and then loses the stream;
    # this session is short enough not to have one. With Markers in one direction only it does not
    # decode the other one at all.
    log = traffic(20_000, mulpdu=1442, markers=True)
    path = tmp_path / "markers.pcapng"
    write(path, log)
    found = verdict(path)
    assert found.malformed == found.bad_crc == found.bad_checksums == 0
    assert found.good_crc == len(log) - 2


def test_octets_in_any_pieces_give_one_segment_per_fpdu(tmp_path):
    log = traffic(10_000)
    whole, pieces = tmp_path / "whole.pcapng", tmp_path / "pieces.pcapng"
    write(whole, log)
    cut = [
        (direction, octets[i : i + 7])
        for direction, octets in log
        for i in range(0, len(octets), 7)
    ]
    with PcapngWriter(pieces) as writer:
        conversation = TcpConversation(writer)
        for direction, octets in cut:
            conversation.add(direction, octets, 0.0)
        conversation.close(0.0)
    found, expected = verdict(pieces), verdict(whole)
    assert found == expected


def test_broken_crc_is_seen_by_tshark(tmp_path):
    # Otherwise the other tests would prove nothing.
    log = traffic(1000)
    direction, octets = log[2]
    log[2] = (direction, octets[:-1] + bytes([octets[-1] ^ 1]))
    path = tmp_path / "broken.pcapng"
    write(path, log)
    assert verdict(path).bad_crc == 1


def test_stream_without_startup_frames_is_written_as_it_comes(tmp_path):
    path = tmp_path / "garbage.pcapng"
    with PcapngWriter(path) as writer:
        conversation = TcpConversation(writer)
        conversation.add(Direction.TO_RESPONDER, b"GET / HTTP/1.1\r\n\r\n", 0.0)
        conversation.add(Direction.TO_INITIATOR, b"MPA ID R", 0.0)
        conversation.close(0.0)
    found = verdict(path)
    # Handshake, two segments, three packets of the end.
    assert found.packets == 3 + 2 + 3
    assert found.bad_checksums == found.sequence_trouble == 0


def test_12_mib_are_written_in_seconds(tmp_path):
    log = traffic(6 << 20)
    start = time.perf_counter()
    write(tmp_path / "large.pcapng", log)
    assert time.perf_counter() - start < 5


def test_frames_have_their_direction_and_nanosecond(tmp_path):
    path = tmp_path / "frames.pcapng"
    sent, received = bytes(range(61)), bytes(60)
    with PcapngWriter(path) as writer:
        writer.frame(sent, 1_700_000_000_123_456_789, inbound=False)
        writer.frame(received, 1_700_000_000_123_456_790, inbound=True)
    names = ("frame.time_epoch", "frame.packet_flags_direction", "frame.len")
    # 1 is inbound, 2 is outbound (draft-ietf-opsawg-pcapng, 4.3.1).
    assert fields(path, *names) == [
        ["1700000000.123456789", "0x00000002", "61"],
        ["1700000000.123456790", "0x00000001", "60"],
    ]
    assert [(packet.time_ns, packet.octets) for packet in read_packets(path)] == [
        (1_700_000_000_123_456_789, sent),
        (1_700_000_000_123_456_790, received),
    ]


@given(st.lists(st.binary(min_size=1, max_size=900), max_size=8), st.booleans(), st.integers(0, 9))
def test_split_fpdus_finds_the_boundaries(ulpdus, markers, missing):
    framer = Framer(markers)
    fpdus = [framer.frame(ulpdu) for ulpdu in ulpdus]
    stream = b"".join(fpdus)
    assert split_fpdus(stream, markers=markers) == (fpdus, b"")
    cut = max(0, len(stream) - missing)
    found, rest = split_fpdus(stream[:cut], markers=markers)
    assert found == fpdus[: len(found)]
    assert b"".join(found) + rest == stream[:cut]
    position = 0
    for fpdu, following in pairwise(fpdus):
        position += len(fpdu)
        assert split_fpdus(following, markers=markers, position=position) == ([following], b"")


@given(st.binary(max_size=200))
def test_internet_checksum_is_that_of_rfc1071(octets):
    padded = octets + bytes(len(octets) % 2)
    total = sum(int.from_bytes(padded[i : i + 2], "big") for i in range(0, len(padded), 2))
    while total > 0xFFFF:
        total = (total >> 16) + (total & 0xFFFF)
    assert internet_checksum(octets) == total ^ 0xFFFF
