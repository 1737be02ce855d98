"""Completion Queues."""

import time
from collections import deque
from contextlib import ExitStack
from enum import Enum
from operator import index
from typing import Protocol, Self, runtime_checkable
from weakref import ref

from stagecoach.host_driver import entries, registers
from stagecoach.host_driver.completion_stream import CompletionStream, Waker
from stagecoach.host_driver.context import Context
from stagecoach.host_driver.deadline import end_of
from stagecoach.host_driver.dropped import Droppable
from stagecoach.host_driver.enums import WCFlags, WCStatus
from stagecoach.host_driver.errors import DeviceError, ResourceError, WaitTimeout, require_type
from stagecoach.host_driver.ring import MAXIMUM_LOG2, Ring, check_entries, ring_entries
from stagecoach.host_driver.wr import WC
from stagecoach.hw.interface.queue_entries import CompletionFlags, CompletionOpcode
from stagecoach.hw.interface.wire import IMMEDIATE_DATA_OCTETS

DEFAULT_CQE = 8192


class _Notify(Enum):
    """What `req_notify` asked for."""

    NONE = 0
    NEXT = 1
    SOLICITED = 2


AWAITS_FIRST_FPDU = (
    "is MPA Responder and sends nothing before the Initiator's first FPDU (RFC 5044, 7.1.2)"
)
"""What is said of a QP whose work requests seem to wait for that."""


class SharedRequests(Protocol):
    """Work requests that complete to the CQs of several QPs."""

    @property
    def max_wr(self) -> int:
        """How many may be outstanding."""


class CompletingQP(Protocol):
    """A QP that completes to a CQ."""

    @property
    def _awaits_first_fpdu(self) -> bool:
        """Whether its work requests seem to wait for the first FPDU of the Initiator."""

    def _completed(
        self,
        receive: bool,
        index: int,
        length: int,
        flags: CompletionFlags,
        invalidated_stag: int,
        immediate_data: bytes,
    ) -> WC | None:
        """The completion of a work request, `None` if the program does not see it."""


@runtime_checkable
class NotifiedChannel(Protocol):
    """What a CQ needs of its completion channel; the lock of the context is held."""

    def _require_open(self) -> None:
        """Raises `ValueError` if it is closed."""

    def _bind(self, cq: "CQ") -> None:
        """A new CQ notifies there."""

    def _unbind(self, cq: "CQ") -> None:
        """The CQ is closed."""

    def _add(self, cq: "CQ") -> None:
        """The CQ has what its `req_notify` asked for."""


