"""What the ULP posts to an endpoint: receives, and the work of the send queue (RFC 5040, 5)."""

from abc import ABC, abstractmethod
from collections import deque

from sim.model.rdmap import Opcode, ReadRequest
from sim.model.sink import DataSink
from sim.model.work import Buffer, Completion, Operation, OutstandingRead, Receive, Status, Work


class Posting(ABC):
    """The posting half of an endpoint; what becomes of the work is the other one."""

    _sink: DataSink
    # Work requests in posting order until reported.
    _work: deque[Work]

    @property
    @abstractmethod
    def _stopped(self) -> bool:
        """Whether the stream has ended: what is posted now is flushed."""

    @abstractmethod
    def _post(self, work: Work) -> None:
        """Append to the send queue."""

    @abstractmethod
    def _complete(self, completion: Completion) -> None:
        """Hand a completion to the ULP."""

    def post_receive(self, buffer: bytearray | memoryview | int, work_id: object = None) -> None:
        """Post an Untagged Buffer for one Send; an integer asks for a new buffer of that size."""
        octets = bytearray(buffer) if isinstance(buffer, int) else buffer
        if self._stopped:
            self._complete(Completion(Operation.RECEIVE, work_id, Status.FLUSHED))
            return
        self._sink.sends.receives.append(Receive(memoryview(octets).cast("B"), work_id))

    def post_send(
        self,
        payload: Buffer,
        work_id: object = None,
        *,
        invalidate_stag: int | None = None,
        solicited: bool = False,
    ) -> None:
        """Post a Send of one of the four kinds (RFC 5040, 5.3)."""
        if invalidate_stag is None:
            opcode = Opcode.SEND_WITH_SE if solicited else Opcode.SEND
        elif solicited:
            opcode = Opcode.SEND_WITH_SE_AND_INVALIDATE
        else:
            opcode = Opcode.SEND_WITH_INVALIDATE
        self._post(Work(Operation.SEND, work_id, payload, opcode, invalidate_stag or 0))

    def rdma_write(
        self,
        payload: Buffer,
        remote_stag: int,
        remote_offset: int,
        work_id: object = None,
    ) -> None:
        """Post an RDMA Write of ``payload`` to the peer's STag and TO."""
        self._post(
            Work(
                Operation.RDMA_WRITE,
                work_id,
                payload,
                Opcode.RDMA_WRITE,
                remote_stag,
                remote_offset,
            )
        )

    def rdma_read(
        self,
        local_stag: int,
        local_offset: int,
        length: int,
        remote_stag: int,
        remote_offset: int,
        work_id: object = None,
    ) -> None:
        """Post an RDMA Read into local STag and TO; the local range is checked at once."""
        if length:
            self._sink.tagged.check_sink(local_stag, local_offset, length)
        request = ReadRequest(local_stag, local_offset, length, remote_stag, remote_offset)
        self._post(Work(Operation.RDMA_READ, work_id, request=request))

    def expect_read(self, request: ReadRequest, work_id: object = None) -> None:
        """Await the Read Response to a Read Request that was sent by other means."""
        work = Work(Operation.RDMA_READ, work_id, request=request)
        self._work.append(work)
        self._sink.tagged.reads.append(OutstandingRead(request, work))
