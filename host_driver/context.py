"""An open device: its beginning and end, what is made from it, and asynchronous events."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Protocol, Self

from stagecoach.host_driver import registers
from stagecoach.host_driver.answers import read_attr, read_capabilities
from stagecoach.host_driver.device import Device
from stagecoach.host_driver.device_attr import DeviceAttr
from stagecoach.host_driver.device_reset import reset_device
from stagecoach.host_driver.errors import WaitTimeout, require_type
from stagecoach.host_driver.event_queue import EventQueue, StoppableQP
from stagecoach.host_driver.quota import Quota
from stagecoach.host_driver.resources import Resources
from stagecoach.host_driver.transport.base import DeviceClosed, Transport
from stagecoach.hw.interface.causes import Cause

COMMAND_SECONDS = 10.0
"""For which a command may take, if nothing else is said: most end in some hundred cycles."""

OPEN_SECONDS = 60.0
"""For which the opening may take: some 1,300 register accesses of the largest device."""

_NO_QUOTA = Quota()


class OpenQP(StoppableQP, Protocol):
    """A QP of a context."""

    cause: Cause

    def disconnect(self, timeout: float, /) -> None:
        """Ends the stream."""


class OpenMR(Protocol):
    """A memory region of a context."""

    invalidated: bool

    @property
    def pd(self) -> object:
        """The Protection Domain."""

    def invalidated_by(self, qp: object) -> None:
        """The peer of `qp` has invalidated the STag."""


class Observer(Protocol):
    """Looks at an open device."""

    def close(self) -> None:
        """Ends; the device is still open. Called without the lock, and perhaps again."""


OBSERVERS: list[Callable[["Context"], Observer | None]] = []
"""Each is called with every device that was opened; what it returns is closed before the device."""


class Context(Device):
    """A device opened through a transport; closing it closes all that was made from it.

    The driver is the Privileged Resource Manager of RFC 5040, 8.1.2: it owns all tables of the
    device. All calls may be made from several threads.

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
    events: all that came, the oldest first. A program that runs for long takes them out, or calls
        `events.clear()` now and then: one stays for each QP that has stopped.
    events_lost: how many the device had no place for, because more came than its event queue holds
        before they were taken. The QPs that they were about are asked instead: each that has
        stopped gives an event with its cause and `UNKNOWN_INDEX`.

    Raises `DeviceError` if what answers there is not this device, or does not finish in time.
    """

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
        self._closing: dict[Callable[[], None], None] = {}  # in order of creation
        self._closed = False
        self.qps: dict[int, OpenQP] = {}
        self.used_qps: set[int] = set()  # those that are closed, too
        self.cqs: dict[int, object] = {}
        self.mrs: dict[int, OpenMR] = {}  # by STag

        with ExitStack() as undo:
            undo.callback(transport.close)
            self.attr = read_attr(self)
            self.resources = Resources(self.attr.max_mr, quota)
            self.require_idle()
            self._event_queue = EventQueue(self, self.qps)
            undo.callback(self._event_queue.close)
            self.events = self._event_queue.events
            reset_device(self)
            self.write(registers.SETTINGS, strict_rfc7306=int(strict_rfc7306))
            self.attr = replace(self.attr, **read_capabilities(self))
            self._event_queue.begin()
            self.opened()
            self._observers = [seen for observe in OBSERVERS if (seen := observe(self))]
            undo.pop_all()

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
            self._event_queue.process(ask)

    def poll_until(self, done: Callable[[], bool], timeout: float, what: str) -> None:
        """Polls until `done()`; `WaitTimeout` names `what` was waited for."""
        end = time.monotonic() + timeout
        ask = False
        while not done():
            # What came before is looked at after this, what comes later raises it again.
            self.clear_interrupts()
            self.process_events(ask)
            if done():
                return
            if time.monotonic() <= end:
                ask = not self.wait(0.001)
            elif ask:
                raise WaitTimeout(f"{what}: nothing within {timeout} s")
            else:
                ask = True

    # Life

    def on_close(self, close: Callable[[], None]) -> None:
        """Has `close` called when the context closes, last one first."""
        self._closing[close] = None

    def forget_close(self, close: Callable[[], None]) -> None:
        """Takes back `on_close`, for what was closed before the context."""
        self._closing.pop(close, None)

    def require_open(self) -> None:
        """Raises `DeviceClosed` if the context is closed."""
        if self._closed:
            raise DeviceClosed("the context is closed; allowed: an open Context")

    def query_device(self) -> DeviceAttr:
        """Sizes of the device."""
        return self.attr

    def reset(self) -> None:
        """Closes everything that was made from this context; the device is as if newly opened.

        No QP, CQ nor STag is left when this returns, and the device reaches nothing of the
        program's memory. Peers that do not read are not waited for. What cannot be closed does not
        keep the others open; its error is raised at the end.
        """
        with self.lock:
            self.require_open()
            errors: list[Exception] = []
            for qp in list(self.qps.values()):
                self._try(lambda qp=qp: qp.disconnect(0.0), errors)  # type: ignore[misc]
            self._close_all(errors)
            self._try(lambda: reset_device(self), errors)
            self.events.clear()
            self._try(self._event_queue.begin, errors)
            if errors:
                raise errors[0]

    def _close_all(self, errors: list[Exception]) -> None:
        while self._closing:
            close, _ = self._closing.popitem()
            self._try(close, errors)

    def close(self) -> None:
        """Closes everything that was made from this context, and the device.

        What cannot be closed does not keep the others open; its error is raised at the end.
        """
        for observer in self._observers:
            observer.close()
        with self.lock:
            if self._closed:
                return
            errors: list[Exception] = []
            self._close_all(errors)
            self._try(self._event_queue.disable, errors)
            self._closed = True
            self._try(self._event_queue.close, errors)
            self.transport.close()
            if errors:
                raise errors[0]

    @staticmethod
    def _try(close: Callable[[], None], errors: list[Exception]) -> None:
        try:
            close()
        except Exception as error:
            errors.append(error)

    def __enter__(self) -> Self:
        self.require_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
