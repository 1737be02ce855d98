"""Tagged Buffers at the Data Sink: Writes and Read Responses (RFC 5041, 5.2; RFC 5040, 5)."""

from collections import deque
from collections.abc import Callable

from stagecoach.sim.model import checks, effects
from stagecoach.sim.model.ddp import TaggedHeader
from stagecoach.sim.model.effects import Recorder
from stagecoach.sim.model.memory import (
    TAGGED_OFFSET_SPAN,
    Accessor,
    MemoryRegion,
    MemoryTable,
    Rights,
)
from stagecoach.sim.model.work import Completion, Operation, OutstandingRead


class TaggedBuffers:
    """Places Writes where the peer says, Read Responses where this end asked for them.

    STag and TO of an empty segment are checked by nobody (RFC 5041, 5.2). The segments of a Write
    may have Sends and Read Responses between them: each is placed on its own. ``next_place`` gives
    the place of what is to be answered next, RDMA Read or atomic.
    """

    def __init__(
        self,
        memory: MemoryTable,
        accessor: Accessor,
        record: Recorder,
        next_place: Callable[[], int | None],
    ) -> None:
        # Read Requests sent and not yet answered, the oldest first.
        self.reads: deque[OutstandingRead] = deque()
        self._memory = memory
        self._accessor = accessor
        self._record = record
        self._next_place = next_place

    def write(self, header: TaggedHeader, payload: bytes) -> None:
        """A segment of an RDMA Write."""
        if payload:
            region = self._check(header, payload, Rights.REMOTE_WRITE)
            self._place(region, header, payload)

    def read_response(self, header: TaggedHeader, payload: bytes) -> None:
        """A segment of a Read Response, which has to continue the oldest outstanding read.

        The Data Sink needs no remote write right, only the local one: the peer got no right to
        write there but for this response.
        """
        if not self.reads or self.reads[0].place != self._next_place():
            raise checks.READ_OUTSTANDING.failed(
                "Read Response, and the oldest outstanding request is not an RDMA Read"
            )
        read = self.reads[0]
        self._check_continues(read, header, len(payload))
        if payload:
            region = self._check(header, payload, Rights.LOCAL_WRITE)
            self._place(region, header, payload)
        read.received += len(payload)
        if header.last:
            self.reads.popleft()
            read.work.completion = Completion(
                Operation.RDMA_READ, read.work.work_id, length=read.request.size
            )

    def check_sink(self, stag: int, tagged_offset: int, length: int) -> MemoryRegion:
        """The region into which this end may read."""
        return self._memory.check(
            stag,
            tagged_offset,
            length,
            right=Rights.LOCAL_WRITE,
            accessor=self._accessor,
            checks=checks.TARGET,
        )

    def _check(self, header: TaggedHeader, payload: bytes, right: Rights) -> MemoryRegion:
        return self._memory.check(
            header.stag,
            header.tagged_offset,
            len(payload),
            right=right,
            accessor=self._accessor,
            checks=checks.TARGET,
        )

    def _place(self, region: MemoryRegion, header: TaggedHeader, payload: bytes) -> None:
        self._record(effects.TaggedPlacement(header.stag, header.tagged_offset, payload))
        region.write(header.tagged_offset, payload)

    @staticmethod
    def _check_continues(read: OutstandingRead, header: TaggedHeader, length: int) -> None:
        request = read.request
        if length:
            if header.stag != request.sink_stag:
                raise checks.RESPONSE_STAG.failed(
                    f"Read Response for STag {header.stag:#010x}; {request.sink_stag:#010x} "
                    "was asked for"
                )
            offset = (header.tagged_offset - request.sink_tagged_offset) % TAGGED_OFFSET_SPAN
            if offset + length > request.size:
                raise checks.RESPONSE_OFFSET.failed(
                    f"Read Response of {length} bytes at TO {header.tagged_offset:#x}; "
                    f"{request.size} from {request.sink_tagged_offset:#x} on were asked for"
                )
            if offset != read.received:
                expected = (request.sink_tagged_offset + read.received) % TAGGED_OFFSET_SPAN
                raise checks.RESPONSE_NEXT.failed(
                    f"Read Response at TO {header.tagged_offset:#x}; {expected:#x} is next, and "
                    "no other is taken"
                )
        total = read.received + length
        if header.last and total != request.size:
            raise checks.RESPONSE_LENGTH.failed(
                f"Read Response of {total} bytes, L {int(header.last)}; {request.size} were "
                "asked for"
            )
