"""A board at a serial port: what the driver does with its link (docs/hostlink.md)."""

import contextlib
import dataclasses
import errno
import os
import secrets
import selectors
import termios
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import serial

from stagecoach.host_driver.hostlink.device import ACCESS_SECONDS, LinkedDevice
from stagecoach.host_driver.hostlink.endpoint import (
    GIVE_UP_SECONDS,
    RETRY_SECONDS,
    Counters,
    Endpoint,
)
from stagecoach.host_driver.hostlink.frames import Deframer, Frame
from stagecoach.host_driver.hostlink.memory import MappedMemory
from stagecoach.host_driver.transport.base import (
    DeviceClosed,
    TransportError,
    TransportTimeout,
    check_access,
)
from stagecoach.hw.interface.hostlink import FLAG, VERSION, Kind

DEFAULT_BAUD = 2_000_000
MOST_WINDOW = 127
"""Messages that can be told from repeated ones by numbers of 8 bits."""

OPEN_SECONDS = 5.0
"""For which the board may take to answer."""

ASK_SECONDS = 0.25
"""Between two tries to begin a session."""

CLOSE_SECONDS = 1.0
"""For which streams may take to end when the device is closed."""

READ_OCTETS = 1 << 16

Result = TypeVar("Result")


def _why_not_opened(error: Exception, baud: int) -> str:
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.EAGAIN, errno.EBUSY):
        return "another program uses it"
    if number is not None:
        return os.strerror(number)
    if isinstance(error.__context__, termios.error):
        return "not a serial port"
    return f"not with {baud} baud: {error}"


@dataclass(frozen=True)
class Hello:
    """What a device says of itself.

    events: LLP events for which it has room; 0 if it has no LLP port. window: messages that may be
    on their way. memory_log2: base 2 logarithm of the bytes of its board's memory; 0 unless it is
    a NIC. clock_hz: of the device.
    """

    events: int
    window: int
    memory_log2: int
    clock_hz: int

    @property
    def is_nic(self) -> bool:
        """Whether the device has a network of its own."""
        return self.memory_log2 > 0


@dataclass(frozen=True)
class LinkTimes:
    """Of a link, in seconds.

    retry_seconds, give_up_seconds: see `Endpoint`. open_seconds: for which the board may take to
    answer. access_seconds: for which an access of the host may take.
    """

    retry_seconds: float = RETRY_SECONDS
    give_up_seconds: float = GIVE_UP_SECONDS
    open_seconds: float = OPEN_SECONDS
    access_seconds: float = ACCESS_SECONDS


