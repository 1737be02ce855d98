"""An open device: its beginning and end, what is made from it, and asynchronous events."""

import _thread
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Protocol, Self
from weakref import WeakKeyDictionary, ref

from stagecoach.host_driver import registers
from stagecoach.host_driver.answers import read_attr, read_capabilities
from stagecoach.host_driver.by_number import ByNumber
from stagecoach.host_driver.deadline import end_of
from stagecoach.host_driver.device import Device
from stagecoach.host_driver.device_attr import DeviceAttr
from stagecoach.host_driver.device_reset import reset_device
from stagecoach.host_driver.dropped import Open, reference_to, told, warn
from stagecoach.host_driver.enums import QPState
from stagecoach.host_driver.errors import ResourceError, WaitTimeout, require_type
from stagecoach.host_driver.event_handlers import EventHandler, EventHandlers
from stagecoach.host_driver.event_queue import EventQueue, StoppableQP, TellingSRQ
from stagecoach.host_driver.events import AsyncEvent
from stagecoach.host_driver.memory_allocator import MemoryAllocator
from stagecoach.host_driver.mpa_terms import Connection
from stagecoach.host_driver.quota import Quota
from stagecoach.host_driver.readable import Readable
from stagecoach.host_driver.resources import Resources
from stagecoach.host_driver.transport.base import DeviceClosed, Transport
from stagecoach.host_driver.transport.memory import memory_of
from stagecoach.host_driver.transport.network import note_carrier
from stagecoach.host_driver.watcher import SLICE_SECONDS, Watcher
from stagecoach.hw.interface.causes import Cause

COMMAND_SECONDS = 10.0
"""Default time limit of a command, in seconds: most end in some hundred cycles."""

OPEN_SECONDS = 60.0
"""Default time limit of opening, in seconds: some 1,900 register accesses of the largest device."""

_NO_QUOTA = Quota()


class OpenQP(StoppableQP, Protocol):
    """A QP of a context, as `Context.qps` has it: a `QP`."""

    qp_num: int
    cause: Cause
    connection: Connection | None

    @property
    def state(self) -> QPState:
        """State of the QP now: events that have come are taken first."""

    @property
    def srq(self) -> object | None:
        """The SRQ that it takes from."""

    def query_state(self) -> tuple[QPState, Cause]:
        """State and first error of the QP, as the device has them."""

    def disconnect(self, timeout: float = ...) -> None:
        """Ends the stream; what was not completed is flushed."""

    def close(self) -> None:
        """Ends the stream and frees the QP."""


class OpenMR(Protocol):
    """A memory region of a context."""

    invalidated: bool

    @property
    def pd(self) -> object:
        """The Protection Domain."""

    def _invalidated_by(self, qp: object) -> None:
        """The peer of `qp` has invalidated the STag."""


class OpenCQ(Protocol):
    """A CQ of a context."""

    def _look(self, ask: bool) -> None:
        """Takes what came, if a caller waits for it."""

    def _fail(self, error: Exception) -> None:
        """Nothing more is heard of the device."""


class OpenChannel(Protocol):
    """A completion channel of a context."""

    def _fail(self, error: Exception) -> None:
        """Nothing more is heard of the device."""


class Observer(Protocol):
    """Looks at an open device."""

    def close(self) -> None:
        """Ends; the device is still open. Called without the lock, and perhaps again."""


OBSERVERS: list[Callable[["Context"], Observer | None]] = []
"""Each is called with every device that was opened; what it returns is closed before the device."""

_OPENED: WeakKeyDictionary[Transport, "ref[Context]"] = WeakKeyDictionary()
"""The context that was opened last through each transport."""


