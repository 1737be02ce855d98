"""Writes TCP conversations of MPA as pcapng: Ethernet, IPv4, TCP, one FPDU per segment."""

import contextlib
import ipaddress
import struct
from collections.abc import Iterator
from io import BufferedWriter
from pathlib import Path
from types import TracebackType
from typing import Self

from stagecoach.sim.capture.connections import Address, Direction
from stagecoach.sim.capture.packets import ETHERTYPE_IPV4
from stagecoach.sim.model import mpa
from stagecoach.sim.model.startup import StartupFrame, negotiate

# pcapng: draft-ietf-opsawg-pcapng, sections 4.1 to 4.3.
_BLOCK_SECTION = 0x0A0D0D0A
_BLOCK_INTERFACE = 1
_BLOCK_PACKET = 6
_BYTE_ORDER_MAGIC = 0x1A2B3C4D
_LINKTYPE_ETHERNET = 1
_OPTION_END = 0
_OPTION_PACKET_FLAGS = 2
_OPTION_APPLICATION = 4
_OPTION_RESOLUTION = 9
_NANOSECONDS = 9
_INBOUND, _OUTBOUND = 1, 2

_IP_OCTETS = 20
_TCP_OCTETS = 20
_IP_VERSION_AND_LENGTH = 0x45
_IP_DO_NOT_FRAGMENT = 0x4000
_IP_TTL = 64
_PROTOCOL_TCP = 6
# The IPv4 total length has 16 bits.
_LARGEST_PAYLOAD = 0xFFFF - _IP_OCTETS - _TCP_OCTETS
_FIN, _SYN, _PSH, _ACK = 0x01, 0x02, 0x08, 0x10
_WINDOW = 0xFFFF
# MSS of the largest segment, then a window scale of 14 (RFC 7323) after one NOP.
_SYN_OPTIONS = struct.pack(">BBHBBBB", 2, 4, _LARGEST_PAYLOAD, 1, 3, 3, 14)
_SEQUENCE_SPAN = 2**32
# A receiver acknowledges at least every second segment (RFC 9293, 3.8.6.3).
_SEGMENTS_PER_ACK = 2


def internet_checksum(octets: bytes) -> int:
    """The one's complement checksum of RFC 1071.

    Folding carries back into 16 bits is the remainder modulo 2^16 - 1, which Python takes from one
    long integer faster than from a loop over words.
    """
    value = int.from_bytes(octets, "big") << (8 * (len(octets) % 2))
    return (value % 0xFFFF or (0xFFFF if value else 0)) ^ 0xFFFF


def split_fpdus(
    octets: bytes | bytearray, *, markers: bool = False, position: int = 0
) -> tuple[list[bytes], bytes]:
    """The whole FPDUs at the start of ``bytes`` and what is left after them.

    ``position`` is the number of bytes of Full Operation before; it matters with Markers only.
    A Marker directly before an FPDU is part of it.
    """
    fpdus = []
    start = 0
    while True:
        leading = markers and (position + start) % mpa.MARKER_INTERVAL == 0
        field = start + (mpa.MARKER_OCTETS if leading else 0)
        if len(octets) < field + mpa.LENGTH_OCTETS:
            break
        length = int.from_bytes(octets[field : field + mpa.LENGTH_OCTETS], "big")
        end = start + mpa.fpdu_length(length, markers=markers, position=position + start)
        if len(octets) < end:
            break
        fpdus.append(bytes(octets[start:end]))
        start = end
    return fpdus, bytes(octets[start:])


