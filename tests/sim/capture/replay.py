"""What an end must have set up so that it can play its part in a captured connection."""

from collections import deque
from dataclasses import dataclass, field

from stagecoach.sim.capture.connections import Connection, Direction
from stagecoach.sim.model import ddp, mpa, rdmap
from stagecoach.sim.model.ddp import TaggedHeader
from stagecoach.sim.model.memory import Rights
from stagecoach.sim.model.rdmap import Opcode, ReadRequest


@dataclass
class Window:
    """The part of a registered buffer that the capture touches; ``base`` is its first TO."""

    stag: int
    base: int
    length: int
    rights: Rights

    def covering(self, tagged_offset: int, length: int, right: Rights) -> "Window":
        """This window made as large as needed for another access."""
        base = min(self.base, tagged_offset)
        end = max(self.base + self.length, tagged_offset + length)
        return Window(self.stag, base, end - base, self.rights | right)


@dataclass(frozen=True)
class SetMemory:
    """The ULP of this end had written these octets, because the peer is going to read them."""

    stag: int
    tagged_offset: int
    octets: bytes


@dataclass(frozen=True)
class PostRead:
    """This end posted an RDMA Read; sink and source are in the request."""

    request: ReadRequest


@dataclass(frozen=True)
class Deliver:
    """TCP delivered these octets."""

    octets: bytes


Step = SetMemory | PostRead | Deliver


@dataclass
class Replay:
    """The part of one end.

    Register ``windows`` (all zero at first), post a receive of each length in ``receives``, then
    do the ``steps`` in order. Afterwards ``sends`` has arrived, every window holds ``memory``, and
    the end has sent ``read_responses`` (the DDP Segments of the capture).
    """

    windows: dict[int, Window] = field(default_factory=dict)
    receives: list[int] = field(default_factory=list)
    sends: list[bytes] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    memory: dict[int, bytes] = field(default_factory=dict)
    read_responses: list[bytes] = field(default_factory=list)


Segments = list[tuple[Opcode, ddp.Header, bytes, bytes]]


def replay_of(connection: Connection, inbound: Direction) -> Replay:
    """The part of the end which receives the octets that went in the direction ``inbound``."""
    replay = Replay()
    by_chunk = _segments_by_chunk(connection)
    outgoing = [
        segment
        for chunk, segments in zip(connection.chunks, by_chunk, strict=True)
        if chunk.direction is not inbound
        for segment in segments
    ]
    replay.read_responses = [
        segment for opcode, _, _, segment in outgoing if opcode is Opcode.RDMA_READ_RESPONSE
    ]
    answers = _read_response_messages(outgoing)
    placed: list[tuple[int, int, bytes]] = []
    send = bytearray()
    for chunk, segments in zip(connection.chunks, by_chunk, strict=True):
        if chunk.direction is not inbound:
            for opcode, _, payload, _ in segments:
                if opcode is Opcode.RDMA_READ_REQUEST:
                    request = ReadRequest.decode(payload)
                    replay.steps.append(PostRead(request))
                    _touch(
                        replay,
                        request.sink_stag,
                        request.sink_tagged_offset,
                        request.size,
                        Rights.LOCAL_WRITE,
                    )
            continue
        for opcode, header, payload, _ in segments:
            if isinstance(header, TaggedHeader):
                # The sink of a Read was registered with its request.
                if opcode is Opcode.RDMA_WRITE:
                    right = Rights.REMOTE_WRITE
                    _touch(replay, header.stag, header.tagged_offset, len(payload), right)
                placed.append((header.stag, header.tagged_offset, payload))
            elif opcode is Opcode.RDMA_READ_REQUEST:
                request = ReadRequest.decode(payload)
                source = (request.source_stag, request.source_tagged_offset)
                _touch(replay, *source, request.size, Rights.REMOTE_READ)
                octets = answers.popleft()
                replay.steps.append(SetMemory(*source, octets))
                placed.append((*source, octets))
            elif opcode in rdmap.SEND_OPCODES:
                send += payload
                if header.last:
                    replay.receives.append(len(send))
                    replay.sends.append(bytes(send))
                    send.clear()
        replay.steps.append(Deliver(chunk.octets))
    replay.memory = _memory_after(replay.windows, placed)
    return replay


def _segments_by_chunk(connection: Connection) -> list[Segments]:
    """The DDP Segments that each chunk completed."""
    deframers = {
        direction: mpa.Deframer(connection.sends_markers(direction), connection.negotiated.crc)
        for direction in Direction
    }
    by_chunk: list[Segments] = []
    for chunk in connection.chunks:
        segments: Segments = []
        for segment in deframers[chunk.direction].feed(chunk.octets):
            header, payload = ddp.decode(segment)
            opcode = Opcode(rdmap.decode_control(header.rsvd_ulp).opcode)
            segments.append((opcode, header, payload, segment))
        by_chunk.append(segments)
    return by_chunk


def _read_response_messages(segments: Segments) -> deque[bytes]:
    messages: deque[bytes] = deque()
    message = bytearray()
    for opcode, header, payload, _ in segments:
        if opcode is Opcode.RDMA_READ_RESPONSE:
            message += payload
            if header.last:
                messages.append(bytes(message))
                message.clear()
    return messages


def _touch(replay: Replay, stag: int, tagged_offset: int, length: int, right: Rights) -> None:
    if length:
        empty = Window(stag, tagged_offset, 0, Rights.NONE)
        window = replay.windows.get(stag, empty)
        replay.windows[stag] = window.covering(tagged_offset, length, right)


def _memory_after(
    windows: dict[int, Window], placed: list[tuple[int, int, bytes]]
) -> dict[int, bytes]:
    memory = {stag: bytearray(window.length) for stag, window in windows.items()}
    for stag, tagged_offset, octets in placed:
        if octets:
            start = tagged_offset - windows[stag].base
            memory[stag][start : start + len(octets)] = octets
    return {stag: bytes(octets) for stag, octets in memory.items()}