class Context(Device):
    """A device opened through a transport; closing it closes all that was made from it.

    What is made from it keeps it open. A program keeps all that it uses, or that peers use by a
    number: what it drops open is closed, and told of by a `ResourceWarning`, and so is the context
    itself. What is in a circle of references goes when the garbage collector finds it, and frees
    what it holds with the next call.

    The driver is the Privileged Resource Manager of RFC 5040, 8.1.2: it owns all tables of the
    device. All calls may be made from several threads, also on the objects that are made from it:
    each takes the lock of the context for as long as it does not wait. In a process that was forked
    from that which has opened the device they raise `DeviceClosed`.

    Parameters
    ----------
    transport: the way to the device, e.g. `SimulatedDevice()`. The context closes it, also if it
        cannot be opened. What another process has left on the device is cleared.
    quota: how much of the device may be in use at a time; all of it if not given.
    strict_rfc7306: the whole device has the atomics of RFC 7306 only: Swap, of the draft before it,
        is an error, sent and received.
    command_seconds: for which a command of the device may take.
    open_seconds: for which all that is asked of the device before it is open may take.

    Attributes
    ----------
    attr: sizes and capabilities of the device. transport: the way to it.
    qps: the open QPs by their number, which completions and events have as `qp_num`:
        `context.qps[wc.qp_num].state`. mrs: the open memory regions by their STag. Both are the
        driver's own, and only read; they keep nothing open.
    events: all that came and no handler got, the oldest first. A program that runs for long takes
        them out, as `get_async_event` does, or calls `events.clear()` now and then: one stays for
        each QP that has stopped.
    events_lost: how many the device had no place for, because more came than its event queue holds
        before they were taken. The QPs that they were about are asked instead: each that has
        stopped gives an event with its cause and `UNKNOWN_INDEX`.

    Raises `DeviceError` if what answers there is not this device, or does not finish in time.
    """

    _closed = True  # until it is open

    def __init__(
        self,
        transport: Transport,
        quota: Quota = _NO_QUOTA,
        *,
        strict_rfc7306: bool = False,
        command_seconds: float = COMMAND_SECONDS,
        open_seconds: float = OPEN_SECONDS,
    ):
        require_type("quota", quota, Quota)
        super().__init__(transport, command_seconds, open_seconds)
        self.frees_at_once = getattr(transport, "calls_from_any_thread", True)
        # What is made from a context has it. So it has none of that, but its numbers: they are free
        # when the device has them no more. In order of creation:
        self._open: WeakKeyDictionary[Open, None] = WeakKeyDictionary()
        self._qp_numbers: dict[int, bool] = {}  # whether it has a receive ring of its own
        self._srq_numbers: set[int] = set()
        self._cq_numbers: set[int] = set()
        self.qps: ByNumber[OpenQP] = ByNumber()
        self.srqs: ByNumber[TellingSRQ] = ByNumber()
        self.used_qps: set[int] = set()  # those that are closed, too
        self.cqs: ByNumber[OpenCQ] = ByNumber()
        self.channels: WeakKeyDictionary[OpenChannel, None] = WeakKeyDictionary()
        self.watcher = Watcher(self, self.frees_at_once)
        self._handlers = EventHandlers(self.watcher)
        self._readable: Readable | None = None
        self._error: Exception | None = None
        self.mrs: ByNumber[OpenMR] = ByNumber()

        with ExitStack() as undo:
            undo.callback(transport.close)
            self.attr = read_attr(self)
            self.resources = Resources(self.attr.max_mr, quota)
            self._require_idle()
            self._event_queue = EventQueue(self, self.qps, self.srqs)
            undo.callback(self._event_queue.close)
            self.events = self._event_queue.events
            reset_device(self)
            self.write(registers.SETTINGS, strict_rfc7306=int(strict_rfc7306))
            memory = memory_of(transport)
            self.attr = replace(self.attr, max_dm_size=memory, **read_capabilities(self))
            self.memory_allocator = MemoryAllocator(memory)
            self._event_queue.begin(self)
            self._end_of_opening()
            self._reference = reference_to(self)
            # It was reset: what an earlier context still has is not on the device any more, and is
            # not to be taken from it when the program drops that.
            if (earlier := _OPENED.get(transport)) and (replaced := earlier()) is not None:
                replaced._closed = True
            _OPENED[transport] = ref(self)
            self._closed = False
            self._observers = [seen for observe in OBSERVERS if (seen := observe(self))]
            undo.pop_all()

    def __repr__(self) -> str:
        kind = type(self.transport).__name__
        if self._closed:
            return f"<Context of {kind}: closed>"
        qps, cqs = len(self._qp_numbers), len(self._cq_numbers)
        regions = self.resources.used["mrs"]
        return f"<Context of {kind}: {qps} QPs, {cqs} CQs, {regions} regions>"

    # Events

    @property
    def events_lost(self) -> int:
        """Events that the device had no place for, since the context was opened."""
        return self._event_queue.lost

    def process_events(self, ask: bool = False) -> None:
        """Takes what the device wrote to the event ring; stops the QPs that it names.

        Of an event that could not be written, or had no place, its QP tells, when the device is
        asked: now with `ask`, else each `LOOKS`-th time, and when the ring was full.
        """
        with self.lock:
            try:
                self._event_queue.process(self, ask)
            finally:
                self._hand_out()

    def get_async_event(self, timeout: float = 10.0) -> AsyncEvent:
        """Takes the oldest of `events`, and waits for one if there is none.

        With a timeout of 0 it takes one that is there. Raises `WaitTimeout` if none comes within
        `timeout` seconds, `ValueError` if that is less than 0, `DeviceClosed` if the context is
        closed, also while this waits; and what went wrong with the device, if there is a file
        descriptor.
        """
        taken: list[AsyncEvent] = []

        def take() -> bool:
            with self.lock:
                self._require_open()
                if not taken and self.events:
                    taken.append(self.events.pop(0))
                    self._show()
                if not taken and self._error is not None:
                    raise self._error
            return bool(taken)

        self.wait_until(take, timeout, "asynchronous event")
        return taken[0]

    def _tell(self, event: AsyncEvent) -> None:
        """Tells the program of an event that the driver found; the lock is held."""
        self.events.append(event)
        self._hand_out()

    def add_event_handler(self, handler: EventHandler) -> None:
        """Has `handler(event)` called with each asynchronous event, those in `events` first.

        A thread of the driver calls it, one event after the other, and holds no lock: the handler
        may use the device, close its QPs, and remove itself. What handlers get is not kept in
        `events`. What one raises is logged, and an error of the device, after which no event comes.
        Not for a device in a cocotb test, which has no time of its own.
        """
        with self.lock:
            self._require_open()
            self._handlers.add(handler)
            self._hand_out()

    def remove_event_handler(self, handler: EventHandler) -> None:
        """Takes back `add_event_handler`. Raises `ValueError` if `handler` was not added."""
        with self.lock:
            self._handlers.remove(handler)

    def fileno(self) -> int:
        """A descriptor that is readable while there is an asynchronous event, or an error.

        For `select`, `selectors` and `loop.add_reader`; take the event with `get_async_event(0)`
        and do not read from the descriptor. Of what the program itself takes out of `events` the
        descriptor hears within 0.1 s; of what handlers take, not at all. From the first call until
        the context is closed a thread waits for the device. Unregister it before you close the
        context. Not for a device in a cocotb test, which has no time of its own.
        """
        with self.lock:
            self._require_open()
            if self._readable is None:
                readable = Readable()
                try:
                    self.watcher.join()
                except BaseException:
                    readable.close()
                    raise
                self._readable = readable
                self._show()
            return self._readable.fileno()

    def _hand_out(self) -> None:
        """Gives what came to the handlers, if there are any, else shows that it is there."""
        while self._handlers and self.events:
            self._handlers.tell(self.events.pop(0))
        self._show()

    def _show(self) -> None:
        if self._readable is not None:
            self._readable.set(bool(self.events) or self._error is not None)

    def poll_until(self, done: Callable[[], bool], timeout: float, what: str) -> None:
        """Polls until `done()`; `WaitTimeout` names `what` was waited for."""
        self._wait_until(done, timeout, what, 0.001)

    def wait_until(self, done: Callable[[], bool], timeout: float, what: str) -> None:
        """As `poll_until`, for what an interrupt tells of, and for longer waits."""
        self._wait_until(done, timeout, what, SLICE_SECONDS)

    def _wait_until(
        self, done: Callable[[], bool], timeout: float, what: str, longest: float
    ) -> None:
        end = end_of(timeout)
        ask = False
        while not done():
            self._look(ask)
            if done():
                return
            left = end - time.monotonic()
            if left > 0:
                ask = not self.wait(min(left, longest))
            elif ask:
                raise WaitTimeout(f"{what}: nothing within {timeout} s")
            else:
                ask = True

    def wait(self, seconds: float) -> bool:
        """Waits for an interrupt of the device, at most some time; it may return too early."""
        beside = self.watcher.wait_beside(max(0.0, seconds))
        return self._wait_for_interrupt(seconds) if beside is None else beside

    def clear_interrupts(self) -> None:
        """Clears what raised the interrupt, so that the next cause raises it again.

        Raises `DeviceClosed` if the context is closed: a wait of another thread ends so.
        """
        with self.lock:
            self._require_open()
            super().clear_interrupts()

    def _wait_for_interrupt(self, seconds: float) -> bool:
        try:
            return super().wait(seconds)
        except DeviceClosed:
            self._require_open()
            raise

    def _look(self, ask: bool) -> None:
        """Takes events, and the completions to be notified of."""
        # What came before is looked at after this, what comes later raises it again.
        self.clear_interrupts()
        self.process_events(ask)
        with self.lock:
            cqs = list(self.cqs.values())
        for cq in cqs:
            cq._look(ask)

    def _fail(self, error: Exception) -> None:
        """Tells those who wait without a thread that they wait in vain."""
        with self.lock:
            self._error = error
            self._handlers.fail(error)
            self._show()
            for each in (*list(self.channels), *list(self.cqs.values())):
                each._fail(error)

    # Life

    def _adopt(self, made: Open) -> None:
        """Has it closed when the context closes, last one first."""
        self._open[made] = None

    def _forget(self, made: Open) -> None:
        """Takes back `_adopt`, for what was closed before the context."""
        self._open.pop(made, None)

    def _require_open(self) -> None:
        """Raises `DeviceClosed` if the context is closed, or of another process."""
        self.lock.check()
        if self._closed:
            kind = type(self.transport).__name__
            raise DeviceClosed(f"the context of {kind} is closed; allowed: an open Context")

    def _take_qp_number(self, shared: bool) -> int:
        """Number for a new QP; `shared`: one that takes from an SRQ. The lock is held.

        A QP with a receive queue has the ring with its number, which no SRQ may have. Another one
        gets a number that is of no use to those, if there is one.
        """
        most = self.attr.max_qp
        if shared:
            for number in sorted(self._srq_numbers):
                if number not in self._qp_numbers:
                    return number
            return self.resources.take_number(self._qp_numbers, most, "QPs")
        rings = self._srq_numbers
        what = f"QPs or rings ({len(rings)} of SRQs)" if rings else "QPs"
        return self.resources.take_number(self._qp_numbers.keys() | rings, most, what)

    def _take_ring(self) -> int:
        """Number of the receive ring for a new SRQ: one that no QP needs, else the highest.

        Raises `ResourceError` if there is none. The lock is held.
        """
        own = {number for number, has_ring in self._qp_numbers.items() if has_ring}
        free = set(range(self.attr.max_srq)) - own - self._srq_numbers
        if not free:
            raise ResourceError(
                f"all {self.attr.max_srq} receive rings of the device are in use: {len(own)} by "
                f"QPs, {len(self._srq_numbers)} by SRQs"
            )
        return max(free & self._qp_numbers.keys() or free)

    def query_device(self) -> DeviceAttr:
        """Sizes of the device."""
        self._require_open()
        return self.attr

    def reset(self) -> None:
        """Closes everything that was made from this context; the device is as if newly opened.

        No QP, CQ nor STag is left when this returns, and the device reaches nothing of the
        program's memory. Peers that do not read are not waited for. What cannot be closed does not
        keep the others open; its error is raised at the end.
        """
        with self.lock:
            self._require_open()
            errors: list[Exception] = []
            for qp in list(self.qps.values()):
                self._try(lambda qp=qp: qp.disconnect(0.0), errors)  # type: ignore[misc]
            self._close_all(errors)
            self._try(lambda: reset_device(self), errors)
            self.events.clear()
            self._show()
            self._try(lambda: self._event_queue.begin(self), errors)
            if errors:
                raise errors[0]

    def _close_all(self, errors: list[Exception]) -> None:
        while self._open:
            with suppress(KeyError):  # the last one was dropped
                last, _ = self._open.popitem()
                self._try(last.close, errors)
                del last

    def close(self) -> None:
        """Closes everything that was made from this context, and the device.

        What cannot be closed does not keep the others open; its error is raised at the end.
        """
        self.lock.check()
        for observer in self._observers:
            observer.close()
        self.watcher.close()
        self._handlers.close()
        with self.lock:
            if self._closed:
                return
            errors: list[Exception] = []
            self._close_all(errors)
            self._try(lambda: self._event_queue.disable(self), errors)
            self._closed = True
            self._try(self._event_queue.close, errors)
            if self._readable is not None:
                self._readable.close()
                self._readable = None
            self.transport.close()
            if errors:
                raise errors[0]

    @staticmethod
    def _try(close: Callable[[], None], errors: list[Exception]) -> None:
        try:
            close()
        except Exception as error:
            errors.append(error)

    def __del__(self) -> None:
        if self._closed or not self.lock.is_own or sys.is_finalizing():
            return
        words = told(self)
        if self.frees_at_once:
            # Nobody is in a call of it. But the garbage collector may run inside a transport that
            # has to do with this one, such as that of the other end.
            if self._reference() is not None:
                self._free_dropped()
            else:
                _thread.start_new_thread(self._free_dropped, ())
        warn(words, self, 2)

    def _free_dropped(self) -> None:
        with suppress(Exception):  # nobody is there to be told
            self.close()

    def __enter__(self) -> Self:
        self._require_open()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        note_carrier(error, self.transport)
        self.close()