class PcapngWriter:
    """A pcapng file with one Ethernet interface and nanosecond timestamps.

    Raises `OSError` with the name of the file, also later: what is written waits in a buffer.
    """

    def __init__(self, path: str | Path, application: str = "Stagecoach") -> None:
        self._path = str(path)
        self._file: BufferedWriter = open(path, "wb")  # noqa: SIM115
        name = application.encode()
        section = struct.pack("<IHHq", _BYTE_ORDER_MAGIC, 1, 0, -1)
        section += _option(_OPTION_APPLICATION, name) + _option(_OPTION_END, b"")
        self._block(_BLOCK_SECTION, section)
        interface = struct.pack("<HHI", _LINKTYPE_ETHERNET, 0, 0)
        interface += _option(_OPTION_RESOLUTION, bytes([_NANOSECONDS])) + _option(_OPTION_END, b"")
        self._block(_BLOCK_INTERFACE, interface)

    def packet(self, octets: bytes, time: float) -> None:
        """One Ethernet frame at ``time`` in seconds."""
        self._packet(octets, round(time * 1e9), b"")

    def frame(self, head: bytes, time_ns: int, *, inbound: bool, octets: int | None = None) -> None:
        """One Ethernet frame, with its direction, at ``time_ns`` in nanoseconds.

        ``head`` is all of it, or only its start if it had ``bytes``.
        """
        flags = struct.pack("<I", _INBOUND if inbound else _OUTBOUND)
        options = _option(_OPTION_PACKET_FLAGS, flags) + _option(_OPTION_END, b"")
        self._packet(head, time_ns, options, octets)

    def _packet(self, head: bytes, time_ns: int, options: bytes, octets: int | None = None) -> None:
        original = len(head) if octets is None else octets
        header = struct.pack("<IIIII", 0, time_ns >> 32, time_ns & 0xFFFFFFFF, len(head), original)
        self._block(_BLOCK_PACKET, header + head + bytes(-len(head) % 4) + options)

    def close(self) -> None:
        with self._named():
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _block(self, kind: int, body: bytes) -> None:
        length = struct.pack("<I", len(body) + 12)
        with self._named():
            self._file.write(struct.pack("<I", kind) + length + body + length)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """An error of a file that is open does not name it."""
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._path) from None


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


class _End:
    """One end of a conversation: its addresses and what it has sent."""

    def __init__(self, address: Address, number: int) -> None:
        host, port = address
        self.mac = bytes([0x02, 0, 0, 0, 0, number])
        self.ip = ipaddress.IPv4Address(host).packed
        self.port = port
        # Any initial number would do; different ones per end make mistakes visible.
        self.sequence = number << 28
        self.identification = 0
        # Segments received and not yet acknowledged by this end.
        self.to_acknowledge = 0


