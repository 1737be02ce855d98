"""The MPA connections of a capture file: startup frames, then the stream as TCP delivered it."""

from dataclasses import dataclass
from pathlib import Path

from stagecoach.sim.capture.file import CaptureError, read_packets
from stagecoach.sim.capture.packets import Address, Segment, tcp_segments
from stagecoach.sim.capture.reassembly import TcpConnection, reassemble
from stagecoach.sim.model.direction import Direction
from stagecoach.sim.model.errors import MpaError
from stagecoach.sim.model.startup import KEY_REQUEST, Negotiated, StartupFrame, negotiate

__all__ = ["Address", "Chunk", "Connection", "Direction", "read_connections"]


@dataclass(frozen=True)
class Chunk:
    """Bytes that TCP delivered at once, in order and once only; ``time`` in seconds."""

    direction: Direction
    octets: bytes
    time: float


@dataclass(frozen=True)
class Connection:
    """One MPA connection; ``chunks`` begin after the startup frames, in delivery order."""

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
        """All bytes of Full Operation of one direction."""
        return b"".join(chunk.octets for chunk in self.chunks if chunk.direction is direction)


def read_connections(path: str | Path) -> list[Connection]:
    """All complete MPA connections of a capture file, in order of their first packet.

    Raises :class:`CaptureError` when the file is none, or lacks bytes of a TCP segment.
    """
    segments = []
    for segment in tcp_segments(read_packets(path)):
        _check_whole(segment, path)
        segments.append(segment)
    connections = (_connection(connection) for connection in reassemble(segments))
    return [connection for connection in connections if connection is not None]


def _check_whole(segment: Segment, path: str | Path) -> None:
    if segment.missing:
        raise CaptureError(f"{path} lacks {segment.missing} bytes of packet {segment.packet}")


def _connection(stream: TcpConnection) -> Connection | None:
    # The key itself may have come in pieces.
    pieces = stream.pieces
    if not pieces or not KEY_REQUEST.startswith(pieces[0].octets[: len(KEY_REQUEST)]):
        return None
    initiator = pieces[0].source
    (responder,) = stream.ends - {initiator}
    # What is left of the startup phase of each direction; None when that phase is over.
    startup: dict[Direction, bytes | None] = dict.fromkeys(Direction, b"")
    frames: dict[Direction, StartupFrame] = {}
    chunks = []
    for piece in pieces:
        to_responder = piece.source == initiator
        direction = Direction.TO_RESPONDER if to_responder else Direction.TO_INITIATOR
        gathered = startup[direction]
        rest = piece.octets
        if gathered is not None:
            try:
                parsed = StartupFrame.parse(gathered + rest)
            except MpaError:
                return None
            if parsed is None:
                startup[direction] = gathered + rest
                continue
            frames[direction], end = parsed
            rest = (gathered + rest)[end:]
            startup[direction] = None
        if rest:
            chunks.append(Chunk(direction, rest, piece.time_ns / 1e9))
    if len(frames) < len(Direction):
        return None
    request, reply = frames[Direction.TO_RESPONDER], frames[Direction.TO_INITIATOR]
    return Connection(initiator, responder, request, reply, chunks)