class SerialLink(ABC):
    """The part of a `Transport` that every board at a serial port has.

    The board's device is reset when it is opened. A thread serves the port, and what else its
    device has registered with `_selector`.

    Parameters
    ----------
    port: of the system, e.g. /dev/ttyUSB0. baud: that of the board. times: of the link.

    Raises TransportTimeout if no board answers, TransportError if there is no such port or the
    board has another kind of device.
    """

    def __init__(self, port: str, baud: int, times: LinkTimes):
        self._name = port
        self._baud = baud
        try:
            self._port = serial.Serial(port, baud, timeout=0, exclusive=True)
        except (serial.SerialException, OSError, ValueError, OverflowError) as error:
            why = _why_not_opened(error, baud)
            raise TransportError(f"cannot open {port}: {why}") from error
        with contextlib.suppress(ValueError, AttributeError):  # not every port, or system, has it
            self._port.set_low_latency_mode(True)
        self._memory = MappedMemory()
        self._counters = Counters()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._tasks: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._lock = threading.Lock()  # of what follows
        self._stopping = False
        self._ended: str | None = None  # why
        self._changed = threading.Condition()
        self._irq_levels = self._irq_rose = 0  # a bit for each interrupt
        self._out = bytearray()
        self._selector = selectors.DefaultSelector()
        try:
            self._selector.register(self._port.fileno(), selectors.EVENT_READ)
            self._selector.register(self._wake_read, selectors.EVENT_READ)
            self._hello = hello = self._open(times.open_seconds)
            endpoint = Endpoint(
                times.retry_seconds, times.give_up_seconds, self._counters, hello.window
            )
            self._device = self._make_device(hello, endpoint, times.access_seconds)
        except BaseException:
            self._release()
            raise
        self._thread = threading.Thread(target=self._serve, name=f"link at {port}", daemon=True)
        self._thread.start()

    @abstractmethod
    def _make_device(self, hello: Hello, endpoint: Endpoint, access_seconds: float) -> LinkedDevice:
        """What serves the messages of the device. Raises `TransportError` for another kind."""

    def __repr__(self) -> str:
        end = "" if self._ended is None else f", closed: {self._ended}"
        return f"<{type(self).__name__} at {self._name}: {self._baud} baud{end}>"

    # The session

    def _open(self, seconds: float) -> Hello:
        """Begins a session."""
        nonce = secrets.token_bytes(4)
        wish = bytes([FLAG]) + Frame(Kind.OPEN, 0, 0, nonce + bytes([VERSION])).pack()
        deframer = Deframer()
        end = time.monotonic() + seconds
        ask = 0.0
        while (now := time.monotonic()) < end:
            if now >= ask:
                ask = now + ASK_SECONDS
                self._out[:] = wish
            self._write_port()
            for frame in deframer.take(self._wait_port(min(end, ask) - now)):
                if frame is not None and frame.kind == Kind.HELLO and frame.payload[:4] == nonce:
                    return self._check_hello(frame.payload)
        raise TransportTimeout(
            f"no device answers at {self._name}, {self._baud} baud, within {seconds:g} s"
        )

    def _check_hello(self, hello: bytes) -> Hello:
        if len(hello) < 12 or hello[4] != VERSION:
            raise TransportError(
                f"the device at {self._name} speaks version {hello[4] if len(hello) > 4 else '?'} "
                f"of the host link; allowed: {VERSION}"
            )
        found = Hello(hello[5], hello[6], hello[7], int.from_bytes(hello[8:12], "little"))
        has_events = bool(found.events) != found.is_nic
        if not has_events or not 1 <= found.window <= MOST_WINDOW:
            allowed = "0 of a NIC" if found.is_nic else "1 and more"
            raise TransportError(
                f"the device at {self._name} has room for {found.events} events and a window of "
                f"{found.window}; allowed: {allowed}, 1 to {MOST_WINDOW}"
            )
        return found

    def _wait_port(self, seconds: float) -> bytes:
        """Waits for the port, returns what it has."""
        octets = b""
        for key, events in self._selector.select(max(0.0, seconds)):
            if key.fd == self._port.fileno() and events & selectors.EVENT_READ:
                octets = self._read_port()
        return octets

    def _read_port(self) -> bytes:
        """Bytes of a port that can be read."""
        try:
            octets = os.read(self._port.fileno(), READ_OCTETS)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise DeviceClosed(f"{self._name} was lost: {error}") from error
        if not octets:
            raise DeviceClosed(f"{self._name} was lost: it has ended")
        return octets

    def _write_port(self) -> None:
        try:
            while self._out:
                del self._out[: os.write(self._port.fileno(), self._out[:4096])]
        except BlockingIOError:
            pass
        except OSError as error:
            raise DeviceClosed(f"{self._name} was lost: {error}") from error
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)
        if self._selector.get_key(self._port.fileno()).events != wanted:
            self._selector.modify(self._port.fileno(), wanted)

    # The thread

    def _serve(self) -> None:
        why = "the device is closed"
        try:
            while not self._stopping:
                self._serve_once()
            self._finish()
        except Exception as error:
            why = str(error) or type(error).__name__
        finally:
            self._end(why)

    def _serve_once(self) -> None:
        device = self._device
        now = time.monotonic()
        times = [device.deadline(), now + 1.0]
        if not self._out:
            times.append(device.endpoint.deadline())
        wait = 0.0 if self._tasks else min(one for one in times if one is not None) - now
        octets = b""
        for key, events in self._selector.select(max(0.0, wait)):
            if key.fd == self._wake_read:
                os.read(self._wake_read, READ_OCTETS)
            elif key.data is not None:
                device.ready(key.data, events)
            elif events & selectors.EVENT_READ:
                octets = self._read_port()
        now = time.monotonic()
        for kind, payload in device.endpoint.input(octets, now):
            device.take(kind, payload)
        while self._tasks:
            task, result = self._tasks.popleft()
            try:
                task()
            except Exception as error:
                result.set_exception(error)
        device.serve()
        device.check_time(now)
        if device.endpoint.is_lost(now):
            raise DeviceClosed(
                f"the link at {self._name} is lost: the device acknowledges nothing "
                f"({self._counters.broken} broken frames, {self._counters.sent_again} sent again)"
            )
        if not self._out:
            self._out += device.endpoint.output(now)
        self._write_port()

    def _finish(self) -> None:
        """Ends what goes on, in bounded time, and leaves a device that does nothing."""
        end = time.monotonic() + CLOSE_SECONDS
        self._device.leave(CLOSE_SECONDS)
        while not self._device.left and time.monotonic() < end:
            self._serve_once()
        self._out += bytes([FLAG])
        wish = secrets.token_bytes(4) + bytes([VERSION])
        self._out += Frame(Kind.OPEN, 0, 0, wish).pack()
        while self._out and time.monotonic() < end:
            self._write_port()
            self._wait_port(0.01)

    def _end(self, why: str) -> None:
        with self._lock:
            self._ended = why
            tasks, self._tasks = self._tasks, deque()
        error = DeviceClosed(why)
        for _, result in tasks:
            result.set_exception(error)
        self._device.close()
        self._device.fail(error)
        self._release()
        with self._changed:
            self._changed.notify_all()

    def _release(self) -> None:
        self._selector.close()
        self._port.close()
        with self._lock:
            os.close(self._wake_read)
            os.close(self._wake_write)
            self._wake_write = -1

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it is awake
            os.write(self._wake_write, b"\0")

    def _submit(self, task: Callable[["Future[Any]"], None]) -> Any:
        """Has the thread do something that sets the result, at once or later."""
        result: Future[Any] = Future()
        with self._lock:
            if self._ended is not None or self._stopping:
                raise DeviceClosed(self._ended or "the device is closed")
            self._tasks.append((lambda: task(result), result))
            self._wake()
        return result.result()

    def _call(self, action: Callable[[], Result]) -> Result:
        """Has the thread do something, and returns what came of it."""
        value: Result = self._submit(lambda result: result.set_result(action()))
        return value

    def _take_interrupt(self, levels: int) -> None:
        with self._changed:
            self._irq_levels = levels
            self._irq_rose |= levels
            self._changed.notify_all()

    def _wait_interrupt(self, irq: int, timeout: float | None) -> bool:
        """Waits until bit `irq` is high or rose; `False` after the time."""
        mask = 1 << irq
        with self._changed:
            self._changed.wait_for(
                lambda: (self._irq_levels | self._irq_rose) & mask or self._ended is not None,
                timeout,
            )
            if (self._irq_levels | self._irq_rose) & mask:
                self._irq_rose &= ~mask
                return True
        if self._ended is not None:
            raise DeviceClosed(self._ended)
        return False

    # The transport

    @property
    def info(self) -> dict[str, Any]:
        """`kind`, `port`, `baud`, `clock_hz` of the device, and counters of the `link`."""
        return {
            "kind": "serial",
            "port": self._name,
            "baud": self._baud,
            "clock_hz": self._hello.clock_hz,
            "link": dataclasses.asdict(self._counters),
        }

    def read_register(self, address: int) -> int:
        """Return the 32-bit register at a byte address."""
        check_access(address)
        value: int = self._submit(lambda result: self._device.access(address, None, result))
        return value

    def write_register(self, address: int, value: int) -> None:
        """Write a 32-bit register; returns when the device has answered."""
        check_access(address, value)
        self._submit(lambda result: self._device.access(address, value, result))

    def map_memory(self, buffer: Any) -> int:
        """Let the device reach a writable, contiguous buffer; returns its address."""
        return self._call(lambda: self._memory.map(buffer))

    def unmap_memory(self, address: int) -> None:
        """Take back the buffer mapped last at `address`."""
        try:
            self._call(lambda: self._memory.unmap(address))
        except DeviceClosed:
            # Without a thread nobody touches the memory.
            with self._lock:
                self._memory.unmap(address)

    def wait_interrupt(self, timeout: float | None = None) -> bool:
        """Wait for the interrupt; False after the time."""
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"timeout is {timeout!r}; allowed: None or seconds from 0 on")
        return self._wait_interrupt(0, timeout)

    def close(self) -> None:
        """End what goes on, reset the device, close the port; may be called again."""
        with self._lock:
            self._stopping = True
            if self._ended is None:
                self._wake()
        self._thread.join()
        self._memory.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
