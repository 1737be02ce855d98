"""RPC messages that cross as a chunk: a long call by RDMA Read, a long reply by RDMA Write."""

from collections import deque
from collections.abc import Callable

from stagecoach.sim.model.ddp import TaggedHeader
from stagecoach.sim.model.direction import Direction
from stagecoach.sim.model.observation import Observation
from stagecoach.sim.model.rdmap import Opcode, ReadRequest
from stagecoach.sim.model.rpcrdma import Segment

START_OCTETS = 512
"""Of a message that are kept: its RPC header has less, verifiers 400 octets (RFC 5531, 8.2)."""


class Start:
    """The first bytes of a message in a chunk; they come in any order.

    Parameters
    ----------
    segments: of the chunk.
    """

    def __init__(self, segments: tuple[Segment, ...]):
        self._segments = segments
        self._pieces: dict[int, bytes] = {}

    def place(self, handle: int, offset: int, octets: bytes) -> bool:
        """Takes bytes at an offset of registered memory, if they are of the chunk."""
        start = 0
        for segment in self._segments:
            at = offset - segment.offset
            if handle == segment.handle and 0 <= at < segment.length:
                if start + at < START_OCTETS:
                    self._pieces[start + at] = octets[: segment.length - at]
                return True
            start += segment.length
        return False

    def octets(self, limit: int = START_OCTETS) -> bytes:
        """What is known without a gap, at most `limit` bytes."""
        found = b""
        for at, octets in sorted(self._pieces.items()):
            if at > len(found):
                break
            found += octets[len(found) - at :]
        return found[: min(limit, START_OCTETS)]

    @property
    def complete(self) -> bool:
        """Whether all is known that is kept."""
        whole = sum(segment.length for segment in self._segments)
        return len(self.octets()) == min(whole, START_OCTETS)


class ChunkMessages:
    """The messages in chunks of a connection."""

    def __init__(self) -> None:
        self._reads: dict[Direction, deque[ReadRequest]] = {each: deque() for each in Direction}
        self._fetched: list[tuple[Direction, Start, Callable[[bytes], None]]] = []
        self._written: list[tuple[Direction, Start]] = []

    def fetch(
        self, direction: Direction, segments: tuple[Segment, ...], tell: Callable[[bytes], None]
    ) -> None:
        """Follows a message out of the chunk at position zero of a Send in this direction.

        `tell` is called with its start when that has come.
        """
        self._fetched.append((direction, Start(segments), tell))

    def write(self, direction: Direction, segments: tuple[Segment, ...]) -> Start:
        """Follows what is written in this direction into a chunk, until `forget`."""
        start = Start(segments)
        self._written.append((direction, start))
        return start

    def forget(self, start: Start) -> None:
        """The chunk is not written any more."""
        self._written = [each for each in self._written if each[1] is not start]

    def observe(self, seen: Observation) -> None:
        """Takes what an FPDU that is not dropped carries of the chunks."""
        if seen.read_request is not None:
            self._reads[seen.direction].append(seen.read_request)
        if not isinstance(seen.header, TaggedHeader):
            return
        stag, offset = seen.header.stag, seen.header.tagged_offset
        if seen.opcode == Opcode.RDMA_WRITE:
            for direction, start in reversed(self._written):
                if direction is seen.direction and start.place(stag, offset, seen.payload):
                    return
        elif seen.opcode == Opcode.RDMA_READ_RESPONSE:
            self._response(seen, stag, offset)

    def _response(self, seen: Observation, stag: int, offset: int) -> None:
        """Responses come in the order of their requests (RFC 5040, 5.5)."""
        reads = self._reads[seen.direction.opposite]
        while reads and not _answers(reads[0], stag, offset):
            reads.popleft()
        if not reads:
            return
        read = reads.popleft() if seen.header is not None and seen.header.last else reads[0]
        place = offset - read.sink_tagged_offset + read.source_tagged_offset
        for each in reversed(self._fetched):
            direction, start, tell = each
            if direction is seen.direction and start.place(read.source_stag, place, seen.payload):
                if start.complete:
                    self._fetched.remove(each)
                    tell(start.octets())
                return


def _answers(read: ReadRequest, stag: int, offset: int) -> bool:
    at = offset - read.sink_tagged_offset
    return not read.size or (read.sink_stag == stag and 0 <= at < read.size)
