"""Queue Pairs: work requests go in, completions come to their CQs."""

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Self
from weakref import WeakKeyDictionary

from stagecoach.host_driver import registers
from stagecoach.host_driver.answers import read_state
from stagecoach.host_driver.cq import AWAITS_FIRST_FPDU, CQ
from stagecoach.host_driver.culprit import Culprit, find_culprit
from stagecoach.host_driver.deadline import require_seconds
from stagecoach.host_driver.device import CommandOpcode
from stagecoach.host_driver.dropped import Droppable, Open
from stagecoach.host_driver.enums import (
    ANSWERED,
    ATOMIC_OPERATIONS,
    AccessFlags,
    EventType,
    QPState,
    SendFlags,
    WCFlags,
    WCOpcode,
    WROpcode,
)
from stagecoach.host_driver.errors import QPError, QPStateError, require_type
from stagecoach.host_driver.events import UNKNOWN_INDEX, AsyncEvent
from stagecoach.host_driver.inline import InlineBuffer
from stagecoach.host_driver.mpa_terms import Connection
from stagecoach.host_driver.mr import MR
from stagecoach.host_driver.network.errors import stream_error
from stagecoach.host_driver.pd import PD
from stagecoach.host_driver.qp_attr import QPAttr, QPInitAttr
from stagecoach.host_driver.qp_queues import QPQueues
from stagecoach.host_driver.srq import SRQ, SharedReceives, read_taken
from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.terminate import Terminate
from stagecoach.host_driver.transport.base import ByteStream, DeviceClosed, TransportError
from stagecoach.host_driver.work_queue import WorkQueue
from stagecoach.host_driver.wr import WC, RecvWR, SendWR, require_requests
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import CompletionFlags

FLUSH_SECONDS = 2.0
"""How long the end of a connection waits for a peer that does not read."""

ERROR_FLUSH_SECONDS = 0.05
"""The same after an error: the other QPs wait with it, so it is short."""