class CQ(Droppable):
    """A Completion Queue: the device writes to it in host memory, `poll` reads it there.

    Parameters
    ----------
    context: the open device.
    cqe: completions that it holds at least, 1 to 32768. The default is enough for all QPs of the
        simulated device with queues of default size.
    overcommit: may be shared by QPs that together can have more outstanding than it holds. Without
        it a second QP is refused then, so that no stream can stop another one by a CQ that
        overflows (RFC 5042, 6.4.3.2); with it the program itself limits what is outstanding.
    channel: a `CompChannel` of the same device, which gets what `req_notify` asks for.

    Attributes
    ----------
    number: on the device. context, channel: as given.

    Raises `ResourceError` if the device has no CQ left, `QuotaExceeded`, `ValueError` for a channel
    that is closed or of another device.

    With an open `context`:

    >>> cq = CQ(context, 100)
    >>> cq.cqe
    128
    >>> cq.poll()
    []
    >>> cq.close()
    """

    def __init__(
        self,
        context: Context,
        cqe: int = DEFAULT_CQE,
        *,
        overcommit: bool = False,
        channel: NotifiedChannel | None = None,
    ):
        require_type("context", context, Context)
        if channel is not None and not isinstance(channel, NotifiedChannel):
            raise TypeError(f"channel is a {type(channel).__name__}; allowed: CompChannel or None")
        check_entries(cqe)
        cqe = index(cqe)
        self.context = context
        self.channel = channel
        self._overcommit = overcommit
        self._unacknowledged = 0
        self._wakers: dict[Waker, None] = {}
        self._notify = _Notify.NONE
        self._notified = False
        # By number: the QPs that complete here, with what each may have outstanding, alone and in
        # common with others. A QP has its CQs, so they do not have it.
        self._bound: dict[int, tuple[ref[CompletingQP], int, SharedRequests | None]] = {}
        with context.lock:
            context._require_open()
            resources = context.resources
            self.number = resources.take_number(context._cq_numbers, context.attr.max_cq, "CQs")
            # Twice the size where possible: what was consumed is told to the device only now and
            # then, and until then the device counts it as there.
            size = ring_entries(min(2 * cqe, 1 << MAXIMUM_LOG2))
            self._cqe = max(cqe, size // 2)
            self._consumer = 0
            self._doorbell = 0
            self._ready: deque[WC] = deque()
            self._faults: deque[DeviceError] = deque()
            with resources.reserve(cqs=1, cq_entries=self._cqe), ExitStack() as undo:
                self._ring = Ring(context.transport, size, entries.COMPLETION.size)
                undo.callback(self._ring.close)
                if channel is not None:
                    channel._bind(self)
                    undo.callback(channel._unbind, self)
                context._enable_ring(self.number, self._ring)
                undo.pop_all()
            context.cqs[self.number] = self
            context._cq_numbers.add(self.number)
            context._adopt(self)
            self._opened(context)

    def __repr__(self) -> str:
        return f"<CQ {self.number}: {self._cqe} completions{', closed' if self._closed else ''}>"

    @property
    def cqe(self) -> int:
        """Completions that it holds: so many may be outstanding or not polled."""
        return self._cqe

    def _bind(
        self, number: int, qp: CompletingQP, requests: int, shared: SharedRequests | None = None
    ) -> None:
        """Has a new QP complete here, with so many work requests outstanding; the lock is held.

        Beside them those of `shared`, which count once for all QPs that take them. Raises
        `ResourceError` if it is not the only one and the CQ could overflow with it (RFC 5042,
        6.4.3.2).
        """
        pools = {pool for _, _, pool in self._bound.values() if pool is not None}
        bound = sum(each for _, each, _ in self._bound.values())
        bound += sum(pool.max_wr for pool in pools)
        more = requests + (0 if shared is None or shared in pools else shared.max_wr)
        if self._bound and not self._overcommit and bound + more > self._cqe:
            raise ResourceError(
                f"CQ {self.number} holds {self._cqe} completions, the QPs that share it may have "
                f"{bound} work requests outstanding, one more QP {more}; allowed: up to "
                f"{max(0, self._cqe - bound)} more, or a CQ with overcommit"
            )
        self._bound[number] = ref(qp), requests, shared

    def _unbind(self, number: int) -> None:
        """Takes back a `_bind`, with the lock held."""
        del self._bound[number]

    def _require_open(self) -> None:
        """Raises `ValueError` if the CQ is closed: its number may be that of another one.

        `DeviceClosed` if the context is closed, too.
        """
        if self._closed:
            self.context._require_open()
            raise ValueError(f"CQ {self.number} is closed; allowed: an open CQ")

    def _take_entries(self, ask: bool = False) -> None:
        """Takes every entry that the device has written and turns it into a completion.

        One that could not be written is passed over when the device is asked: now with `ask`, else
        each `LOOKS`-th time that nothing has come. Its QP stops with HOST_WRITE_ERROR.

        An entry that completes nothing is an error of the next `poll`: users of other CQs, whom
        this may serve, do not see it.
        """
        ring = self._ring
        with self.context.lock:
            # More do not come before the device is told what was taken.
            for _ in range(ring.entries):
                if self._closed:
                    break
                offset = ring.offset(self._consumer)
                if not ring.is_written(self._consumer):
                    ask = ask or ring.is_due()
                    if not self.context._skip_lost(self.number, ring, self._consumer, ask):
                        break
                    ask = True  # the next one may be lost, too
                    self._consumer = self._consumer + 1 & 0xFFFF
                    continue
                fields = entries.COMPLETION.unpack_from(ring.memory, offset)
                self._consumer = self._consumer + 1 & 0xFFFF
                bound = self._bound.get(int(fields["qp"]))
                if bound is not None and (qp := bound[0]()) is not None:
                    self._complete(qp, fields)
            untold = (self._consumer - self._doorbell) & 0xFFFF
            if untold >= max(1, ring.entries - self._cqe):
                self._ring_doorbell(arm=0)

    def _complete(self, qp: CompletingQP, fields: dict[str, int | bytes]) -> None:
        try:
            completed = qp._completed(
                fields["opcode"] == CompletionOpcode.RECEIVE,
                int(fields["index"]),
                int(fields["length"]),
                CompletionFlags(int(fields["flags"])),
                int(fields["invalidated_stag"]),
                int(fields["immediate_data"]).to_bytes(IMMEDIATE_DATA_OCTETS, "little"),
            )
        except DeviceError as error:
            self._faults.append(error)
            self._tell(solicited=True)
            return
        if completed is not None:
            self._append(completed)

    def _append(self, completion: WC) -> None:
        """Adds a completion, of the device or one that the driver made (a flushed request)."""
        self._ready.append(completion)
        self._tell(_is_solicited(completion))

    def _tell(self, solicited: bool) -> None:
        """Something can be polled: tells who asked for that."""
        self._wake(None)
        if self._notify is _Notify.SOLICITED and not solicited:
            return
        self._notified = True
        if self.channel is not None and self._notify is not _Notify.NONE:
            self._notify = _Notify.NONE
            self.channel._add(self)

    def poll(self, num_entries: int = 16) -> list[WC]:
        """Up to `num_entries` completions that are there; an empty list if there is none.

        Raises `DeviceError`, and takes none, if the device completed what was not posted;
        `ValueError` if the CQ is closed and nothing is left in it.
        """
        try:
            if num_entries < 1:
                raise ValueError(f"num_entries is {num_entries}; allowed: 1 or more")
        except TypeError:  # costs nothing where there is none
            raise TypeError(f"num_entries is {num_entries!r}; allowed: an integer") from None
        with self.context.lock:
            if len(self._ready) < num_entries:
                self._take_entries()
            if self._faults:
                raise self._faults.popleft()
            if not self._ready:
                self._require_open()
                self.context.process_events()
            return [self._ready.popleft() for _ in range(min(num_entries, len(self._ready)))]

    def wait(self, num_entries: int = 1, timeout: float = 10.0) -> list[WC]:
        """Waits until `num_entries` completions came and returns them.

        Raises `WaitTimeout` if they did not within `timeout` seconds, `ValueError` if the CQ is
        closed and has fewer; what came stays in the CQ.
        """
        end = end_of(timeout)
        found: list[WC] = []
        ask = False
        try:
            while True:
                found += self.poll(num_entries - len(found))
                if len(found) == num_entries:
                    return found
                self.context.clear_interrupts()
                self._ring_doorbell(arm=1)
                self._take_entries(ask)
                self.context.process_events(ask)
                found += self.poll(num_entries - len(found))
                if len(found) == num_entries:
                    return found
                left = end - time.monotonic()
                if left > 0:
                    ask = not self.context.wait(min(left, 0.1))
                elif ask:
                    count = f"{len(found)} of {num_entries} completions in {timeout} s"
                    raise WaitTimeout(f"CQ {self.number}: {count}{self._why()}")
                else:
                    ask = True
        except BaseException:
            self._ready.extendleft(reversed(found))
            raise

    # Notification

    def req_notify(self, solicited_only: bool = False) -> None:
        """Asks for one notification, when there is a completion to poll.

        The `CompChannel` of the CQ gets it; without one `wait_event` waits for it. With
        `solicited_only` only that of a Send with Solicited Event that was received, or one in error
        (RFC 5040, 5.3), interrupts the program. Of a completion that is there and not polled yet it
        is told at once: none is lost between the last `poll` and this.

        Raises `ValueError` if the CQ or its channel is closed.
        """
        with self.context.lock:
            if self.channel is not None:
                self.channel._require_open()
            self._ring_doorbell(arm=1, solicited=solicited_only)
            self._notify = _Notify.SOLICITED if solicited_only else _Notify.NEXT
            self._notified = False
            if self._ready or self._faults:
                self._tell(bool(self._faults) or any(map(_is_solicited, self._ready)))

    def _forget_notify(self) -> None:
        """Takes back `req_notify`; the lock is held."""
        self._notify = _Notify.NONE

    def _look(self, ask: bool) -> None:
        """Takes what came if a notification is due; what comes later interrupts."""
        with self.context.lock:
            for_channel = self.channel is not None and self._notify is not _Notify.NONE
            if self._closed or not (for_channel or self._wakers):
                return
            solicited = not self._wakers and self._notify is _Notify.SOLICITED
            self._ring_doorbell(arm=1, solicited=solicited)
            self._take_entries(ask)

    def _event_taken(self) -> None:
        """The program got a notification from the channel; the lock is held."""
        self._unacknowledged += 1

    def ack_events(self, num_events: int) -> None:
        """Acknowledges notifications that `CompChannel.get_cq_event` has returned.

        Nothing waits for that here: a CQ can be closed without. Raises `ValueError` for more than
        there are, or if the CQ is closed.
        """
        with self.context.lock:
            self._require_open()
            if not 0 <= num_events <= self._unacknowledged:
                raise ValueError(
                    f"num_events is {num_events}; allowed: 0 to {self._unacknowledged}, those of "
                    f"CQ {self.number} that get_cq_event returned"
                )
            self._unacknowledged -= num_events

    def wait_event(self, timeout: float = 10.0) -> None:
        """Waits for the completion that `req_notify` asked for; `poll` takes it.

        Raises `ValueError` if the CQ is closed, if none was asked for since the last one came, or
        the CQ has a channel, which is told in place of this; `WaitTimeout` if none comes within
        `timeout` seconds; what was asked for holds on then.
        """
        self.context.lock.check()
        self._require_open()
        if self.channel is not None:
            raise ValueError(
                f"CQ {self.number} has a channel; allowed: CompChannel.get_cq_event, or a CQ "
                "without a channel"
            )
        if self._notify is _Notify.NONE:
            raise ValueError(f"CQ {self.number} has nothing asked for; allowed: after req_notify")
        end = end_of(timeout)
        ask = False
        while True:
            # What came before is looked at after this, what comes later interrupts.
            self.context.clear_interrupts()
            self._ring_doorbell(arm=1, solicited=self._notify is _Notify.SOLICITED)
            self._take_entries(ask)
            self.context.process_events(ask)
            if self._notified:
                self._notify = _Notify.NONE
                return
            left = end - time.monotonic()
            if left > 0:
                ask = not self.context.wait(min(left, 0.1))
            elif ask:
                raise WaitTimeout(f"CQ {self.number}: no event in {timeout} s{self._why()}")
            else:
                ask = True

    def stream(self) -> CompletionStream:
        """The completions for `async for`, one by one as they come; the event loop goes on.

        A task that waits can be cancelled, and the loop left at any time: what was not returned
        stays in the CQ, and a thread that waits for the device while a task does ends within 0.1 s.
        Several tasks may share a CQ; each completion goes to one of them. What `req_notify` asked
        for is told all the same. Not for a device in a cocotb test, which has no time of its own.

        A step raises what `poll` does, `ValueError` if the CQ is closed, also while it waits, and
        what went wrong with the device.
        """
        return CompletionStream(self)

    def _add_waker(self, waker: Waker) -> None:
        """Calls it once, with the lock held, when there may be something to poll.

        At once if that is so already. Raises `ValueError` if the CQ is closed.
        """
        with self.context.lock:
            self._require_open()
            if self._ready or self._faults:
                waker(None)
                return
            self._wakers[waker] = None
            self._ring_doorbell(arm=1)

    def _remove_waker(self, waker: Waker) -> None:
        """Takes back `_add_waker`."""
        with self.context.lock:
            self._wakers.pop(waker, None)

    def _wake(self, error: Exception | None) -> None:
        wakers, self._wakers = self._wakers, {}
        for waker in wakers:
            waker(error)

    def _fail(self, error: Exception) -> None:
        """Nothing more is heard of the device; the lock is held."""
        self._wake(error)

    def _why(self) -> str:
        """Of QPs that complete here and can do nothing yet."""
        with self.context.lock:
            waiting = [
                number
                for number, (bound, *_) in self._bound.items()
                if (qp := bound()) is not None and qp._awaits_first_fpdu
            ]
        return "".join(f"; QP {number} {AWAITS_FIRST_FPDU}" for number in waiting)

    def _ring_doorbell(self, arm: int, solicited: bool = False) -> None:
        with self.context.lock:
            self._require_open()
            self._doorbell = self._consumer
            self.context.write(
                registers.CQ_DOORBELL,
                cq=self.number,
                consumer=self._consumer,
                arm=arm,
                solicited=int(solicited),
            )

    def close(self) -> None:
        """Frees the CQ; the QPs that use it must be closed before, else `ResourceError`."""
        with self.context.lock:
            if self._closed:
                return
            if self._bound:
                raise ResourceError(
                    f"CQ {self.number} is in use by QPs {sorted(self._bound)}; "
                    "allowed: a CQ without QPs"
                )
            self.context._forget(self)
            self._take_entries()
            self.context._disable_ring(self.number)
            self._closed = True
            self._wake(None)
            if self.channel is not None:
                self.channel._unbind(self)
            self.context.cqs.pop(self.number, None)
            self.context._cq_numbers.discard(self.number)
            self.context.resources.used.give(cqs=1, cq_entries=self._cqe)
            self._ring.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_solicited(completion: WC) -> bool:
    """Whether `req_notify(solicited_only=True)` asks for it, too."""
    failed = completion.status != WCStatus.SUCCESS
    return failed or bool(completion.wc_flags & WCFlags.SOLICITED)
