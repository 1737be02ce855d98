"""Streams and listeners over the kernel's TCP."""

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from host_driver.transport.base import StreamClosed, TransportError, TransportTimeout

STREAM_SOCKET_MSS = 65535
"""Stands for the segment size of a socket that is not TCP: an EMSS has 16 bits."""

# How often `accept` looks whether its listener was closed by another thread.
_ACCEPT_SLICE = 0.2


@dataclass(frozen=True)
class StartupOctets:
    """Octets that crossed a stream before it was given to a device."""

    sent: bool
    time_ns: int
    data: bytes


def _address(raw: object) -> tuple[str, int]:
    # AF_UNIX (a socketpair) has no host and port.
    if isinstance(raw, tuple) and len(raw) >= 2:
        return str(raw[0]), int(raw[1])
    return "", 0


class SocketStream:
    """A `ByteStream` over a connected stream socket, which it owns."""

    def __init__(self, connected: socket.socket, record: bool = False):
        self._socket: socket.socket | None = connected
        self.local_address = _address(connected.getsockname())
        self.peer_address = _address(connected.getpeername())
        self.startup: list[StartupOctets] = []
        self._record = record
        self.maximum_segment_size = STREAM_SOCKET_MSS
        if connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.maximum_segment_size = min(
                STREAM_SOCKET_MSS, connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
            )

    def _open(self) -> socket.socket:
        if self._socket is None:
            raise StreamClosed("the stream was closed or given to a device")
        return self._socket

    def _lost(self, error: OSError) -> StreamClosed:
        host, port = self.peer_address
        return StreamClosed(f"the stream to {host}:{port} is lost: {error}")

    def sendall(self, octets: bytes, timeout: float | None = None) -> None:
        """Send all octets."""
        connected = self._open()
        connected.settimeout(timeout)
        try:
            connected.sendall(octets)
        except TimeoutError:
            raise TransportTimeout(f"{len(octets)} octets not sent in {timeout} s") from None
        except OSError as error:
            raise self._lost(error) from error
        if self._record:
            self.startup.append(StartupOctets(True, time.time_ns(), bytes(octets)))

    def receive_exactly(self, count: int, timeout: float | None = None) -> bytes:
        """Return the next `count` octets and take nothing beyond them."""
        if count < 0:
            raise ValueError(f"count is {count}; allowed: 0 or more")
        connected = self._open()
        deadline = None if timeout is None else time.monotonic() + timeout
        received = bytearray()
        try:
            while len(received) < count:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError
                connected.settimeout(left)
                part = connected.recv(count - len(received))
                if not part:
                    raise StreamClosed(
                        f"the peer closed the stream after {len(received)} of {count} octets"
                    )
                received += part
        except StreamClosed:
            raise
        except TimeoutError:
            raise TransportTimeout(
                f"{len(received)} of {count} octets came in {timeout} s"
            ) from None
        except OSError as error:
            raise self._lost(error) from error
        finally:
            if self._record and received:
                self.startup.append(StartupOctets(False, time.time_ns(), bytes(received)))
        return bytes(received)

    def fileno(self) -> int:
        """Return the descriptor, -1 if the stream was closed or given away."""
        return -1 if self._socket is None else self._socket.fileno()

    def give_away(self, take: Callable[[int], None]) -> None:
        """Call `take(descriptor)`; if it returns, the descriptor belongs to whoever took it."""
        connected = self._open()
        connected.setblocking(False)
        take(connected.fileno())
        self._socket = None
        connected.detach()

    def close(self) -> None:
        """End the stream unless it was given away."""
        connected, self._socket = self._socket, None
        if connected is not None:
            connected.close()

    def __enter__(self) -> "SocketStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SocketListener:
    """A `Listener` on a TCP port."""

    def __init__(self, host: str, port: int, record: bool = False):
        self._record = record
        self._closed = threading.Event()
        try:
            family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0][0]
            self._socket = socket.create_server((host, port), family=family, backlog=64)
        except (OSError, OverflowError) as error:
            raise TransportError(f"cannot listen at {host}:{port}: {error}") from error
        self.address = _address(self._socket.getsockname())

    def accept(self, timeout: float | None = None) -> SocketStream:
        """Return the next stream that a peer opens."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _ACCEPT_SLICE
            if deadline is not None:
                left = min(left, max(0.0, deadline - time.monotonic()))
            try:
                # 0 would make the socket non-blocking.
                self._socket.settimeout(max(left, 1e-3))
                connected, _ = self._socket.accept()
                return SocketStream(connected, self._record)
            except TimeoutError:
                if self._closed.is_set():
                    raise StreamClosed("the listener was closed") from None
                if deadline is not None and time.monotonic() >= deadline:
                    host, port = self.address
                    raise TransportTimeout(
                        f"no peer connected to {host}:{port} in {timeout} s"
                    ) from None
            except OSError as error:
                if self._closed.is_set():
                    raise StreamClosed("the listener was closed") from None
                raise TransportError(f"cannot accept: {error}") from error

    def close(self) -> None:
        """Stop listening."""
        self._closed.set()
        self._socket.close()

    def __enter__(self) -> "SocketListener":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(
    host: str, port: int, timeout: float | None = None, record: bool = False
) -> SocketStream:
    """Open a TCP stream; raises TransportTimeout or TransportError."""
    try:
        connected = socket.create_connection((host, port), timeout)
    except TimeoutError:
        raise TransportTimeout(f"{host}:{port} does not answer in {timeout} s") from None
    except (OSError, OverflowError) as error:
        raise TransportError(f"cannot connect to {host}:{port}: {error}") from error
    return SocketStream(connected, record)
