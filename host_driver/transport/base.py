"""What the driver needs of a device: registers, memory, interrupts, and streams for the LLP."""

from types import TracebackType
from typing import Any, Protocol, runtime_checkable

from stagecoach.host_driver.errors import StagecoachError

REGISTER_SPACE = 1 << 12
"""Bytes of register addresses (`gateware.registers.ports.AxiLiteSignature`)."""


class TransportError(StagecoachError, OSError):
    """The device or a stream cannot do what was asked."""


class DeviceClosed(TransportError):
    """The device was closed, or ended by itself; the message says why."""


class TransportTimeout(TransportError, TimeoutError):
    """The other side did not answer in time."""


class StreamClosed(TransportError, ConnectionError):
    """The peer closed the stream or it was lost, or it was closed or attached here."""


@runtime_checkable
class ByteStream(Protocol):
    """A reliable, ordered stream of bytes: used by the MPA startup, then given to the LLP."""

    @property
    def local_address(self) -> tuple[str, int]:
        """Host and port of this end."""
        ...

    @property
    def peer_address(self) -> tuple[str, int]:
        """Host and port of the other end."""
        ...

    @property
    def maximum_segment_size(self) -> int:
        """Bytes of the longest segment, from which the EMSS comes (RFC 5044, 4.5)."""
        ...

    def sendall(self, octets: bytes, timeout: float | None = None) -> None:
        """Send all bytes; raises TransportTimeout, or StreamClosed."""
        ...

    def receive_exactly(self, count: int, timeout: float | None = None) -> bytes:
        """Return the next `count` bytes; takes nothing beyond them from the stream.

        Raises TransportTimeout, or StreamClosed if the stream ends before; the bytes that came
        are there for the next call. With a timeout of 0 it does not wait.
        """
        ...

    def wait_readable(self, timeout: float | None = None) -> None:
        """Wait for a byte and leave it in the stream.

        Raises TransportTimeout, or StreamClosed if the stream ends before.
        """
        ...

    def close(self) -> None:
        """End the stream unless a device has it; may be called again."""
        ...


@runtime_checkable
class Listener(Protocol):
    """Waits for streams that peers open."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port; the real port also if 0 was asked for."""
        ...

    def accept(self, timeout: float | None = None) -> ByteStream:
        """Return the next stream; raises TransportTimeout."""
        ...

    def close(self) -> None:
        """Stop listening; may be called again, also while another thread accepts."""
        ...


@runtime_checkable
class Transport(Protocol):
    """One device. Calls may come from any thread; those after `close` raise DeviceClosed.

    If they may not, as in a cocotb test, its `calls_from_any_thread` is False: what a program drops
    is closed with its next call then, and what needs a thread of the driver (`fileno`, `stream`,
    event handlers) raises `TransportError`.
    """

    @property
    def info(self) -> dict[str, Any]:
        """What is known of the device: at least `kind` and, if known, `config`."""
        ...

    def read_register(self, address: int) -> int:
        """Return the 32-bit register at a byte address."""
        ...

    def write_register(self, address: int, value: int) -> None:
        """Write a 32-bit register; reads and writes happen in the order of the calls."""
        ...

    def map_memory(self, buffer: Any) -> int:
        """Let the device reach a writable buffer, without a copy.

        Returns the device's address of its first byte. The buffer stays exported (a bytearray
        cannot be resized, an mmap not be closed) until `unmap_memory`.
        """
        ...

    def unmap_memory(self, address: int) -> None:
        """Take back the buffer mapped last at this address; the device reaches it no more."""
        ...

    def listen(self, host: str, port: int) -> Listener:
        """Open a listener at a local address.

        Port 0 lets the system choose; an empty host stands for all addresses.
        """
        ...

    def connect(self, host: str, port: int, timeout: float | None = None) -> ByteStream:
        """Open a stream to a listening peer."""
        ...

    def attach(self, connection: int, stream: ByteStream) -> None:
        """Hand a stream to the device's LLP; from now on only the device uses it."""
        ...

    def detach(self, connection: int, timeout: float = 2.0) -> None:
        """End the stream of a connection, after sending what the device has sent.

        Raises TransportError if that was not possible within `timeout` seconds; the connection
        is free again even so.
        """
        ...

    def wait_interrupt(self, timeout: float | None = None) -> bool:
        """Wait for the interrupt; False after the time. It may report one too many, none less."""
        ...

    def close(self) -> None:
        """End the device and its streams in bounded time; may be called again."""
        ...

    def __enter__(self) -> "Transport": ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


def check_access(address: int, value: int = 0) -> None:
    """Raises `ValueError` for an invalid address or value of a register."""
    if not 0 <= address < REGISTER_SPACE or address % 4:
        raise ValueError(
            f"register address is {address:#x}; allowed: multiples of 4 below {REGISTER_SPACE:#x}"
        )
    if not 0 <= value < 1 << 32:
        raise ValueError(f"register value is {value:#x}; allowed: 0 to 0xffffffff")
