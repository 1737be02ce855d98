"""Puts TCP segments in order: what was sent again or overtook others is delivered once."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from stagecoach.sim.capture.packets import FLAG_ACK, FLAG_FIN, FLAG_RST, FLAG_SYN, Address, Segment

_SEQUENCE_SPAN = 2**32


@dataclass(frozen=True)
class Piece:
    """Bytes that TCP delivered in order; ``packet`` is the one with which it could do so."""

    source: Address
    octets: bytes
    packet: int
    time_ns: int


@dataclass
class HalfStream:
    """One direction of a connection."""

    # The sequence number of the SYN, and of the next byte.
    initial: int | None = None
    expected: int | None = None
    # Bytes of its segments that were not captured.
    missing: int = 0
    started: bool = False
    ended: bool = False
    waiting: list[Segment] = field(default_factory=list)

    def add(self, segment: Segment) -> Iterator[Piece]:
        """Takes a segment, gives what can be delivered now."""
        if segment.flags & (FLAG_FIN | FLAG_RST):
            self.ended = True
        if segment.flags & FLAG_SYN:
            if self.initial is None:
                self.initial = segment.sequence
                self.expected = (segment.sequence + 1) % _SEQUENCE_SPAN
            return
        if self.expected is None:
            # The capture began after the handshake: this direction starts here.
            self.expected = segment.sequence
        self.missing += segment.missing
        if not segment.payload:
            return
        self.waiting.append(segment)
        progress = True
        while progress:
            progress = False
            for candidate in list(self.waiting):
                ahead = self._ahead(candidate)
                if ahead > 0:
                    continue
                self.waiting.remove(candidate)
                fresh = candidate.payload[-ahead:]
                if fresh:
                    self.expected = (self.expected + len(fresh)) % _SEQUENCE_SPAN
                    self.started = progress = True
                    yield Piece(segment.source, fresh, segment.packet, segment.time_ns)

    @property
    def gap(self) -> int:
        """Bytes missing before those that wait; 0 if none wait."""
        return min((self._ahead(segment) for segment in self.waiting), default=0)

    def _ahead(self, segment: Segment) -> int:
        """How far a segment starts behind (negative) or beyond what is expected."""
        assert self.expected is not None
        return (segment.sequence - self.expected + 2**31) % _SEQUENCE_SPAN - 2**31


@dataclass
class TcpConnection:
    """Both directions of a connection, in the order of the capture."""

    ends: frozenset[Address]
    halves: dict[Address, HalfStream] = field(default_factory=dict)
    pieces: list[Piece] = field(default_factory=list)

    def half(self, source: Address) -> HalfStream:
        """The direction which ``source`` sends."""
        return self.halves.setdefault(source, HalfStream())


def reassemble(segments: Iterable[Segment]) -> list[TcpConnection]:
    """The connections of a capture, in the order of their first packets.

    A handshake between the same addresses and ports begins another connection when the one before
    had carried bytes or was closed.
    """
    connections: list[TcpConnection] = []
    current: dict[frozenset[Address], TcpConnection] = {}
    for segment in segments:
        ends = frozenset((segment.source, segment.destination))
        connection = current.get(ends)
        if connection is None or _is_another(connection, segment):
            connection = current[ends] = TcpConnection(ends)
            connections.append(connection)
        connection.pieces += connection.half(segment.source).add(segment)
    return connections


def _is_another(connection: TcpConnection, segment: Segment) -> bool:
    if segment.flags & (FLAG_SYN | FLAG_ACK) != FLAG_SYN:
        return False
    if connection.half(segment.source).initial == segment.sequence:
        # The same SYN, sent again.
        return False
    return any(half.started or half.ended for half in connection.halves.values())
