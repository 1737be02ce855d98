"""What the ULP posts to an endpoint: receives, and the work of the send queue.

RFC 5040, 5; RFC 7306, 5 and 6.
"""

from abc import ABC, abstractmethod
from collections import deque

from stagecoach.sim.model.atomic_responses import OutstandingAtomic
from stagecoach.sim.model.atomics import (
    CMP_SWAP,
    FETCH_ADD,
    SWAP,
    WORD,
    AtomicOperation,
    AtomicRequest,
)
from stagecoach.sim.model.extensions import Extensions
from stagecoach.sim.model.immediate import IMMEDIATE_OCTETS
from stagecoach.sim.model.rdmap import Opcode, ReadRequest
from stagecoach.sim.model.sink import DataSink
from stagecoach.sim.model.work import (
    Buffer,
    Completion,
    Operation,
    OutstandingRead,
    Receive,
    Status,
    Work,
)


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

    # Extensions

    def fetch_add(
        self,
        remote_stag: int,
        remote_offset: int,
        add: int,
        work_id: object = None,
        *,
        mask: int = 0,
    ) -> None:
        """Post a FetchAdd; ``mask`` has a one at the most significant bit of every field."""
        self._post_atomic(FETCH_ADD, work_id, remote_stag, remote_offset, add, mask)

    def swap(
        self, remote_stag: int, remote_offset: int, value: int, work_id: object = None
    ) -> None:
        """Post a Swap, which a strict RFC 7306 does not have."""
        self._post_atomic(SWAP, work_id, remote_stag, remote_offset, value)

    def cmp_swap(
        self,
        remote_stag: int,
        remote_offset: int,
        compare: int,
        swap: int,
        work_id: object = None,
        *,
        compare_mask: int = WORD,
        swap_mask: int = WORD,
    ) -> None:
        """Post a CmpSwap: if the bits of ``compare_mask`` agree, those of ``swap_mask`` change."""
        target = (remote_stag, remote_offset)
        self._post_atomic(CMP_SWAP, work_id, *target, swap, swap_mask, compare, compare_mask)

    def post_immediate(
        self, immediate: bytes, work_id: object = None, *, solicited: bool = False
    ) -> None:
        """Post Immediate Data, 8 octets."""
        self._post(self._immediate(Operation.IMMEDIATE_DATA, immediate, work_id, solicited))

    def rdma_write_with_immediate(
        self,
        payload: Buffer,
        immediate: bytes,
        remote_stag: int,
        remote_offset: int,
        work_id: object = None,
        *,
        solicited: bool = False,
    ) -> None:
        """Post an RDMA Write and Immediate Data after it, with one completion.

        RFC 7306, 6: two messages are this operation of other RDMA transports.
        """
        last = self._immediate(Operation.RDMA_WRITE_WITH_IMMEDIATE, immediate, work_id, solicited)
        last.completes = Work(
            Operation.RDMA_WRITE,
            None,
            payload,
            Opcode.RDMA_WRITE,
            remote_stag,
            remote_offset,
            silent=True,
        )
        if not self._stopped:
            self._post(last.completes)
        self._post(last)

    def expect_atomic(self, request: AtomicRequest, work_id: object = None) -> None:
        """Await the Atomic Response to an Atomic Request that was sent by other means."""
        operation = _OPERATIONS[AtomicOperation(request.operation)]
        work = Work(operation, work_id, atomic=request)
        self._work.append(work)
        self._sink.atomic_responses.outstanding.append(OutstandingAtomic(request, work))

    def _post_atomic(
        self,
        operation: AtomicOperation,
        work_id: object,
        stag: int,
        tagged_offset: int,
        data: int,
        mask: int = WORD,
        compare: int = 0,
        compare_mask: int = WORD,
    ) -> None:
        if operation not in self._require_extensions().operations:
            raise ValueError(f"{operation.name} is not in RFC 7306; strict_rfc7306 is set")
        # Its identifier is known when it is sent.
        request = AtomicRequest(
            operation, 0, stag, tagged_offset, data, mask, compare, compare_mask
        )
        self._post(Work(_OPERATIONS[operation], work_id, atomic=request))

    def _immediate(
        self, operation: Operation, octets: bytes, work_id: object, solicited: bool
    ) -> Work:
        self._require_extensions()
        if len(octets) != IMMEDIATE_OCTETS:
            raise ValueError(
                f"Immediate Data of {len(octets)} bytes; {IMMEDIATE_OCTETS} are required"
            )
        opcode = Opcode.IMMEDIATE_DATA_WITH_SE if solicited else Opcode.IMMEDIATE_DATA
        return Work(operation, work_id, octets, opcode)

    def _require_extensions(self) -> Extensions:
        if self._sink.extensions is None:
            raise ValueError("the endpoint was made without extensions")
        return self._sink.extensions


_OPERATIONS = {
    FETCH_ADD: Operation.FETCH_ADD,
    SWAP: Operation.SWAP,
    CMP_SWAP: Operation.CMP_SWAP,
}
