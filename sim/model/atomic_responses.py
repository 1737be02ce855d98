"""Atomic Responses at the Requester (RFC 7306, 5.2.2)."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from stagecoach.sim.model import checks, ddp
from stagecoach.sim.model.atomics import ATOMIC_RESPONSE_OCTETS, AtomicRequest, AtomicResponse
from stagecoach.sim.model.ddp import UntaggedHeader
from stagecoach.sim.model.untagged import MSN_SPAN, check_length, check_mo, check_msn, check_whole
from stagecoach.sim.model.work import PLACES, Completion, Work


@dataclass(frozen=True)
class OutstandingAtomic:
    """An Atomic Request sent and not yet answered."""

    request: AtomicRequest
    work: Work
    place: int = field(default_factory=lambda: next(PLACES))


class AtomicResponses:
    """Queue 3: a buffer for each Atomic Request that is outstanding, in their order.

    ``next_place`` gives the place of what is to be answered next, atomic or RDMA Read.
    """

    def __init__(self, next_place: Callable[[], int | None]) -> None:
        self._next_place = next_place
        self.outstanding: deque[OutstandingAtomic] = deque()
        self.msn = ddp.FIRST_MSN

    def identified(self, request: AtomicRequest) -> AtomicRequest:
        """The next request with its Request Identifier: the MSN which its answer will have."""
        return replace(request, identifier=(self.msn + len(self.outstanding)) % MSN_SPAN)

    def segment(self, header: UntaggedHeader, payload: bytes) -> None:
        """Check the response and complete the oldest outstanding request with it."""
        check_msn(header, self.msn)
        if not self.outstanding or self.outstanding[0].place != self._next_place():
            raise checks.ATOMIC_OUTSTANDING.failed(
                "Atomic Response, and the oldest outstanding request is not an Atomic Request"
            )
        check_mo(header, 0, ATOMIC_RESPONSE_OCTETS)
        check_length(header, len(payload), ATOMIC_RESPONSE_OCTETS)
        check_whole(header, len(payload), ATOMIC_RESPONSE_OCTETS, checks.ATOMIC_RESPONSE_WHOLE)
        response = AtomicResponse.decode(payload)
        asked = self.outstanding[0]
        if response.identifier != asked.request.identifier:
            raise checks.ATOMIC_IDENTIFIER.failed(
                f"Original Request Identifier {response.identifier:#010x}; "
                f"{asked.request.identifier:#010x} is that of the Atomic Request"
            )
        self.outstanding.popleft()
        self.msn = (self.msn + 1) % MSN_SPAN
        work = asked.work
        work.completion = Completion(
            work.operation, work.work_id, length=work.length, original=response.original
        )
