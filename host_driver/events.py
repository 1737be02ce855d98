"""Asynchronous events: what the device tells when a QP stops, and of shared receive queues."""

from contextlib import suppress
from dataclasses import dataclass

from stagecoach.host_driver.enums import EventType
from stagecoach.host_driver.errors import DeviceError, describe
from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.terminate import SegmentHeader, Terminate, read_terminate
from stagecoach.hw.interface.causes import CODES, Cause
from stagecoach.hw.interface.wire import UNTAGGED_HEADER_OCTETS

_WORK_REQUESTS = {
    Cause.LOCAL_SEND_PROTECTION: "send",
    Cause.LOCAL_BAD_ENTRY: "send",
    Cause.LOCAL_STAG_OPERATION: "send",
    Cause.LOCAL_RECEIVE_PROTECTION: "receive",
}
"""Causes that a work request has, with its queue."""

STREAM_ENDED = (Cause.LLP_CLOSED, Cause.LLP_CLOSED_INSIDE_FPDU)
"""Causes of a QP whose TCP connection ended."""

UNKNOWN_INDEX = -1
NO_QP = -1


@dataclass(frozen=True)
class AsyncEvent:
    """Why a QP stopped, as the device told it, or what became of a shared receive queue.

    Attributes
    ----------
    event_type: which of these. srq_num: number of the SRQ, of its events and of those of a QP that
        takes from one, else `None`.
    qp_num: number of the QP, `NO_QP` of an event of an SRQ. cause: the check that failed first.
    index: running number mod 2^16 of the work request at fault, if one is; `UNKNOWN_INDEX` if the
        device could not write the event, or had no place for it: only the cause is known then.
    ulpdu_length: of the offending segment; 0 if there is none.
    header: the first bytes of the offending ULPDU, its DDP header; of a Terminate that was
        received the first ones after its DDP header.
    terminate: what the peer said; `None` if it did not, or in a Terminate in error itself.
    stream_end: how the TCP connection ended, of a cause in `STREAM_ENDED`; `None` if the device has
        no network that knows (`NetworkTransport`).
    """

    qp_num: int
    cause: Cause
    index: int
    ulpdu_length: int
    header: bytes
    terminate: Terminate | None = None
    stream_end: StreamEnd | None = None
    event_type: EventType = EventType.QP_FATAL
    srq_num: int | None = None

    @property
    def reason(self) -> str:
        """The cause in words, whatever the QP and the peer's Terminate."""
        return describe(self.cause, stream_end=self.stream_end)

    def describe(self) -> str:
        """What the event tells, in one line.

        >>> print(AsyncEvent(2, Cause.LOCAL_SEND_PROTECTION, 5, 0, b"").describe())
        QP 2 stopped: local element of a send entry fails its STag check (layer 0, type 0, code
        0x00); entry 5 of the send queue
        """
        words = describe(self.cause, self.terminate, self.stream_end)
        if self.event_type == EventType.QP_LAST_WQE_REACHED:
            return f"QP {self.qp_num} takes nothing more from SRQ {self.srq_num}"
        if self.event_type == EventType.SRQ_LIMIT_REACHED:
            return f"SRQ {self.srq_num}: {words}"
        if self.event_type == EventType.SRQ_ERR:
            return f"SRQ {self.srq_num}: {CODES[self.cause][1]}; entry {self.index}"
        text = f"QP {self.qp_num} stopped: {words}"
        if self.cause == Cause.TERMINATE_RECEIVED:
            text += self._error_of_terminate()
        elif self.cause in _WORK_REQUESTS and self.index != UNKNOWN_INDEX:
            text += f"; entry {self.index} of the {_WORK_REQUESTS[self.cause]} queue"
        elif self.header:
            segment = SegmentHeader(self.header).describe()
            text += f"; segment of {self.ulpdu_length} bytes: {segment}"
        return text

    def _error_of_terminate(self) -> str:
        if self.index == UNKNOWN_INDEX:
            return ", of which nothing else is known"
        try:
            read_terminate(self.header, self.ulpdu_length - UNTAGGED_HEADER_OCTETS)
        except ValueError as error:
            return f", in error itself: {error}"
        return ""


def read_event(fields: dict[str, int | bytes]) -> AsyncEvent:
    """The event in an entry of the event ring.

    Raises `DeviceError` for a cause that there is not.
    """
    header, length = fields["header"], int(fields["ulpdu_length"])
    assert isinstance(header, bytes)
    number = int(fields["cause"])
    if number not in CODES:
        raise DeviceError(f"event of QP {fields['qp']!r} with cause {number}; allowed: a Cause")
    cause = Cause(number)
    if fields["srq"]:
        reached = cause == Cause.SRQ_LIMIT_REACHED
        return AsyncEvent(
            qp_num=NO_QP,
            cause=cause,
            index=int(fields["index"]),
            ulpdu_length=0,
            header=b"",
            event_type=EventType.SRQ_LIMIT_REACHED if reached else EventType.SRQ_ERR,
            srq_num=int(fields["qp"]),
        )
    known, terminate, index = length, None, int(fields["index"])
    if cause == Cause.TERMINATE_RECEIVED:
        known = max(0, length - UNTAGGED_HEADER_OCTETS)
        # Which end in the middle of an MSN
        header, index = header + index.to_bytes(2, "big"), 0
        with suppress(ValueError):  # it may be in error itself
            terminate = read_terminate(header[:known], known)
    return AsyncEvent(
        qp_num=int(fields["qp"]),
        cause=cause,
        index=index,
        ulpdu_length=length,
        header=header[:known],
        terminate=terminate,
    )
