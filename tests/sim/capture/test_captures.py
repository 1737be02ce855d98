"""Captures of another implementation, read and decoded by the reference model."""

import struct
from collections import Counter
from pathlib import Path

import pytest

from stagecoach.sim.capture.connections import Connection, Direction, read_connections
from stagecoach.sim.model import ddp, mpa, rdmap
from stagecoach.sim.model.rdmap import Opcode, ReadRequest
from tests.sim.model.vectors import DATA

CAPTURES = sorted((DATA / "captures").glob("*.pcap"))


def segments(connection: Connection, direction: Direction) -> list[tuple[ddp.Header, bytes]]:
    """All DDP Segments of a direction, in the chunks in which TCP delivered them."""
    deframer = mpa.Deframer(connection.sends_markers(direction), connection.negotiated.crc)
    found = []
    for chunk in connection.chunks:
        if chunk.direction is direction:
            found += map(ddp.decode, deframer.feed(chunk.octets))
    assert deframer.pending == 0, "the stream ends with a whole FPDU"
    return found


def opcode_of(header: ddp.Header) -> Opcode:
    return Opcode(rdmap.decode_control(header.rsvd_ulp).opcode)


def opcodes(connection: Connection) -> Counter:
    return Counter(
        opcode_of(header)
        for direction in Direction
        for header, _ in segments(connection, direction)
    )


def test_all_captures_are_there():
    assert len(CAPTURES) == 13


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_every_fpdu_is_accepted(path: Path):
    connections = read_connections(path)
    assert len(connections) == (2 if "ib_" in path.stem else 1)
    for connection in connections:
        assert connection.negotiated.crc == path.stem.startswith("crc1")
        assert connection.request.revision == (1 if "rev1" in path.stem else 2)
        for direction in Direction:
            next_msn = Counter({0: 1, 1: 1})
            for header, payload in segments(connection, direction):
                assert header.version == ddp.DDP_VERSION
                opcode = opcode_of(header)
                assert isinstance(header, ddp.TaggedHeader) == (opcode in rdmap.TAGGED_OPCODES)
                if opcode is Opcode.RDMA_READ_REQUEST:
                    assert ReadRequest.decode(payload).encode() == payload
                if isinstance(header, ddp.UntaggedHeader):
                    assert header.msn == next_msn[header.qn]
                    next_msn[header.qn] += header.last


def test_rping_has_the_messages_of_its_protocol():
    (connection,) = read_connections(DATA / "captures" / "crc1-rping-64.pcap")
    # Three rounds; both sides of every round announce a buffer and say when they are done.
    assert opcodes(connection) == {
        Opcode.SEND: 12,
        Opcode.RDMA_READ_REQUEST: 3,
        Opcode.RDMA_READ_RESPONSE: 3,
        Opcode.RDMA_WRITE: 3,
    }


def test_both_sides_of_one_session_show_the_same_streams():
    (client,) = read_connections(DATA / "captures" / "crc1-rping-4000-clientside.pcap")
    (server,) = read_connections(DATA / "captures" / "crc1-rping-4000-serverside.pcap")
    assert client.request == server.request
    for direction in Direction:
        assert client.stream(direction) == server.stream(direction)


def test_peer_to_peer_starts_with_an_empty_write():
    (connection,) = read_connections(DATA / "captures" / "crc1-p2p-rping-64.pcap")
    assert connection.request.enhanced.peer_to_peer
    header, payload = segments(connection, Direction.TO_RESPONDER)[0]
    assert (opcode_of(header), payload) == (Opcode.RDMA_WRITE, b"")
    assert connection.chunks[0].direction is Direction.TO_RESPONDER


def pcap_of(tmp_path: Path, records: list[tuple[bool, int, bytes]]) -> Path:
    """A pcap file from (to responder, sequence number, payload), without checksums."""
    data = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 0xFFFF, 1)
    for to_responder, sequence, payload in records:
        ports = (1000, 2000) if to_responder else (2000, 1000)
        tcp = struct.pack(">HHIIBBHHH", *ports, sequence, 0, 0x50, 0x10, 0, 0, 0) + payload
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0, b"abcd", b"abcd")
        packet = bytes(12) + b"\x08\x00" + ip + tcp
        # Ethernet fills up short frames; the reader must not take that for payload.
        packet += b"\xee" * max(0, 60 - len(packet))
        data += struct.pack("<IIII", 1, 500_000, len(packet), len(packet)) + packet
    path = tmp_path / "made.pcap"
    path.write_bytes(data)
    return path


def test_retransmission_disorder_and_overlap_give_each_octet_once(tmp_path):
    start = 2**32 - 30
    request = mpa.StartupFrame(reply=False).encode()
    reply = mpa.StartupFrame(reply=True).encode()
    after = (start + len(request)) % 2**32
    (connection,) = read_connections(
        pcap_of(
            tmp_path,
            [
                (True, start, request[:12]),
                (True, start + 12, request[12:]),
                (False, 100, reply),
                (True, after + 4, b"efgh"),
                (True, after, b"abcd"),
                (True, after, b"abcd"),
                (False, 120, b"1"),
                (True, after + 6, b"ghij"),
            ],
        )
    )
    assert [(chunk.direction, chunk.octets) for chunk in connection.chunks] == [
        (Direction.TO_RESPONDER, b"abcd"),
        (Direction.TO_RESPONDER, b"efgh"),
        (Direction.TO_INITIATOR, b"1"),
        (Direction.TO_RESPONDER, b"ij"),
    ]
    assert connection.chunks[0].time == 1.5


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "other"
    path.write_bytes(bytes(100))
    with pytest.raises(ValueError, match="is neither pcap nor pcapng"):
        read_connections(path)
