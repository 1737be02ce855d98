"""Decodes a capture file: every startup frame and every FPDU, with what is wrong with it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stagecoach.sim.capture.file import CaptureError, Packet, read_packets
from stagecoach.sim.capture.packets import Address, Segment, tcp_segments
from stagecoach.sim.capture.reassembly import Piece, TcpConnection, reassemble
from stagecoach.sim.capture.rpc_sends import NFS_RDMA_PORT, PRIVATE_DATA, RpcSends, SeenRpc
from stagecoach.sim.model import mpa
from stagecoach.sim.model.direction import Direction
from stagecoach.sim.model.errors import ErrorCode, MpaError, StreamError
from stagecoach.sim.model.mpa import Fpdu
from stagecoach.sim.model.observation import Observation, Problem
from stagecoach.sim.model.observer import Observer
from stagecoach.sim.model.startup import StartupFrame, reply_faults

# What the keys of both startup frames have in common (RFC 5044, 7.1.1).
_KEY_START = b"MPA ID Re"
_WRONG_CRC = ErrorCode(2, 0, 0x02)


@dataclass(frozen=True)
class Place:
    """Where something was seen: connection (from 1), direction, packet (from 1), time."""

    connection: int
    direction: Direction
    source: Address
    destination: Address
    packet: int
    time_ns: int


@dataclass(frozen=True)
class Startup:
    """A startup frame; ``frame`` is ``None`` if the bytes are none."""

    place: Place
    octets: bytes
    frame: StartupFrame | None
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class SeenFpdu:
    """An FPDU, complete with the packet of ``place``; ``rpc`` is what the Send is that it ends."""

    place: Place
    observation: Observation
    rpc: SeenRpc | None = None

    @property
    def problems(self) -> tuple[Problem, ...]:
        of_rpc = () if self.rpc is None else self.rpc.problems
        return self.observation.problems + of_rpc


@dataclass(frozen=True)
class Remark:
    """Why bytes are not decoded."""

    place: Place
    problems: tuple[Problem, ...]


Item = Startup | SeenFpdu | Remark


@dataclass(frozen=True)
class Decoded:
    """The items of a capture file in their order.

    ``start_ns`` is the time of the first packet, ``others`` the number of TCP connections that do
    not start with MPA. ``damage`` tells where the file could not be read any more.
    """

    items: list[Item]
    start_ns: int
    others: int
    damage: str | None


def decode_file(path: str | Path) -> Decoded:
    """Decode all MPA connections of a pcap or pcapng file.

    Raises :class:`CaptureError` when it is no capture, ``OSError`` when it cannot be read.
    """
    segments: list[Segment] = []
    damage = None
    start_ns = 0
    packets = 0

    def counted() -> Iterator[Packet]:
        nonlocal packets, start_ns
        for packet in read_packets(path):
            packets += 1
            start_ns = start_ns if packets > 1 else packet.time_ns
            yield packet

    try:
        segments.extend(tcp_segments(counted()))
    except CaptureError as error:
        if not packets:
            raise
        damage = str(error)
    items: list[Item] = []
    number = others = 0
    for connection in reassemble(segments):
        if not connection.pieces:
            continue
        if not _starts_with_mpa(connection):
            others += 1
            continue
        number += 1
        items += _Decoder(number, connection).items()
    items.sort(key=lambda item: item.place.packet)
    return Decoded(items, start_ns, others, damage)


def _starts_with_mpa(connection: TcpConnection) -> bool:
    start = b""
    for piece in connection.pieces:
        if piece.source == connection.pieces[0].source:
            start += piece.octets
        if len(start) >= len(_KEY_START):
            break
    return start.startswith(_KEY_START)


@dataclass
class _Stream:
    """One direction: bytes not decoded yet, and where they were seen."""

    buffer: bytearray = field(default_factory=bytearray)
    frame: StartupFrame | None = None
    # No more of it can be decoded; the reason was told.
    lost: bool = False


class _Decoder:
    """One connection."""

    def __init__(self, number: int, connection: TcpConnection) -> None:
        self._number = number
        self._connection = connection
        self._initiator = connection.pieces[0].source
        (self._responder,) = connection.ends - {self._initiator}
        self._streams = {direction: _Stream() for direction in Direction}
        self._observer: Observer | None = None
        self._rpc = RpcSends(expected=False)
        # Bytes after the Request, while the Reply is not there.
        self._early: list[Piece] = []

    def items(self) -> Iterator[Item]:
        for piece in self._connection.pieces:
            yield from self._piece(piece)
        yield from self._end()

    def _direction(self, piece: Piece) -> Direction:
        to_responder = piece.source == self._initiator
        return Direction.TO_RESPONDER if to_responder else Direction.TO_INITIATOR

    def _place(self, piece: Piece) -> Place:
        direction = self._direction(piece)
        ends = (self._initiator, self._responder)
        source, destination = ends if direction is Direction.TO_RESPONDER else ends[::-1]
        return Place(self._number, direction, source, destination, piece.packet, piece.time_ns)

    def _piece(self, piece: Piece) -> Iterator[Item]:
        stream = self._streams[self._direction(piece)]
        if stream.lost:
            return
        if stream.frame is None:
            stream.buffer += piece.octets
            yield from self._startup(stream, piece)
        elif self._observer is None:
            self._early.append(piece)
        else:
            stream.buffer += piece.octets
            yield from self._fpdus(stream, piece)

    def _startup(self, stream: _Stream, piece: Piece) -> Iterator[Item]:
        place = self._place(piece)
        try:
            parsed = StartupFrame.parse(bytes(stream.buffer))
        except MpaError as error:
            problem = Problem(error.detail, "RFC 5044, 7.1.1", error.error)
            yield Startup(place, bytes(stream.buffer), None, (problem,))
            self._lose_both()
            return
        if parsed is None:
            return
        stream.frame, end = parsed
        octets = bytes(stream.buffer[:end])
        rest = Piece(piece.source, bytes(stream.buffer[end:]), piece.packet, piece.time_ns)
        stream.buffer.clear()
        yield Startup(place, octets, stream.frame, tuple(self._startup_problems(place, stream)))
        is_reply = place.direction is Direction.TO_INITIATOR
        if stream.frame.reply != is_reply or stream.frame.reject:
            self._lose_both()
            return
        request = self._streams[Direction.TO_RESPONDER].frame
        if is_reply and request is not None:
            self._observer = Observer(request, stream.frame)
            data = (request.private_data, stream.frame.private_data)
            known = any(each.startswith(PRIVATE_DATA) for each in data)
            self._rpc = RpcSends(expected=known or self._responder[1] == NFS_RDMA_PORT)
            early_pieces, self._early = self._early, []
            for early in early_pieces:
                yield Remark(
                    self._place(early),
                    (Problem("bytes after the Request before the Reply", "RFC 5044, 7.1.2 (3)"),),
                )
                yield from self._piece(early)
        if rest.octets:
            yield from self._piece(rest)

    def _startup_problems(self, place: Place, stream: _Stream) -> Iterator[Problem]:
        frame = stream.frame
        assert frame is not None
        if place.direction is Direction.TO_RESPONDER:
            if frame.reply:
                yield Problem("a Reply Frame comes first", "RFC 5044, 7.1.2 (1)")
            return
        if not frame.reply:
            yield Problem("a Request Frame answers a Request Frame", "RFC 5044, 7.1.2 (8)")
            return
        request = self._streams[Direction.TO_RESPONDER].frame
        if request is None:
            yield Problem("a Reply Frame without a Request Frame", "RFC 5044, 7.1.2 (2)")
            return
        for fault in reply_faults(request, frame):
            source, _, detail = fault.partition(": ")
            yield Problem(detail, source)

    def _fpdus(self, stream: _Stream, piece: Piece) -> Iterator[Item]:
        assert self._observer is not None
        place = self._place(piece)
        octets = memoryview(bytes(stream.buffer))
        start = 0
        while not stream.lost:
            taken = self._fpdu(octets[start:], place.direction)
            if isinstance(taken, StreamError):
                stream.lost = True
                problem = Problem(taken.detail, taken.source, taken.error)
                yield Remark(place, (problem, _NOT_FOLLOWED))
            elif taken is None:
                break
            else:
                start += len(taken.octets)
                observation = self._observer.observe(place.direction, taken)
                yield SeenFpdu(place, observation, self._rpc.observe(observation))
                if _is_nonsense(observation):
                    stream.lost = True
                    yield Remark(place, (_NOT_FOLLOWED,))
        del stream.buffer[:start]

    def _fpdu(self, octets: memoryview, direction: Direction) -> Fpdu | StreamError | None:
        """The FPDU at the start, ``None`` if it is not complete."""
        assert self._observer is not None
        markers = self._observer.markers(direction)
        position = self._observer.position(direction)
        try:
            needed = mpa.needed_octets(octets, markers=markers, position=position)
            if len(octets) < needed:
                return None
        except StreamError as error:
            return error
        return mpa.parse_fpdu(bytes(octets[:needed]), markers=markers, position=position)

    def _end(self) -> Iterator[Item]:
        """What is left over."""
        last = self._connection.pieces[-1]
        for direction, source in (
            (Direction.TO_RESPONDER, self._initiator),
            (Direction.TO_INITIATOR, self._responder),
        ):
            stream = self._streams[direction]
            half = self._connection.half(source)
            if stream.lost:
                continue
            place = self._place(Piece(source, b"", last.packet, last.time_ns))
            if half.gap or (half.missing and stream.buffer):
                problem = Problem(
                    f"{half.gap or half.missing} bytes are missing in the capture; what comes "
                    "after them is not decoded",
                    "",
                )
                yield Remark(place, (problem,))
            elif direction is Direction.TO_RESPONDER and self._early:
                count = sum(len(early.octets) for early in self._early)
                problem = Problem(f"{count} bytes after the Request, and no Reply", "")
                yield Remark(place, (problem,))
            elif stream.buffer:
                what = "a startup frame" if stream.frame is None else "an FPDU"
                problem = Problem(
                    f"the stream ends with {len(stream.buffer)} bytes of {what}",
                    "RFC 5044, 8 (1)",
                )
                yield Remark(place, (problem,))

    def _lose_both(self) -> None:
        for stream in self._streams.values():
            stream.lost = True


_NOT_FOLLOWED = Problem("the FPDUs after it cannot be found; they are not decoded", "RFC 5044, 6")


def _is_nonsense(observation: Observation) -> bool:
    """Whether a wrong CRC seems to come from a wrong ULPDU_Length: no header is there either."""
    if not any(problem.error == _WRONG_CRC for problem in observation.problems):
        return False
    header = observation.header
    return header is None or header.version != 1 or header.rsvd_ulp >> 6 != 1
