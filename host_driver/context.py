"""An open device: registers, commands, its beginning and end, and asynchronous events."""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol, Self

from stagecoach.host_driver import entries, registers
from stagecoach.host_driver.answers import DeviceAttr, name_of, read_attr, read_capabilities
from stagecoach.host_driver.counters import query_dropped_events
from stagecoach.host_driver.device_reset import reset_device
from stagecoach.host_driver.enums import QPState
from stagecoach.host_driver.errors import DeviceError, QPError, WaitTimeout, require_type
from stagecoach.host_driver.events import UNKNOWN_INDEX, AsyncEvent, read_event
from stagecoach.host_driver.quota import Quota
from stagecoach.host_driver.registers import Register
from stagecoach.host_driver.resources import Resources
from stagecoach.host_driver.ring import Ring
from stagecoach.host_driver.transport.base import DeviceClosed, Transport
from stagecoach.hw.interface.causes import Cause

if TYPE_CHECKING:
    from stagecoach.host_driver.cq import CQ
    from stagecoach.host_driver.mr import MR
    from stagecoach.host_driver.qp import QP

COMMAND_SECONDS = 10.0
"""For which a command may take, if nothing else is said: most end in some hundred cycles."""

OPEN_SECONDS = 60.0
"""For which the opening may take: some 1,300 register accesses of the largest device."""

EVENT_RING_ENTRIES = 256

_OF_COMMANDS = {registers.COMMAND.address} | {
    *range(registers.QP_NUMBER.address, registers.FPDUS_SENT.address)
}
"""Addresses of COMMAND and of its arguments."""

_NO_QUOTA = Quota()


class Observer(Protocol):
    """Looks at an open device."""

    def close(self) -> None:
        """Ends; the device is still open. Called without the lock, and perhaps again."""


OBSERVERS: list[Callable[["Context"], Observer | None]] = []
"""Each is called with every device that was opened; what it returns is closed before the device."""


class CommandOpcode(IntEnum):
    """COMMAND.opcode."""

    QP_CREATE = 1
    QP_CONNECT = 2
    QP_STOP = 3
    QP_DESTROY = 4
    STAG_WRITE = 5
    STAG_INVALIDATE = 6
    CQ_ENABLE = 7
    CQ_DISABLE = 8
    STAG_RESET = 9


