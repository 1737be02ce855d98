"""The two queues of a QP: what is posted to them, completed from them, and flushed."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from stagecoach.host_driver import registers
from stagecoach.host_driver.cq import CQ
from stagecoach.host_driver.culprit import Culprit
from stagecoach.host_driver.enums import WCFlags, WCStatus
from stagecoach.host_driver.errors import DeviceError
from stagecoach.host_driver.inline import InlineBuffer, is_inline
from stagecoach.host_driver.qp_attr import ENTRY_UNITS, QPCap
from stagecoach.host_driver.ring import Ring
from stagecoach.host_driver.srq import SRQ, SharedReceives
from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.terminate import Terminate
from stagecoach.host_driver.transport.base import Transport
from stagecoach.host_driver.work_queue import WorkQueue, check_elements, check_send, parts_of
from stagecoach.host_driver.wr import WC, RecvWR, SendWR
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import (
    RECEIVE_ENTRY_OCTETS,
    SEND_UNIT_OCTETS,
    CompletionFlags,
)


class QPQueues:
    """The send and the receive queue of a QP; the caller holds the lock of the context.

    Parameters
    ----------
    transport: where the rings are mapped. cap: their sizes. scq, rcq: where each queue completes.
    srq: what the QP takes in the place of a receive queue of its own, if any.

    Attributes
    ----------
    send, receive: the queues. inline: the copies of inline sends; set before the first one.
    """

    inline: InlineBuffer

    receive: WorkQueue | SharedReceives

    def __init__(self, transport: Transport, cap: QPCap, scq: CQ, rcq: CQ, srq: SRQ | None = None):
        self._scq, self._rcq, self._cap = scq, rcq, cap
        with ExitStack() as undo:
            send_ring = Ring(transport, ENTRY_UNITS * cap.max_send_wr, SEND_UNIT_OCTETS)
            undo.callback(send_ring.close)
            if srq is not None:
                self.receive = SharedReceives(srq)
            else:
                receive_ring = Ring(transport, cap.max_recv_wr, RECEIVE_ENTRY_OCTETS)
                self.receive = WorkQueue(
                    receive_ring, registers.RECEIVE_DOORBELL, cap.max_recv_wr, "receive"
                )
            undo.pop_all()
        self.send = WorkQueue(send_ring, registers.SEND_DOORBELL, cap.max_send_wr, "send")

    # Posting

    def write_sends(self, requests: Sequence[SendWR], *, hidden: bool) -> None:
        """Writes send entries, without the doorbell.

        Raises `ResourceError` if the queue has no room, `ValueError` for a request that no device
        takes; nothing is written then.
        """
        self._scq._take_entries()
        for request in requests:
            check_send(request, self._cap.max_send_sge)
        copies = [self.inline.gather(each) if is_inline(each) else None for each in requests]
        self.send.check_room(sum(len(parts_of(request)) for request in requests))
        for request, copy in zip(requests, copies, strict=True):
            if copy is not None:
                request = self.inline.put(request, copy, self.send.entries)
            self.send.write_send(request, hidden)

    def write_receives(self, queue: WorkQueue, requests: Sequence[RecvWR], *, hidden: bool) -> None:
        """Writes receive entries as `write_sends` does send entries; `queue` is `receive`."""
        self._rcq._take_entries()
        queue.check_room(len(requests))
        for request in requests:
            check_elements(request.sg, self._cap.max_recv_sge)
        for request in requests:
            queue.write_receive(request, hidden)

    # Completing

    def take_entries(self, ask: bool = False) -> None:
        """Takes what the device has written to the CQs; `ask` as for `CQ._take_entries`."""
        self._scq._take_entries(ask)
        self._rcq._take_entries(ask)

    @property
    def hidden_outstanding(self) -> bool:
        """Whether a hidden work request is not completed."""
        queues = (self.send, self.receive)
        return any(posted.hidden for queue in queues for posted in queue.posted)

    def completed(
        self, qp_num: int, receive: bool, index: int, length: int, flags: CompletionFlags
    ) -> WC | None:
        """The completion for entry `index`, `None` if it is hidden.

        Entries before it completed silently. If that of one is missing, which the device could not
        write, it is `None`, and nothing is completed: the QP stops with HOST_WRITE_ERROR.

        Raises `DeviceError`, and completes nothing, if that entry is not posted.
        """
        queue = self.receive if receive else self.send
        if queue.is_posted(index) and queue.has_lost_one(index):
            return None
        posted = queue.take(index)
        if posted is None:
            raise DeviceError(
                f"QP {qp_num}: completion of entry {index} of the {queue.name} queue; "
                f"allowed: {queue.allowed}"
            )
        if posted.hidden:
            return None
        if posted.length is not None:
            length = posted.length
        completion = WC(posted.wr_id, WCStatus.SUCCESS, posted.opcode, length, qp_num)
        if flags & CompletionFlags.SOLICITED:
            completion = replace(completion, wc_flags=WCFlags.SOLICITED)
        return completion

    def flush(
        self,
        qp_num: int,
        cause: Cause,
        terminate: Terminate | None,
        stream_end: StreamEnd | None = None,
        culprit: Culprit | None = None,
    ) -> None:
        """Completes what is left in error: the culprit, if any, with its status."""
        for queue, cq in ((self.send, self._scq), (self.receive, self._rcq)):
            while queue.posted:
                posted = queue.posted.popleft()
                if posted.hidden:
                    continue
                status = WCStatus.WR_FLUSH_ERR
                if culprit is not None and posted is culprit.posted:
                    status = culprit.status
                completion = WC(
                    posted.wr_id,
                    status,
                    posted.opcode,
                    byte_len=0,
                    qp_num=qp_num,
                    cause=cause,
                    terminate=terminate,
                    stream_end=stream_end,
                )
                cq._append(completion)

    def close(self) -> None:
        """Takes the rings back from the device."""
        with ExitStack() as steps:
            steps.callback(self.receive.close)
            steps.callback(self.send.close)
