"""RDMA Messages on their way out: cut into segments as they are sent (RFC 5041, 5.2)."""

from abc import ABC, abstractmethod

from stagecoach.sim.model import ddp, rdmap
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.errors import ErrorCode
from stagecoach.sim.model.rdmap import Opcode, Terminate
from stagecoach.sim.model.terminate import terminate_for_cut_read
from stagecoach.sim.model.untagged import InboundRead, ReadRequestQueue
from stagecoach.sim.model.work import Buffer, Work


class Message:
    """A message of this end; ``segment`` gives one ULPDU at a time, each by the MULPDU of then.

    ``header`` is that of the first segment, ``work`` what it completes when it was sent.
    """

    def __init__(
        self,
        opcode: Opcode,
        header: TaggedHeader | UntaggedHeader,
        payload: Buffer = b"",
        work: Work | None = None,
    ) -> None:
        self.opcode = opcode
        self.header = header
        self.work = work
        self.sent = 0
        self.done = False
        self._payload = memoryview(payload).cast("B")

    @property
    def length(self) -> int:
        """Octets of payload."""
        return len(self._payload)

    def segment(self, mulpdu: int) -> bytes:
        """The next ULPDU; an empty message is one without payload."""
        count = min(mulpdu - self._header_octets, self.length - self.sent)
        if count < 1 and self.length:
            raise ValueError(f"MULPDU {mulpdu} has no room for payload")
        payload = self.read(count)
        self.done = self.sent + count == self.length
        header = self._header_at(self.sent, self.done)
        self.sent += count
        return header.encode() + payload

    def read(self, count: int) -> bytes:
        """The next octets of the payload."""
        return bytes(self._payload[self.sent : self.sent + count])

    @property
    def _header_octets(self) -> int:
        if isinstance(self.header, TaggedHeader):
            return ddp.TAGGED_HEADER_OCTETS
        return ddp.UNTAGGED_HEADER_OCTETS

    def _header_at(self, offset: int, last: bool) -> TaggedHeader | UntaggedHeader:
        control = rdmap.control_octet(self.opcode)
        header = self.header
        if isinstance(header, TaggedHeader):
            tagged_offset = (header.tagged_offset + offset) % 2**64
            return TaggedHeader(header.stag, tagged_offset, last, control)
        return UntaggedHeader(header.qn, header.msn, offset, last, control, header.rsvd_ulp_word)


class Answer(Message, ABC):
    """The answer to a request of the peer; ``read`` raises what fails when it is made."""

    @abstractmethod
    def terminate(self, error: ErrorCode) -> Terminate:
        """The Terminate for such a failure."""


class ReadResponse(Answer):
    """The answer to a Read Request.

    Its source is checked again with every segment: an STag that is invalid now is not read any
    more, which cuts the answer (RFC 5040, 8.1.1 (4) and (5)). ``read`` raises what failed.
    """

    def __init__(self, inbound: InboundRead, queue: ReadRequestQueue) -> None:
        request = inbound.request
        header = TaggedHeader(request.sink_stag, request.sink_tagged_offset)
        super().__init__(Opcode.RDMA_READ_RESPONSE, header)
        self.inbound = inbound
        self._queue = queue

    @property
    def length(self) -> int:
        return self.inbound.request.size

    def read(self, count: int) -> bytes:
        rest = self.inbound.request.advanced(self.sent)
        region = self._queue.check_source(rest)
        return region.read(rest.source_tagged_offset, count) if region is not None else b""

    def terminate(self, error: ErrorCode) -> Terminate:
        return terminate_for_cut_read(error, self.inbound.segment, self.sent)
