"""Reads pcap files of MPA connections: startup frames, then the stream as TCP delivered it."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from sim.model.errors import MpaError
from sim.model.startup import KEY_REQUEST, Negotiated, StartupFrame, negotiate

# The file header of libpcap: magic number, versions, zone, accuracy, snapshot length, link type.
_FILE_HEADER_OCTETS = 24
_MAGIC_MICROSECONDS = 0xA1B2C3D4
_MAGIC_NANOSECONDS = 0xA1B23C4D
_RECORD_HEADER_OCTETS = 16
_LINKTYPE_ETHERNET = 1
_ETHERNET_OCTETS = 14
_ETHERTYPE_IPV4 = 0x0800
_PROTOCOL_TCP = 6
_FLAG_SYN = 0x02
_SEQUENCE_SPAN = 2**32

Address = tuple[str, int]


class Direction(Enum):
    """Who sends; the Initiator is the sender of the MPA Request Frame (RFC 5044, 2)."""

    TO_RESPONDER = "initiator to responder"
    TO_INITIATOR = "responder to initiator"


@dataclass(frozen=True)
class Chunk:
    """Octets that TCP delivered at once, in order and once only; ``time`` in seconds."""

    direction: Direction
    octets: bytes
    time: float


@dataclass(frozen=True)
class Connection:
    """One MPA connection; ``chunks`` begin behind the startup frames, in delivery order."""

    initiator: Address
    responder: Address
    request: StartupFrame
    reply: StartupFrame
    chunks: list[Chunk]

    @property
    def negotiated(self) -> Negotiated:
        return negotiate(self.request, self.reply)

    def sends_markers(self, direction: Direction) -> bool:
        """Whether the FPDUs of a direction have Markers in them."""
        if direction is Direction.TO_RESPONDER:
            return self.negotiated.initiator_sends_markers
        return self.negotiated.responder_sends_markers

    def stream(self, direction: Direction) -> bytes:
        """All octets of Full Operation of one direction."""
        return b"".join(chunk.octets for chunk in self.chunks if chunk.direction is direction)


@dataclass(frozen=True)
class _Segment:
    source: Address
    destination: Address
    sequence: int
    syn: bool
    payload: bytes
    time: float


@dataclass
class _HalfStream:
    """Puts the segments of one direction in order; gives every octet once."""

    expected: int | None = None
    waiting: list[_Segment] = field(default_factory=list)

    def add(self, segment: _Segment) -> Iterator[bytes]:
        if segment.syn:
            self.expected = (segment.sequence + 1) % _SEQUENCE_SPAN
            return
        if self.expected is None:
            # The capture began behind the handshake: this direction starts here.
            self.expected = segment.sequence
        self.waiting.append(segment)
        progress = True
        while progress:
            progress = False
            for candidate in list(self.waiting):
                # How far the segment starts behind (negative) or beyond what is expected.
                ahead = (candidate.sequence - self.expected + 2**31) % _SEQUENCE_SPAN - 2**31
                if ahead > 0:
                    continue
                self.waiting.remove(candidate)
                fresh = candidate.payload[-ahead:]
                if fresh:
                    self.expected = (self.expected + len(fresh)) % _SEQUENCE_SPAN
                    progress = True
                    yield fresh


def read_connections(path: str | Path) -> list[Connection]:
    """All complete MPA connections of a pcap file, in order of their first packet."""
    streams: dict[frozenset[Address], list[tuple[Address, Address, bytes, float]]] = {}
    halves: dict[tuple[Address, Address], _HalfStream] = {}
    for segment in _tcp_segments(Path(path)):
        key = (segment.source, segment.destination)
        half = halves.setdefault(key, _HalfStream())
        stream = streams.setdefault(frozenset(key), [])
        for octets in half.add(segment):
            stream.append((segment.source, segment.destination, octets, segment.time))
    connections = (_connection(stream) for stream in streams.values())
    return [connection for connection in connections if connection is not None]


def _connection(
    stream: list[tuple[Address, Address, bytes, float]],
) -> Connection | None:
    # The key itself may have come in pieces.
    if not stream or not KEY_REQUEST.startswith(stream[0][2][: len(KEY_REQUEST)]):
        return None
    initiator, responder = stream[0][:2]
    # What is left of the startup phase of each direction; None when that phase is over.
    startup: dict[Direction, bytes | None] = dict.fromkeys(Direction, b"")
    frames: dict[Direction, StartupFrame] = {}
    chunks = []
    for source, _, octets, time in stream:
        direction = Direction.TO_RESPONDER if source == initiator else Direction.TO_INITIATOR
        gathered = startup[direction]
        rest = octets
        if gathered is not None:
            try:
                parsed = StartupFrame.parse(gathered + octets)
            except MpaError:
                return None
            if parsed is None:
                startup[direction] = gathered + octets
                continue
            frames[direction], end = parsed
            rest = (gathered + octets)[end:]
            startup[direction] = None
        if rest:
            chunks.append(Chunk(direction, rest, time))
    if len(frames) < len(Direction):
        return None
    request, reply = frames[Direction.TO_RESPONDER], frames[Direction.TO_INITIATOR]
    return Connection(initiator, responder, request, reply, chunks)


def _tcp_segments(path: Path) -> Iterator[_Segment]:
    for time, packet in _packets(path):
        ethertype = int.from_bytes(packet[12:14], "big")
        ip = packet[_ETHERNET_OCTETS:]
        if ethertype != _ETHERTYPE_IPV4 or ip[9] != _PROTOCOL_TCP:
            continue
        # The total length leaves out what Ethernet padded.
        ip = ip[: int.from_bytes(ip[2:4], "big")]
        tcp = ip[(ip[0] & 0x0F) * 4 :]
        source_port, destination_port, sequence = struct.unpack_from(">HHI", tcp)
        yield _Segment(
            source=(".".join(map(str, ip[12:16])), source_port),
            destination=(".".join(map(str, ip[16:20])), destination_port),
            sequence=sequence,
            syn=bool(tcp[13] & _FLAG_SYN),
            payload=tcp[(tcp[12] >> 4) * 4 :],
            time=time,
        )


def _packets(path: Path) -> Iterator[tuple[float, bytes]]:
    data = path.read_bytes()
    for order in "<>":
        magic = struct.unpack_from(f"{order}I", data)[0]
        if magic in (_MAGIC_MICROSECONDS, _MAGIC_NANOSECONDS):
            break
    else:
        raise ValueError(f"{path} starts with {data[:4].hex()}, not with a pcap magic number")
    unit = 1e-9 if magic == _MAGIC_NANOSECONDS else 1e-6
    linktype = struct.unpack_from(f"{order}I", data, 20)[0]
    if linktype != _LINKTYPE_ETHERNET:
        raise ValueError(f"{path} has link type {linktype}; only Ethernet (1) is read")
    record = struct.Struct(f"{order}IIII")
    position = _FILE_HEADER_OCTETS
    while position < len(data):
        seconds, fraction, captured, original = record.unpack_from(data, position)
        position += _RECORD_HEADER_OCTETS
        if captured < original:
            raise ValueError(f"{path} holds {captured} of {original} octets of a packet; need all")
        yield seconds + fraction * unit, data[position : position + captured]
        position += captured
