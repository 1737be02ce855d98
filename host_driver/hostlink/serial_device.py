"""A board at a serial port as a device of the driver (docs/hostlink.md)."""

import contextlib
import dataclasses
import errno
import os
import secrets
import selectors
import termios
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

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
    ByteStream,
    DeviceClosed,
    TransportError,
    TransportTimeout,
    check_access,
)
from stagecoach.host_driver.transport.lending import SocketLender
from stagecoach.host_driver.transport.records import Record
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


class SerialDevice(SocketLender):
    """A `Transport` to a board at a serial port, or to what stands for one at a pseudo-terminal.

    The board's device is reset when it is opened. A thread serves the port and the sockets.

    Parameters
    ----------
    port: of the system, e.g. /dev/ttyUSB0.
    baud: that of the board.
    record: keep the bytes of all streams, for `take_records`.
    retry_seconds, give_up_seconds: of the link, see `Endpoint`.
    open_seconds: for which the board may take to answer.
    access_seconds: for which a register access may take.

    Raises TransportTimeout if no board answers, TransportError if there is no such port.
    """

    memory_octets = 0
    """A board has no memory of its own that the link reaches."""

    def __init__(
        self,
        port: str,
        baud: int = DEFAULT_BAUD,
        *,
        record: bool = False,
        retry_seconds: float = RETRY_SECONDS,
        give_up_seconds: float = GIVE_UP_SECONDS,
        open_seconds: float = OPEN_SECONDS,
        access_seconds: float = ACCESS_SECONDS,
    ):
        super().__init__(record)
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
        self._irq_level = self._irq_rose = False
        self._out = bytearray()
        self._selector = selectors.DefaultSelector()
        try:
            self._selector.register(self._port.fileno(), selectors.EVENT_READ)
            self._selector.register(self._wake_read, selectors.EVENT_READ)
            hello = self._open(open_seconds)
        except BaseException:
            self._release()
            raise
        events, window = hello[5], hello[6]
        self._clock_hz = int.from_bytes(hello[8:12], "little")
        endpoint = Endpoint(retry_seconds, give_up_seconds, self._counters, window)
        self._device = LinkedDevice(
            endpoint,
            self._memory,
            self._selector,
            events,
            self._take_interrupt,
            record,
            access_seconds,
        )
        self._thread = threading.Thread(target=self._serve, name=f"link at {port}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        end = "" if self._ended is None else f", closed: {self._ended}"
        return f"<SerialDevice at {self._name}: {self._baud} baud{end}>"

    # The session

    def _open(self, seconds: float) -> bytes:
        """Begins a session; returns the payload of HELLO."""
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

    def _check_hello(self, hello: bytes) -> bytes:
        if len(hello) < 12 or hello[4] != VERSION:
            raise TransportError(
                f"the device at {self._name} speaks version {hello[4] if len(hello) > 4 else '?'} "
                f"of the host link; allowed: {VERSION}"
            )
        if not hello[5] or not 1 <= hello[6] <= MOST_WINDOW:
            raise TransportError(
                f"the device at {self._name} has room for {hello[5]} events and a window of "
                f"{hello[6]}; allowed: 1 and more, 1 to {MOST_WINDOW}"
            )
        return hello

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
        times = [device.llp.deadline(), now + 1.0]
        if not self._out:
            times.append(device.endpoint.deadline())
        wait = 0.0 if self._tasks else min(one for one in times if one is not None) - now
        octets = b""
        for key, events in self._selector.select(max(0.0, wait)):
            if key.fd == self._wake_read:
                os.read(self._wake_read, READ_OCTETS)
            elif key.data is not None:
                device.llp.ready(key.data, events)
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
        device.llp.serve()
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
        """Ends the streams, in bounded time, and leaves a device that does nothing."""
        llp = self._device.llp
        end = time.monotonic() + CLOSE_SECONDS
        for number in llp.attached:
            llp.detach(number, CLOSE_SECONDS, lambda flushed: None)
        while llp.attached and time.monotonic() < end:
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
        self._device.llp.close()
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

    def _take_interrupt(self, level: bool) -> None:
        with self._changed:
            self._irq_level = level
            self._irq_rose |= level
            self._changed.notify_all()

    # The transport

    @property
    def info(self) -> dict[str, Any]:
        """`kind`, `port`, `baud`, `clock_hz` of the device, and counters of the `link`."""
        return {
            "kind": "serial",
            "port": self._name,
            "baud": self._baud,
            "clock_hz": self._clock_hz,
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

    def attach(self, connection: int, stream: ByteStream) -> None:
        """Lend the socket of a `SocketStream` to the device."""

        def take(descriptor: int) -> None:
            self._call(lambda: self._device.llp.attach(connection, descriptor))

        self._lend(connection, stream, take)

    def detach(self, connection: int, timeout: float = 2.0) -> None:
        """Send what the device has sent, close the socket, free the connection."""

        def begin(result: "Future[Any]") -> None:
            self._device.llp.detach(connection, timeout, result.set_result)

        if not self._submit(begin):
            raise TransportTimeout(
                f"detach of connection {connection}: not everything could be sent in time"
            )

    def wait_interrupt(self, timeout: float | None = None) -> bool:
        """Wait for the interrupt; False after the time."""
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"timeout is {timeout!r}; allowed: None or seconds from 0 on")
        with self._changed:
            self._changed.wait_for(
                lambda: self._irq_level or self._irq_rose or self._ended is not None, timeout
            )
            if self._irq_level or self._irq_rose:
                self._irq_rose = False
                return True
        if self._ended is not None:
            raise DeviceClosed(self._ended)
        return False

    def take_records(self) -> list[Record]:
        """Return what crossed the LLP since the last call; needs `record=True`."""
        records, self._device.llp.records = self._device.llp.records, []
        return records

    def close(self) -> None:
        """End the streams, reset the device, close the port; may be called again."""
        with self._lock:
            self._stopping = True
            if self._ended is None:
                self._wake()
        self._thread.join()
        self._memory.clear()