class QP(Droppable):
    """A Queue Pair, which is one RDMAP stream once it is connected (`host_driver.cm`).

    Receives may be posted before the connection is made, sends only afterwards. The stream ends
    when the QP is dropped: a program keeps it for as long as it has a peer.

    Parameters
    ----------
    pd: the Protection Domain.
    init_attr: CQs, sizes, whether it has atomics and Immediate Data, and the SRQ if it takes from
        one.

    Attributes
    ----------
    qp_num: its number on the device. pd, context: to which it belongs.
    scq, rcq, srq, rfc7306: as in `init_attr`.
    cause: why it stopped, or `Cause.NONE`.
    known_state: `state` without a look at what the device has told since.
    terminate: what the peer complained about, if that was why, else `None`.
    stream_end: how the TCP connection ended, if that was why and the device has a network that
        knows, else `None`.
    connection: what MPA startup agreed on; `None` before.

    Raises `ResourceError` if the device has no QP left, or a CQ not enough room for what may be
    outstanding (see `CQ`), `QuotaExceeded`, and `ValueError` if the PD, a CQ or the SRQ is closed,
    or the SRQ is one of another PD.

    With an open `pd` and `cq`:

    >>> qp = QP(pd, QPInitAttr(cq, cq, QPCap(max_send_wr=4)))
    >>> qp.state.name
    'INIT'
    >>> qp.post_recv(RecvWR(wr_id=1))
    >>> qp.post_send(SendWR(wr_id=2))
    Traceback (most recent call last):
        ...
    stagecoach.host_driver.errors.QPStateError: QP 1 is in state INIT; allowed: RTS or ERR
    >>> qp.close()
    """

    def __init__(self, pd: PD, init_attr: QPInitAttr):
        require_type("pd", pd, PD)
        require_type("init_attr", init_attr, QPInitAttr)
        self.pd = pd
        self.context = context = pd.context
        self.scq, self.rcq = init_attr.scq, init_attr.rcq
        self.srq = init_attr.srq
        self.rfc7306 = init_attr.rfc7306
        self._init_attr = init_attr
        for name, cq in (("scq", self.scq), ("rcq", self.rcq)):
            require_type(name, cq, CQ)
            if cq.context is not context:
                raise ValueError(
                    f"{name} belongs to another device; allowed: a CQ of the PD's device"
                )
        if self.srq is not None:
            require_type("srq", self.srq, SRQ)
            if self.srq.pd is not pd:
                raise ValueError(
                    f"{self.srq} belongs to another PD than the QP, {pd}; allowed: an SRQ of its PD"
                )
        self.cause = Cause.NONE
        self.terminate: Terminate | None = None
        self.stream_end: StreamEnd | None = None
        self.connection: Connection | None = None
        self._attached = False
        self._detaching = threading.Lock()  # inside it `context.lock` is not taken
        # Once connected: RDMA Reads that may be under way from and to this end, and the EMSS.
        self._ord: int | None = None
        self._ird: int | None = None
        self._emss: int | None = None
        self._may_wait = False  # a Responder of which nothing has completed yet
        # Regions that only this QP may use.
        self.children: WeakKeyDictionary[Open, None] = WeakKeyDictionary()
        cap = init_attr.cap
        with context.lock:
            pd._require_open()
            self.scq._require_open()
            self.rcq._require_open()
            if self.srq is not None:
                self.srq._require_open()
            resources = context.resources
            self.qp_num = context._take_qp_number(self.srq is not None)
            self._bound = {self.scq: 0, self.rcq: 0}
            self._bound[self.scq] += cap.max_send_wr
            self._bound[self.rcq] += cap.max_recv_wr if self.srq is None else 0
            with resources.reserve(qps=1), ExitStack() as undo:
                for cq, requests in self._bound.items():
                    cq._bind(self.qp_num, self, requests, self.srq if cq is self.rcq else None)
                    undo.callback(cq._unbind, self.qp_num)
                self._queues = QPQueues(context.transport, cap, self.scq, self.rcq, self.srq)
                undo.callback(self._queues.close)
                self._create()
                if self.srq is not None:
                    self.srq._bind(self.qp_num, self)
                undo.pop_all()
            context.qps[self.qp_num] = self
            context._qp_numbers[self.qp_num] = self.srq is None
            context.used_qps.add(self.qp_num)
            self.known_state = QPState.INIT
            context._adopt(self)
            pd.children[self] = None
            self._opened(context)
            try:
                self._queues.inline = InlineBuffer(
                    cap.max_send_wr, cap.max_inline_data, pd, self._own_region
                )
            except BaseException:
                self.close()
                raise

    def _own_region(self, octets: int) -> MR:
        region = MR(self.pd, octets, AccessFlags(0), qp=self)
        region._let_go_of_qp()
        return region

    def _create(self) -> None:
        """Gives the rings to the device."""
        context = self.context
        send, receive = self._queues.send, self._queues.receive
        receive_base = receive_log2 = 0
        if isinstance(receive, WorkQueue):
            receive_base, receive_log2 = receive.ring.address, receive.ring.log2
        context.write(registers.QP_NUMBER, qp=self.qp_num)
        context.write(registers.QP_PD, pd=self.pd.number)
        context.write(registers.QP_CQS, send_cq=self.scq.number, receive_cq=self.rcq.number)
        context.write_wide(
            registers.QP_SEND_BASE_LOW, registers.QP_SEND_BASE_HIGH, send.ring.address
        )
        context.write_wide(
            registers.QP_RECEIVE_BASE_LOW, registers.QP_RECEIVE_BASE_HIGH, receive_base
        )
        context.write(registers.QP_RINGS, send_log2=send.ring.log2, receive_log2=receive_log2)
        self._name_ring()
        context.command(CommandOpcode.QP_CREATE)

    def _name_ring(self) -> None:
        """Says where the QP takes its receive entries from."""
        if self.srq is None:
            self.context.write(registers.QP_SRQ)
        else:
            self.context.write(registers.QP_SRQ, shared=1, ring=self.srq.number)

    def __repr__(self) -> str:
        state = "closed" if self._closed else self.known_state.name
        about = f"{state}, PD {self.pd.number}"
        about += f", CQs {self.scq.number} and {self.rcq.number}"
        if self.srq is not None:
            about += f", SRQ {self.srq.number}"
        if self.cause != Cause.NONE:
            about += f", {self.cause.name}"
        return f"<QP {self.qp_num}: {about}>"

    # Connection

    def connect(
        self,
        stream: ByteStream,
        *,
        initiator: bool,
        crc: bool,
        ord: int,
        ird: int,
        emss: int,
        markers_tx: bool = False,
        markers_rx: bool = False,
    ) -> None:
        """Takes the stream into Full Operation: its bytes belong to the device from here on.

        `connect` and `accept` call it when MPA startup is done; a program that has agreed with its
        peer in another way calls it itself. `markers_tx`, `markers_rx`: whether Markers are sent,
        and received.
        """
        context = self.context
        with context.lock:
            self._require(QPState.INIT)
            context.write(registers.QP_NUMBER, qp=self.qp_num)
            context.write(registers.QP_READS, ord=ord, ird=ird)
            context.write(registers.QP_EMSS, emss=emss)
            context.write(
                registers.QP_MODE,
                crc=int(crc),
                transmit_markers=int(markers_tx),
                receive_markers=int(markers_rx),
                initiator=int(initiator),
                rfc7306=int(self.rfc7306),
            )
            context.command(CommandOpcode.QP_CONNECT)
            self.known_state = QPState.RTS
            self._ord, self._ird, self._emss = ord, ird, emss
            self._may_wait = not initiator
            try:
                context.transport.attach(self.qp_num, stream)
            except BaseException:
                # Without a stream nothing would ever come, nor end.
                self.cause = Cause.LLP_CLOSED
                self._stop(None)
                raise
            self._attached = True

    def _require(self, *allowed: QPState) -> None:
        """Raises `QPStateError` unless the QP is in one of the states."""
        if self.known_state not in allowed:
            if self._closed:
                raise QPStateError(f"QP {self.qp_num} is closed; allowed: an open QP")
            names = " or ".join(state.name for state in allowed)
            raise QPStateError(
                f"QP {self.qp_num} is in state {self.known_state.name}; allowed: {names}"
            )

    def _require_open(self) -> None:
        """Raises `QPStateError` if the QP is closed: its number may be that of another one."""
        self._require(QPState.INIT, QPState.RTS, QPState.ERR)

    @property
    def state(self) -> QPState:
        """State of the QP now: events that have come are taken first.

        So a program that only waits for its peer learns that it is gone. Raises what
        `Context.process_events` does.
        """
        with self.context.lock:
            if not self._closed:
                self.context.process_events()
            return self.known_state

    def query_state(self) -> tuple[QPState, Cause]:
        """State and first error of the QP, as the device has them."""
        with self.context.lock:
            self._require_open()
            return read_state(self.context, self.qp_num)

    def query(self) -> tuple[QPAttr, QPInitAttr]:
        """What the QP is now, as the device has it, and what it was made of."""
        with self.context.lock:
            state, cause = self.query_state()
            cap = self._init_attr.cap
            attr = QPAttr(state, cause, cap, self._ord, self._ird, self._emss)
            return attr, self._init_attr

    # Posting

    def post_send(self, *requests: SendWR) -> None:
        """Posts send work requests, with one doorbell for all of them.

        The buffers belong to the device until the completion, that of a request with
        `SendFlags.INLINE` to the program again when this returns.

        Raises `QPStateError` if the QP is not connected, `ResourceError` if the queue has no room,
        `ValueError` for a request that no device takes, for an atomic or Immediate Data that this
        device or this QP does not have, or for an RDMA Read or atomic if the connection allows none
        (ORD 0); nothing is posted then.
        """
        self._post_send(requests)

    def _post_send(self, requests: Sequence[SendWR], hidden: bool = False) -> None:
        require_requests(requests, SendWR)
        for request in requests:
            require_type("SendWR.send_flags", request.send_flags, int)
        if self._init_attr.sq_sig_all:
            requests = [
                replace(each, send_flags=each.send_flags | SendFlags.SIGNALED) for each in requests
            ]
        with self.context.lock:
            self._require(QPState.RTS, QPState.ERR)
            self._check_supported(requests)
            if self._ord == 0 and any(each.opcode in ANSWERED for each in requests):
                # It would wait for ever, and everything after it.
                raise ValueError(
                    f"RDMA Read or atomic on QP {self.qp_num}, which is connected with ORD 0; "
                    f"allowed: on a QP with ORD 1 to {self.context.attr.max_qp_rd_atom}"
                )
            self._queues.write_sends(requests, hidden=hidden)
            for request in requests:
                self._changes_stag(request)
            self._ring_doorbell(self._queues.send)

    def _check_supported(self, requests: Sequence[SendWR]) -> None:
        for request in requests:
            atomics = self.context.attr.atomics
            if request.opcode in ATOMIC_OPERATIONS and request.opcode not in atomics:
                names = ", ".join(each.name for each in atomics) or "none"
                raise ValueError(f"{WROpcode(request.opcode).name}; this device has: {names}")
            if request.imm_data is not None and not self.context.attr.imm_data:
                raise ValueError(
                    f"{WROpcode(request.opcode).name}; this device has no Immediate Data"
                )
            extended = request.opcode in ATOMIC_OPERATIONS or request.imm_data is not None
            if extended and not self.rfc7306:
                raise ValueError(
                    f"{WROpcode(request.opcode).name} on QP {self.qp_num}, which was made without "
                    "RFC 7306; allowed: on a QP of QPInitAttr(..., rfc7306=True)"
                )

    def _changes_stag(self, request: SendWR) -> None:
        """What the posted request makes of a region."""
        if request.opcode == WROpcode.REG_MR:
            assert request.mr is not None
            request.mr._registered(request.rkey, request.access)
        elif request.opcode == WROpcode.LOCAL_INV:
            region = self.context.mrs.get(request.rkey)
            if region is not None and region.pd is self.pd:
                region.invalidated = True

    def post_recv(self, *requests: RecvWR) -> None:
        """Posts receive work requests, with one doorbell for all of them.

        Raises `ResourceError` if the queue has no room, `ValueError` for too many elements, or if
        the QP takes its receives from an SRQ.
        """
        self._post_recv(requests)

    def _post_recv(self, requests: Sequence[RecvWR], hidden: bool = False) -> None:
        require_requests(requests, RecvWR)
        with self.context.lock:
            self._require_open()
            queue = self._queues.receive
            if not isinstance(queue, WorkQueue):
                raise ValueError(
                    f"QP {self.qp_num} takes its receives from SRQ {queue.srq.number}; allowed: "
                    "SRQ.post_recv"
                )
            self._queues.write_receives(queue, requests, hidden=hidden)
            self._ring_doorbell(queue)

    @property
    def _receives(self) -> SharedReceives:
        """What the QP has taken from its SRQ; `TypeError` without one."""
        queue = self._queues.receive
        if isinstance(queue, SharedReceives):
            return queue
        raise TypeError(f"QP {self.qp_num} has no SRQ")

    # The driver's own work requests

    @property
    def receives_posted(self) -> int:
        """Receive work requests that are not completed; with an SRQ those that it has taken."""
        with self.context.lock:
            self.rcq._take_entries()
            return len(self._queues.receive.posted)

    def _post_hidden_send(self, request: SendWR) -> None:
        """Posts a signaled request whose completion nobody sees, as `post_send`."""
        self._post_send([request], hidden=True)

    def _post_hidden_recv(self, request: RecvWR) -> None:
        """Posts a request whose completion nobody sees, as `post_recv`."""
        self._post_recv([request], hidden=True)

    def _hidden_done(self) -> bool:
        """Whether no hidden work request is outstanding; so it is also after an error."""
        with self.context.lock:
            self._queues.take_entries()
            return not self._queues.hidden_outstanding

    @property
    def _awaits_first_fpdu(self) -> bool:
        """Whether work requests seem to wait for the first FPDU of the MPA Initiator.

        A Responder sends nothing before that (RFC 5044, 7.1.2 item 4): some are in the send queue,
        and nothing has completed since the QP was connected.
        """
        with self.context.lock:
            return (
                self._may_wait
                and self.known_state == QPState.RTS
                and bool(self._queues.send.posted)
            )

    def _ring_doorbell(self, queue: WorkQueue) -> None:
        if self.known_state == QPState.ERR:
            self._flush()
            return
        if queue.end is not None:
            return
        self.context.write(queue.doorbell, qp=self.qp_num, producer=queue.producer)

    # Completing

    def _completed(
        self,
        receive: bool,
        index: int,
        length: int,
        flags: CompletionFlags,
        invalidated_stag: int,
        immediate_data: bytes,
    ) -> WC | None:
        """The completion for entry `index`, `None` if it is hidden; see `QPQueues.completed`."""
        self._may_wait = False
        completion = self._queues.completed(self.qp_num, receive, index, length, flags)
        if completion is not None and flags & CompletionFlags.IMMEDIATE:
            return replace(
                completion,
                opcode=WCOpcode.RECV_RDMA_WITH_IMM,
                wc_flags=completion.wc_flags | WCFlags.WITH_IMM,
                imm_data=immediate_data,
            )
        if not flags & CompletionFlags.INVALIDATED:
            return completion
        region = self.context.mrs.get(invalidated_stag)
        if region is not None:
            region._invalidated_by(self)
        if completion is None:
            return None
        return replace(
            completion,
            wc_flags=completion.wc_flags | WCFlags.WITH_INV,
            invalidated_rkey=invalidated_stag,
        )

    def _stopped(self, event: AsyncEvent) -> None:
        """The device says that the QP has an error: nothing more is sent or placed."""
        if self.known_state not in (QPState.INIT, QPState.RTS):
            return
        self.cause, self.terminate = event.cause, event.terminate
        self.stream_end = event.stream_end
        try:
            self._stop(event)
        finally:
            self._detach(ERROR_FLUSH_SECONDS)

    def _stop(self, event: AsyncEvent | None) -> None:
        self.known_state = QPState.ERR
        self.context.write(registers.QP_NUMBER, qp=self.qp_num)
        self.context.command(CommandOpcode.QP_STOP)
        # All writes are answered: what is not there after a lost completion is lost, too.
        self._queues.take_entries(ask=True)
        if self.srq is not None and (taken := read_taken(self.context, self.qp_num)) is not None:
            self._receives.claim(taken)
        culprit = None
        if event is not None:
            queues = self._queues
            culprit = find_culprit(event, queues.send, queues.receive, self._ord or 0)
        self._flush(culprit)
        if self.srq is not None:
            self.context._tell(
                AsyncEvent(
                    self.qp_num,
                    self.cause,
                    UNKNOWN_INDEX,
                    0,
                    b"",
                    event_type=EventType.QP_LAST_WQE_REACHED,
                    srq_num=self.srq.number,
                )
            )

    def _flush(self, culprit: Culprit | None = None) -> None:
        self._queues.flush(self.qp_num, self.cause, self.terminate, self.stream_end, culprit)

    def _detach(self, seconds: float) -> None:
        # The second caller waits: only then is the connection free for another stream.
        with self._detaching:
            if not self._attached:
                return
            self._attached = False
            try:
                self.context.transport.detach(self.qp_num, seconds)
            except DeviceClosed:
                raise
            except TransportError:
                # The peer has gone or takes nothing more. What it missed it cannot be told; the
                # connection is free again.
                pass

    def disconnect(self, timeout: float = FLUSH_SECONDS, *, drain: float | None = None) -> None:
        """Ends the stream; what was not completed is flushed.

        Waits up to `timeout` seconds for a peer that does not read; the other QPs go on meanwhile.

        With `drain` the end is a graceful one (RFC 5041, 6.2.1): for up to so many seconds it waits
        until all that is in the send queue has completed, while receives go on. What is posted to
        the send queue from here on is flushed. Raises `WaitTimeout` if there was not time enough;
        the stream has ended then too. If the last request in the send queue is not signaled, a
        region and one more request are needed to see its end: without room for them `ResourceError`
        or `QuotaExceeded` is raised, and the stream goes on, as after a `ValueError` for
        less than 0 seconds.
        """
        self.context.lock.check()
        if drain is not None:
            require_seconds("drain", drain)
        with ExitStack() as steps:
            if drain is not None:
                self._begin_drain(steps)
            try:
                if drain is not None:
                    what = f"end of the send queue of QP {self.qp_num}"
                    if self._awaits_first_fpdu:
                        what += f", which {AWAITS_FIRST_FPDU}"
                    self.context.poll_until(self._has_drained, drain, what)
            finally:
                self._end(timeout)

    def _begin_drain(self, steps: ExitStack) -> None:
        """Gives the device no more sends; `steps` are for when the stream has ended."""
        queue = self._queues.send
        with self.context.lock:
            self.context.process_events()
            self._queues.take_entries()
            if self.known_state != QPState.RTS or queue.end is not None:
                return
            if queue.posted and not queue.posted[-1].signaled:
                # What completes after it: the end of a region, of which the peer hears nothing.
                region = steps.enter_context(MR(self.pd, bytearray(1), qp=self))
                self._post_hidden_send(SendWR(opcode=WROpcode.LOCAL_INV, rkey=region.stag))
            queue.end_here()

    def _has_drained(self) -> bool:
        with self.context.lock:
            self._queues.take_entries()
            return self.known_state != QPState.RTS or self._queues.send.drained

    def _end(self, timeout: float) -> None:
        try:
            with self.context.lock:
                self.context.process_events()
                if self.known_state == QPState.RTS:
                    self.cause = Cause.STOPPED_BY_DRIVER
                    self._stop(None)
        finally:
            if self.known_state == QPState.ERR:
                self._detach(timeout)

    def close(self) -> None:
        """Ends the stream, closes the regions that only this QP may use, and frees the QP.

        Waits as `disconnect` does.
        """
        with ExitStack() as steps:
            steps.callback(self._free)
            if not self._closed:
                self.disconnect()

    def _free_dropped(self) -> None:
        with ExitStack() as steps:
            steps.callback(self._free)
            self.disconnect(ERROR_FLUSH_SECONDS)

    def _free(self) -> None:
        with self.context.lock:
            if self._closed:
                return
            self._closed = True
            self.context._forget(self)
            self.pd.children.pop(self, None)
            # Last one first; an error in one step is no reason to leave out the others.
            with ExitStack() as steps:
                steps.callback(self._destroy)
                steps.callback(self._detach, ERROR_FLUSH_SECONDS)
                for child in list(self.children):
                    steps.callback(child.close)
                # Done, unless it failed or another thread has connected the QP since.
                steps.callback(self.disconnect)

    def _destroy(self) -> None:
        context = self.context
        context.write(registers.QP_NUMBER, qp=self.qp_num)
        self._name_ring()
        context.command(CommandOpcode.QP_DESTROY)
        self.known_state = QPState.RESET
        with ExitStack() as steps:
            steps.callback(self._queues.close)
            if self.srq is not None:
                steps.callback(self.srq._unbind, self.qp_num)
            for cq in self._bound:
                steps.callback(cq._unbind, self.qp_num)
            steps.callback(context.resources.used.give, qps=1)
            steps.callback(context._qp_numbers.pop, self.qp_num)
            steps.callback(context.qps.pop, self.qp_num, None)
            # An event of this QP may be in the ring: it is not for the next QP of this number.
            context.process_events()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def raise_if_stopped(qp: QP) -> None:
    """Raises the error of a QP that has stopped.

    Its `__cause__` is a `ConnectionReset`, `ConnectionTimedOut` or `StreamClosed` where it is known
    how the TCP connection ended.
    """
    if qp.cause not in (Cause.NONE, Cause.STOPPED_BY_DRIVER):
        how = qp.stream_end
        why = None if how is None else stream_error(how, how.words)
        raise QPError(qp.qp_num, qp.cause, qp.terminate, how) from why