class Context:
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
        if not hasattr(transport, "read_register"):
            raise TypeError(f"transport is a {type(transport).__name__}; allowed: a Transport")
        self.transport = transport
        self.lock = threading.RLock()
        self._closing: dict[Callable[[], None], None] = {}  # in order of creation
        self._closed = False
        self.qps: dict[int, QP] = {}
        self.used_qps: set[int] = set()  # those that are closed, too
        self.cqs: dict[int, CQ] = {}
        self.mrs: dict[int, MR] = {}  # by STag
        self.events: list[AsyncEvent] = []
        self.events_lost = 0
        self._unfinished: int | None = None  # opcode of a command that did not end
        self._command_seconds = command_seconds
        self._open_seconds = open_seconds
        self._open_until: float | None = time.monotonic() + open_seconds  # `None`: it is open

        with ExitStack() as undo:
            undo.callback(transport.close)
            self.attr = read_attr(self)
            self.resources = Resources(self.attr.max_mr, quota)
            if self._wait_for_command() is None:
                raise DeviceError(
                    "a command of another program is not finished: COMMAND_STATUS.busy is 1 for "
                    f"{command_seconds:g} s; allowed: a device that is reset or idle"
                )
            self._event_ring = Ring(transport, EVENT_RING_ENTRIES, entries.EVENT.size)
            undo.callback(self._event_ring.close)
            reset_device(self)
            self.write(registers.SETTINGS, strict_rfc7306=int(strict_rfc7306))
            self.attr = replace(self.attr, **read_capabilities(self))
            self._begin_events()
            self._open_until = None
            self._observers = [seen for observe in OBSERVERS if (seen := observe(self))]
            undo.pop_all()

    def _begin_events(self) -> None:
        """Gives the event ring to the device, empty."""
        self._event_ring.memory[:] = bytes(len(self._event_ring.memory))
        self._event_number = 0
        self.enable_ring(self.attr.max_cq, self._event_ring)
        self._events_dropped = query_dropped_events(self)
        self.write(registers.INTERRUPT_ENABLE, completion=1, event=1)
        self._arm_events()

    # Registers and commands

    def read(self, register: Register) -> dict[str, int]:
        """The fields of a register."""
        self._check_opening(register)
        return register.unpack(self.transport.read_register(register.address))

    def write(self, register: Register, **fields: int) -> None:
        """Writes a register; fields that are not named are zero.

        Raises `DeviceError` for COMMAND and its arguments behind a command that did not end.
        """
        self._check_opening(register)
        if self._unfinished is not None and register.address in _OF_COMMANDS:
            raise DeviceError(
                f"command {self._unfinished} has not ended, the device takes no other one; "
                "allowed: close the context and reset the device"
            )
        self.transport.write_register(register.address, register.pack(**fields))

    def _check_opening(self, register: Register) -> None:
        if self._open_until is not None and time.monotonic() >= self._open_until:
            raise DeviceError(
                f"the device is not open after {self._open_seconds:g} s, at {name_of(register)}; "
                "allowed: more open_seconds if it is only slow"
            )

    def write_wide(self, low: Register, high: Register, value: int) -> None:
        """Writes a value of up to 64 bits to two registers."""
        self.write(low, value=value & 0xFFFFFFFF)
        self.write(high, value=value >> 32)

    def command(self, opcode: int) -> None:
        """Runs a command to its end; its arguments are in the staging registers.

        Raises `DeviceError` if the device finds an argument invalid, or does not finish. Then it
        is of no use any more: it would not answer the write of another COMMAND, and use changed
        arguments.
        """
        self.write(registers.COMMAND, opcode=opcode)
        status = self._wait_for_command()
        if status is None:
            self._unfinished = opcode
            raise DeviceError(
                f"command {opcode}, {CommandOpcode(opcode).name}, is not finished: "
                f"COMMAND_STATUS.busy is 1 for {self._command_seconds:g} s"
            )
        if status["invalid"]:
            raise DeviceError(f"the device refused command {opcode}: invalid argument")

    def _wait_for_command(self) -> dict[str, int] | None:
        """COMMAND_STATUS when no command is under way, `None` if one does not end in time."""
        end = time.monotonic() + self._command_seconds
        while True:
            late = time.monotonic() >= end
            status = self.read(registers.COMMAND_STATUS)
            if not status["busy"]:
                return status
            if late:
                return None

    def enable_ring(self, number: int, ring: Ring) -> None:
        """Gives a completion ring, or the event ring, to the device."""
        with self.lock:
            self.write(registers.CQ_NUMBER, cq=number)
            self.write_wide(registers.CQ_BASE_LOW, registers.CQ_BASE_HIGH, ring.address)
            self.write(registers.CQ_SIZE, log2=ring.log2)
            self.command(CommandOpcode.CQ_ENABLE)

    def disable_ring(self, number: int) -> None:
        """Takes a completion ring, or the event ring, from the device."""
        with self.lock:
            self.write(registers.CQ_NUMBER, cq=number)
            self.command(CommandOpcode.CQ_DISABLE)

    @property
    def cycles(self) -> int:
        """Core clock cycles of the device since its reset."""
        with self.lock:
            low = self.read(registers.CYCLES_LOW)["value"]
            return low | self.read(registers.CYCLES_HIGH)["value"] << 32

    @property
    def fpdus_sent(self) -> int:
        """FPDUs sent since reset, mod 2^32."""
        return self.read(registers.FPDUS_SENT)["value"]

    @property
    def fpdus_received(self) -> int:
        """FPDUs received with good CRC since reset, mod 2^32."""
        return self.read(registers.FPDUS_RECEIVED)["value"]

    # Events

    def process_events(self, ask: bool = False) -> None:
        """Takes what the device wrote to the event ring; stops the QPs that it names.

        Of an event that could not be written, or had no place, its QP tells, when the device is
        asked: now with `ask`, else each `LOOKS`-th time, and when the ring was full.
        """
        with self.lock:
            ring = self._event_ring
            ask = ask or ring.is_due()
            taken, lost = 0, False
            try:
                # More do not come before the device is told what was taken.
                for _ in range(ring.entries):
                    if self._closed:
                        break
                    offset = ring.offset(self._event_number)
                    if not ring.is_written(self._event_number):
                        number = self.attr.max_cq
                        if not self.skip_lost(number, ring, self._event_number, ask or lost):
                            break
                        self._event_number = self._event_number + 1 & 0xFFFF
                        taken, lost = taken + 1, True
                        continue
                    fields = entries.EVENT.unpack_from(ring.memory, offset)
                    self._event_number = self._event_number + 1 & 0xFFFF
                    taken += 1
                    qp = self.qps.get(int(fields["qp"]))
                    event = read_event(fields)
                    self.events.append(event)
                    if qp is not None:
                        qp.stopped(event)
                if lost:
                    self._find_stopped()
            finally:
                if taken:
                    self.write(registers.INTERRUPT_STATUS, event=1)
                    self._arm_events()
            # Behind the doorbell, which made room: those that came before it are counted
            if (ask or taken >= ring.entries) and not self._closed:
                self._find_dropped()

    def _find_dropped(self) -> None:
        """Stops the QPs whose events had no place."""
        dropped = query_dropped_events(self)
        more = dropped - self._events_dropped & 0xFFFF
        self._events_dropped = dropped
        if more:
            self.events_lost += more
            self._find_stopped()

    def skip_lost(self, number: int, ring: Ring, entry: int, ask: bool) -> bool:
        """Whether an entry of CQ `number` that is not there is lost, see `Ring.skip_lost`.

        Without `ask` the device is not asked, and none is known to be.
        """
        if not ask:
            return False
        self.write(registers.CQ_NUMBER, cq=number)
        answered = self.read(registers.CQ_ANSWERED)["entries"]
        if ring.entries < answered - entry & 0xFFFF < 0x8000:
            raise DeviceError(
                f"CQ {number} has CQ_ANSWERED {answered}; allowed: at most {ring.entries} entries "
                f"behind {entry}"
            )
        return ring.skip_lost(entry, answered)

    def _find_stopped(self) -> None:
        """Stops the QPs that have stopped and were not told of."""
        for qp in list(self.qps.values()):
            if qp.state not in (QPState.INIT, QPState.RTS):
                continue
            state, cause = qp.query_state()
            if state == QPState.ERR:
                event = AsyncEvent(qp.qp_num, cause, UNKNOWN_INDEX, 0, b"")
                self.events.append(event)
                qp.stopped(event)

    def _arm_events(self) -> None:
        """Has the next event raise the interrupt, at once if it is there."""
        self.write(registers.CQ_DOORBELL, cq=self.attr.max_cq, consumer=self._event_number, arm=1)

    def wait(self, seconds: float) -> bool:
        """Waits for an interrupt of the device, at most some time; whether there was one."""
        return self.transport.wait_interrupt(max(0.0, seconds))

    def clear_interrupts(self) -> None:
        """Clears what raised the interrupt, so that the next cause raises it again."""
        self.write(registers.INTERRUPT_STATUS, completion=1, event=1)

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
            self._try(self._begin_events, errors)
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
            self._try(lambda: self.disable_ring(self.attr.max_cq), errors)
            self._closed = True
            self._try(self._event_ring.close, errors)
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


def raise_if_stopped(qp: "QP") -> None:
    """Raises the error of a QP that has stopped."""
    if qp.cause not in (Cause.NONE, Cause.STOPPED_BY_DRIVER):
        raise QPError(qp.qp_num, qp.cause, qp.terminate)
