"""Atomic Requests at the Responder (RFC 7306, 5.2.1)."""

from stagecoach.sim.model import checks, effects, rdmap
from stagecoach.sim.model.atomics import (
    ATOMIC_OCTETS,
    ATOMIC_REQUEST_OCTETS,
    ATOMIC_RESPONSE_OCTETS,
    AtomicRequest,
    AtomicResponse,
    result_of,
)
from stagecoach.sim.model.ddp import UntaggedHeader
from stagecoach.sim.model.effects import Recorder
from stagecoach.sim.model.errors import ErrorCode
from stagecoach.sim.model.extensions import Extensions
from stagecoach.sim.model.memory import Accessor, MemoryRegion, MemoryTable, Rights
from stagecoach.sim.model.message import Answer
from stagecoach.sim.model.rdmap import Opcode, Terminate
from stagecoach.sim.model.terminate import terminate_for
from stagecoach.sim.model.untagged import InboundAtomic, ReadRequestQueue, check_length, check_whole


class AtomicRequests:
    """Atomic Requests share queue 1, its buffers and its order with Read Requests.

    They are checked as they come, and performed when the answers before theirs were made: one is
    over before the next starts (RFC 7306, 7). Then the target is checked again, because its STag
    may be invalid by now.
    """

    def __init__(
        self,
        queue: ReadRequestQueue,
        memory: MemoryTable,
        accessor: Accessor,
        record: Recorder,
        extensions: Extensions,
    ) -> None:
        self._queue = queue
        self._memory = memory
        self._accessor = accessor
        self._record = record
        self._extensions = extensions

    def segment(self, header: UntaggedHeader, payload: bytes, segment: bytes) -> None:
        """Check the request and keep it."""
        self._queue.check_position(header, ATOMIC_REQUEST_OCTETS)
        check_length(header, len(payload), ATOMIC_REQUEST_OCTETS)
        check_whole(header, len(payload), ATOMIC_REQUEST_OCTETS, checks.ATOMIC_REQUEST_WHOLE)
        request = AtomicRequest.decode(payload)
        if request.operation not in self._extensions.operations:
            supported = ", ".join(map(str, sorted(map(int, self._extensions.operations))))
            raise checks.ATOMIC_OPERATION.failed(
                f"AOpCode {request.operation}; {supported} are supported"
            )
        self._check_target(request)
        self._queue.accept(InboundAtomic(request, segment))
        self._record(effects.AtomicAccepted(request))

    def perform(self, request: AtomicRequest) -> int:
        """Read, modify and write the target; gives the original value."""
        region = self._check_target(request)
        order = self._extensions.byte_order
        original = int.from_bytes(region.read(request.tagged_offset, ATOMIC_OCTETS), order)
        result = result_of(request, original)
        self._record(effects.AtomicPerformed(request, original, result))
        region.write(request.tagged_offset, result.to_bytes(ATOMIC_OCTETS, order))
        return original

    def _check_target(self, request: AtomicRequest) -> MemoryRegion:
        region = self._memory.check(
            request.stag,
            request.tagged_offset,
            ATOMIC_OCTETS,
            right=Rights.REMOTE_READ | Rights.REMOTE_WRITE,
            accessor=self._accessor,
            checks=checks.ATOMIC_TARGET,
        )
        address = region.address_of(request.tagged_offset)
        if address % ATOMIC_OCTETS:
            raise checks.ATOMIC_ALIGNMENT.failed(
                f"TO {request.tagged_offset:#x} is the address {address:#x}; "
                f"multiples of {ATOMIC_OCTETS} are possible"
            )
        return region


class AtomicAnswer(Answer):
    """The Atomic Response: the operation is performed when it is sent."""

    def __init__(self, inbound: InboundAtomic, requests: AtomicRequests, msn: int) -> None:
        header = UntaggedHeader(rdmap.QN_ATOMIC_RESPONSE, msn)
        super().__init__(Opcode.ATOMIC_RESPONSE, header)
        self._inbound = inbound
        self._requests = requests
        self._response: bytes | None = None

    @property
    def length(self) -> int:
        return ATOMIC_RESPONSE_OCTETS

    def read(self, count: int) -> bytes:
        if self._response is None:
            request = self._inbound.request
            original = self._requests.perform(request)
            self._response = AtomicResponse(request.identifier, original).encode()
        return self._response[self.sent : self.sent + count]

    def terminate(self, error: ErrorCode) -> Terminate:
        return terminate_for(error, self._inbound.segment)
