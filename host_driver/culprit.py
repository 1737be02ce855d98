"""Which work request an error of a QP is of, and the status that it completes with.

All others are flushed, and so is every one if the error is of none, or it is not known of which
one: the asynchronous event has the cause. What libibverbs has no name for is flushed, too.
"""

from collections.abc import Iterable
from typing import NamedTuple

from stagecoach.host_driver.enums import WCOpcode, WCStatus
from stagecoach.host_driver.events import UNKNOWN_INDEX, AsyncEvent
from stagecoach.host_driver.srq import SharedReceives
from stagecoach.host_driver.terminate import SegmentHeader, Terminate
from stagecoach.host_driver.work_queue import Posted, WorkQueue
from stagecoach.hw.interface.causes import Cause, TerminateCode
from stagecoach.hw.interface.wire import QN_READ_REQUEST, Opcode

_OF_SENDS = {
    Cause.LOCAL_SEND_PROTECTION: WCStatus.LOC_PROT_ERR,
    Cause.LOCAL_BAD_ENTRY: WCStatus.LOC_QP_OP_ERR,
    Cause.LOCAL_STAG_OPERATION: WCStatus.MW_BIND_ERR,
}
_OF_RECEIVES = {Cause.LOCAL_RECEIVE_PROTECTION: WCStatus.LOC_PROT_ERR}
"""Causes whose event has the number of the entry."""

_OF_SINKS = (
    Cause.TAGGED_STAG_INVALID,
    Cause.TAGGED_BOUNDS,
    Cause.TAGGED_STAG_NOT_ASSOCIATED,
    Cause.TAGGED_TO_WRAP,
)
"""What has become of the sink of an RDMA Read when the Read Response comes."""

_SENDS = (
    Opcode.SEND,
    Opcode.SEND_WITH_INVALIDATE,
    Opcode.SEND_WITH_SE,
    Opcode.SEND_WITH_SE_AND_INVALIDATE,
)

_ATOMICS = (WCOpcode.COMP_SWAP, WCOpcode.FETCH_ADD, WCOpcode.SWAP)
_REQUESTS: dict[int, tuple[WCOpcode, ...]] = {
    Opcode.RDMA_READ_REQUEST: (WCOpcode.RDMA_READ,),
    Opcode.ATOMIC_REQUEST: _ATOMICS,
}
"""What was posted, by the opcode of the request that the peer got."""

_REMOTE_PROTECTION, _REMOTE_OPERATION, _UNTAGGED_BUFFER = (0, 1), (0, 2), (1, 2)
_INVALID_REQUESTS = (0x05, 0x06)  # of Remote Operation Errors: RDMAP version, opcode


class Culprit(NamedTuple):
    """A work request that failed, and its status."""

    posted: Posted
    status: WCStatus


def find_culprit(
    event: AsyncEvent, send: WorkQueue, receive: WorkQueue | SharedReceives, reads: int
) -> Culprit | None:
    """The work request that the error in `event` is of; `None` if all are flushed.

    Called when all that the device has completed was taken.

    Parameters
    ----------
    send, receive: the queues of the QP. reads: its ORD.
    """
    if event.index == UNKNOWN_INDEX:
        return None
    cause = event.cause
    for queue, statuses in ((send, _OF_SENDS), (receive, _OF_RECEIVES)):
        if cause in statuses:
            return _only(
                (each for each in queue.posted if each.has_entry(event.index)), statuses[cause]
            )
    if cause == Cause.TERMINATE_RECEIVED:
        return None if event.terminate is None else _of_terminate(event.terminate, send, reads)
    segment = SegmentHeader(event.header)
    if cause == Cause.UNTAGGED_TOO_LONG and segment.opcode in _SENDS and segment.msn is not None:
        return _only(receive.of_message(segment.msn), WCStatus.LOC_LEN_ERR)
    if cause in _OF_SINKS and segment.opcode == Opcode.RDMA_READ_RESPONSE:
        return _of_sink(segment, send)
    return None


def _only(found: Iterable[Posted], status: WCStatus) -> Culprit | None:
    """The one that was found; `None` if it is none, or may be another one."""
    first, another, *_ = *found, None, None
    return None if first is None or another is not None else Culprit(first, status)


def _maybe_oldest(send: WorkQueue) -> int:
    """How many RDMA Reads and atomics of the queue may be the oldest one without an answer.

    Those that are not signaled may have been answered, up to the first one that is.
    """
    answered = send.answered
    signaled = (n for n, each in enumerate(answered, 1) if each.signaled)
    return next(signaled, len(answered))


def _of_sink(segment: SegmentHeader, send: WorkQueue) -> Culprit | None:
    """Answers come in the order of the requests: the oldest one has lost its sink."""
    oldest = send.answered[: _maybe_oldest(send)]
    if len(oldest) > 1:
        oldest = [each for each in oldest if each.sink == segment.stag]
    return _only(oldest, WCStatus.LOC_PROT_ERR)


def _of_terminate(terminate: Terminate, send: WorkQueue, reads: int) -> Culprit | None:
    """The RDMA Read or atomic whose header the Terminate carries (RFC 5040, 4.8).

    It may be any that the peer can have: it says what is wrong with one before it answers those
    that came earlier.
    """
    segment = terminate.segment
    if segment is None or segment.qn != QN_READ_REQUEST:
        return None
    opcodes = _REQUESTS.get(segment.opcode or 0, ())
    sent = send.answered[: _maybe_oldest(send) + max(reads, 1) - 1]
    named = (each for each in sent if each.opcode in opcodes and each.msn == segment.msn)
    return _only(named, _remote_status(terminate.code))


def _remote_status(code: TerminateCode) -> WCStatus:
    """What the peer's error about an RDMA Read or atomic is in libibverbs."""
    kind = code.layer, code.error_type
    if kind == _REMOTE_PROTECTION:
        return WCStatus.REM_ACCESS_ERR
    if kind == _UNTAGGED_BUFFER:
        return WCStatus.REM_INV_REQ_ERR
    if kind == _REMOTE_OPERATION and code.error_code in _INVALID_REQUESTS:
        return WCStatus.REM_INV_REQ_ERR
    return WCStatus.REM_OP_ERR