class TcpConversation:
    """Turns what one connection sent and received into packets.

    ``add`` takes bytes in any pieces. They are written as one segment per startup frame and per
    FPDU, at the time of the piece that completed it; what the startup frames settle about Markers
    is followed. A stream which does not begin with a startup frame is written as it comes.
    The handshake is written with the first bytes, or by ``open``; ``close`` writes the FINs.
    """

    def __init__(
        self,
        writer: PcapngWriter,
        initiator: Address = ("10.0.0.1", 49152),
        responder: Address = ("10.0.0.2", 5044),
    ) -> None:
        self._writer = writer
        self._ends = {
            Direction.TO_RESPONDER: _End(initiator, 1),
            Direction.TO_INITIATOR: _End(responder, 2),
        }
        self._buffers = {direction: bytearray() for direction in Direction}
        self._positions = dict.fromkeys(Direction, 0)
        self._startup: dict[Direction, StartupFrame] = {}
        self._raw: set[Direction] = set()
        self._opened = False

    def open(self, time: float = 0.0) -> None:
        """SYN, SYN-ACK, ACK."""
        self._opened = True
        self._segment(Direction.TO_RESPONDER, time, _SYN, options=_SYN_OPTIONS)
        self._segment(Direction.TO_INITIATOR, time, _SYN | _ACK, options=_SYN_OPTIONS)
        self._segment(Direction.TO_RESPONDER, time, _ACK)

    def add(
        self, direction: Direction, octets: bytes | bytearray | memoryview, time: float
    ) -> None:
        """Bytes that went in ``direction`` at ``time`` (seconds)."""
        if not self._opened:
            self.open(time)
        self._buffers[direction] += octets
        for piece in self._pieces(direction):
            self._data(direction, piece, time)

    def close(self, time: float) -> None:
        """What is left of incomplete FPDUs, then FIN of both directions."""
        if not self._opened:
            return
        for direction in Direction:
            rest = bytes(self._buffers[direction])
            self._buffers[direction].clear()
            if rest:
                self._data(direction, rest, time)
        self._segment(Direction.TO_RESPONDER, time, _FIN | _ACK)
        self._segment(Direction.TO_INITIATOR, time, _FIN | _ACK)
        self._segment(Direction.TO_RESPONDER, time, _ACK)

    def _pieces(self, direction: Direction) -> list[bytes]:
        buffer = self._buffers[direction]
        if direction in self._raw:
            pieces = [bytes(buffer)]
            buffer.clear()
            return pieces
        pieces = []
        if direction not in self._startup:
            try:
                parsed = StartupFrame.parse(bytes(buffer))
            except mpa.MpaError:
                self._raw.add(direction)
                return self._pieces(direction)
            if parsed is None:
                return []
            self._startup[direction], end = parsed
            pieces.append(bytes(buffer[:end]))
            del buffer[:end]
        if not buffer:
            return pieces
        if len(self._startup) < len(Direction):
            # FPDUs before the other startup frame is known are against RFC 5044, 7.1.2.
            self._raw.add(direction)
            return pieces + self._pieces(direction)
        fpdus, rest = split_fpdus(
            buffer, markers=self._sends_markers(direction), position=self._positions[direction]
        )
        self._positions[direction] += len(buffer) - len(rest)
        buffer[:] = rest
        return pieces + fpdus

    def _sends_markers(self, direction: Direction) -> bool:
        settled = negotiate(
            self._startup[Direction.TO_RESPONDER], self._startup[Direction.TO_INITIATOR]
        )
        if direction is Direction.TO_RESPONDER:
            return settled.initiator_sends_markers
        return settled.responder_sends_markers

    def _data(self, direction: Direction, octets: bytes, time: float) -> None:
        for start in range(0, len(octets), _LARGEST_PAYLOAD):
            self._segment(direction, time, _PSH | _ACK, octets[start : start + _LARGEST_PAYLOAD])
            receiver = self._ends[_opposite(direction)]
            receiver.to_acknowledge += 1
            if receiver.to_acknowledge >= _SEGMENTS_PER_ACK:
                self._segment(_opposite(direction), time, _ACK)

    def _segment(
        self,
        direction: Direction,
        time: float,
        flags: int,
        payload: bytes = b"",
        options: bytes = b"",
    ) -> None:
        source, destination = self._ends[direction], self._ends[_opposite(direction)]
        acknowledgment = destination.sequence if flags & _ACK else 0
        offset = (_TCP_OCTETS + len(options)) // 4
        tcp = struct.pack(
            ">HHIIBBHHH",
            source.port,
            destination.port,
            source.sequence,
            acknowledgment,
            offset << 4,
            flags,
            _WINDOW,
            0,
            0,
        )
        tcp += options + payload
        pseudo = source.ip + destination.ip + struct.pack(">HH", _PROTOCOL_TCP, len(tcp))
        checksum = internet_checksum(pseudo + tcp).to_bytes(2, "big")
        ip = struct.pack(
            ">BBHHHBBH",
            _IP_VERSION_AND_LENGTH,
            0,
            _IP_OCTETS + len(tcp),
            source.identification,
            _IP_DO_NOT_FRAGMENT,
            _IP_TTL,
            _PROTOCOL_TCP,
            0,
        )
        ip += source.ip + destination.ip
        ip = ip[:10] + internet_checksum(ip).to_bytes(2, "big") + ip[12:]
        ethernet = destination.mac + source.mac + ETHERTYPE_IPV4.to_bytes(2, "big")
        self._writer.packet(b"".join((ethernet, ip, tcp[:16], checksum, tcp[18:])), time)
        # SYN and FIN take one sequence number each.
        taken = len(payload) + bool(flags & (_SYN | _FIN))
        source.sequence = (source.sequence + taken) % _SEQUENCE_SPAN
        source.identification = (source.identification + 1) % 2**16
        source.to_acknowledge = 0


def _opposite(direction: Direction) -> Direction:
    if direction is Direction.TO_RESPONDER:
        return Direction.TO_INITIATOR
    return Direction.TO_RESPONDER
