"""What MPA startup settled, by a capture: that a case without CRCs, say, had none on the wire."""

from dataclasses import dataclass
from pathlib import Path

from stagecoach.sim.capture.file import read_packets
from stagecoach.sim.capture.packets import Address, tcp_segments
from stagecoach.sim.capture.reassembly import TcpConnection, reassemble
from stagecoach.sim.model.mpa import MpaError
from stagecoach.sim.model.startup import StartupFrame, negotiate
from tools.interop.job import JobError


@dataclass(frozen=True)
class Settled:
    """What both ends of a connection do: its CRCs, the revision of MPA, and peer-to-peer mode."""

    crc: bool = True
    revision: int = 2
    peer_to_peer: bool = False


def settled(capture: Path) -> list[Settled]:
    """Of each connection that both ends wanted."""
    found = []
    for connection in reassemble(tcp_segments(read_packets(capture))):
        frames = [frame for end in connection.ends if (frame := _first_frame(connection, end))]
        requests = [frame for frame in frames if not frame.reply]
        replies = [frame for frame in frames if frame.reply and not frame.reject]
        if requests and replies:
            found.append(_settle(requests[0], replies[0]))
    return found


def _first_frame(connection: TcpConnection, end: Address) -> StartupFrame | None:
    """With which an end of a connection began, if it did with one."""
    octets = b""
    for piece in connection.pieces:
        if piece.source != end:
            continue
        octets += piece.octets
        try:
            parsed = StartupFrame.parse(octets)
        except MpaError:
            return None
        if parsed is not None:
            return parsed[0]
    return None


def _settle(request: StartupFrame, reply: StartupFrame) -> Settled:
    crc = negotiate(request, reply).crc
    asked = request.enhanced is not None and request.enhanced.peer_to_peer
    return Settled(crc, reply.revision, asked)


def check(capture: Path, expected: Settled, connections: int) -> None:
    """Raises `JobError` if the wire had not so many connections, each with what is expected."""
    found = settled(capture)
    if found != [expected] * connections:
        raise JobError(f"the wire had {found}; expected: {connections} times {expected}")
