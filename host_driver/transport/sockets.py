"""Streams and listeners over the kernel's TCP."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from stagecoach.host_driver.errors import require_integer
from stagecoach.host_driver.transport.base import StreamClosed, TransportError, TransportTimeout

STREAM_SOCKET_MSS = 65535
"""Stands for the segment size of a socket that is not TCP: an EMSS has 16 bits."""

BACKLOG = 64
"""Connections that the kernel accepts before `accept` is called."""

MAXIMUM_PORT = 65535

MINIMUM_WAIT = 1e-3
"""Seconds; a timeout of 0 would make a socket non-blocking."""

_KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6}
"""Seconds without a segment until the peer's host is asked, between two questions, and how many
of them stay without an answer before the connection is lost."""

# How often `accept` looks whether its listener was closed by another thread, where the system
# does not wake it up.
_ACCEPT_SLICE = 0.2


@dataclass(frozen=True)
class StartupOctets:
    """Bytes that crossed a stream before it was given to a device."""

    sent: bool
    time_ns: int
    data: bytes


def _address(raw: object) -> tuple[str, int]:
    # AF_UNIX (a socketpair) has no host and port.
    if isinstance(raw, tuple) and len(raw) >= 2:
        return str(raw[0]), int(raw[1])
    return "", 0


def keep_alive(connected: socket.socket) -> None:
    """Has a host that is gone noticed, within 2 minutes, by a connection that is silent."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if hasattr(socket, name):  # not everywhere
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class SocketStream:
    """A `ByteStream` over a connected stream socket, which it owns."""

    def __init__(self, connected: socket.socket, record: bool = False):
        self._socket: socket.socket | None = connected
        self.local_address = _address(connected.getsockname())
        self.peer_address = _address(connected.getpeername())
        self.startup: list[StartupOctets] = []
        self._record = record
        self._received = bytearray()
        self.maximum_segment_size = STREAM_SOCKET_MSS
        if connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(connected)
            self.maximum_segment_size = min(
                STREAM_SOCKET_MSS, connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
            )

    def _open(self) -> socket.socket:
        if self._socket is None:
            raise StreamClosed("the stream was closed or given to a device")
        return self._socket

    def _lost(self, error: OSError) -> StreamClosed:
        host, port = self.peer_address
        return StreamClosed(f"the stream to {host}:{port} is lost: {_reason(error)}")

    def _record_octets(self, sent: bool, octets: bytes) -> None:
        if not self._record:
            return
        last = self.startup[-1] if self.startup else None
        if last is not None and last.sent == sent:
            self.startup[-1] = StartupOctets(sent, last.time_ns, last.data + octets)
        else:
            self.startup.append(StartupOctets(sent, time.time_ns(), octets))

    def sendall(self, octets: bytes, timeout: float | None = None) -> None:
        """Send all bytes."""
        connected = self._open()
        connected.settimeout(timeout)
        try:
            connected.sendall(octets)
        except (TimeoutError, BlockingIOError):
            raise TransportTimeout(f"{len(octets)} bytes not sent in {timeout} s") from None
        except OSError as error:
            raise self._lost(error) from error
        self._record_octets(True, bytes(octets))

    def _receive(self, count: int, left: float | None, flags: int = 0) -> bytes:
        connected = self._open()
        connected.settimeout(left)
        try:
            return connected.recv(count, flags)
        except (TimeoutError, BlockingIOError):
            raise TransportTimeout from None
        except OSError as error:
            raise self._lost(error) from error

    def receive_exactly(self, count: int, timeout: float | None = None) -> bytes:
        """Return the next `count` bytes and take nothing beyond them.

        What came before a timeout or the end of the stream is there for the next call.
        """
        if count < 0:
            raise ValueError(f"count is {count}; allowed: 0 or more")
        self._open()
        deadline = None if timeout is None else time.monotonic() + timeout
        while (missing := count - len(self._received)) > 0:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                part = self._receive(missing, left)
            except TransportTimeout:
                raise TransportTimeout(
                    f"{len(self._received)} of {count} bytes came in {timeout} s"
                ) from None
            if not part:
                raise StreamClosed(
                    f"the peer closed the stream after {len(self._received)} of {count} bytes"
                )
            self._record_octets(False, part)
            self._received += part
        octets = bytes(self._received[:count])
        del self._received[:count]
        return octets

    def wait_readable(self, timeout: float | None = None) -> None:
        """Wait for a byte, and leave it in the stream."""
        if self._received:
            return
        try:
            if not self._receive(1, timeout, socket.MSG_PEEK):
                raise StreamClosed("the peer closed the stream")
        except TransportTimeout:
            raise TransportTimeout(f"nothing came in {timeout} s") from None

    def fileno(self) -> int:
        """Return the descriptor, -1 if the stream was closed or given away."""
        return -1 if self._socket is None else self._socket.fileno()

    def give_away(self, take: Callable[[int], None]) -> None:
        """Call `take(descriptor)`; if it returns, the descriptor belongs to the taker.

        Raises TransportError if bytes that came were not taken: they would be lost.
        """
        connected = self._open()
        if self._received:
            raise TransportError(
                f"{len(self._received)} bytes of the stream are not taken; allowed: none"
            )
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
        _check_port(port)
        self._record = record
        self._closed = threading.Event()
        try:
            self._socket = _listening_socket(host, port)
        except (OSError, UnicodeError) as error:
            raise TransportError(f"cannot listen at {host}:{port}: {_reason(error)}") from error
        self.address = _address(self._socket.getsockname())

    def accept(self, timeout: float | None = None) -> SocketStream:
        """Return the next stream that a peer opens."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _ACCEPT_SLICE
            if deadline is not None:
                left = min(left, max(0.0, deadline - time.monotonic()))
            try:
                # With 0 it is non-blocking, and does not wait at all.
                self._socket.settimeout(left)
                connected, _ = self._socket.accept()
                with contextlib.suppress(OSError):
                    return SocketStream(connected, self._record)
                # The peer has reset the connection meanwhile.
                connected.close()
            except (TimeoutError, BlockingIOError):
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
                raise TransportError(f"cannot accept: {_reason(error)}") from error

    def close(self) -> None:
        """Stop listening; another thread in `accept` notices at once."""
        self._closed.set()
        with contextlib.suppress(OSError):  # not connected, or closed before
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __enter__(self) -> "SocketListener":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _reason(error: OSError | UnicodeError) -> str:
    """What is wrong, without the number that the system has for it."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _check_port(port: int) -> None:
    # The system takes a number that is too large modulo 2^16.
    require_integer("port", port)
    if not 0 <= port <= MAXIMUM_PORT:
        raise ValueError(f"port {port}; allowed: 0 to {MAXIMUM_PORT}")


def _listening_socket(host: str, port: int) -> socket.socket:
    if not host and socket.has_dualstack_ipv6():
        address, family = ("::", port), socket.AF_INET6
        return socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=True)
    flags = 0 if host else socket.AI_PASSIVE
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=flags)
    family, _, _, _, resolved = found[0]
    return socket.create_server(resolved, family=family, backlog=BACKLOG)


def connect(
    host: str, port: int, timeout: float | None = None, record: bool = False
) -> SocketStream:
    """Open a TCP stream, at the first address of the host that answers.

    Raises TransportTimeout if that is not done in time, whatever the number of addresses, and
    TransportError.
    """
    _check_port(port)
    deadline = None if timeout is None else time.monotonic() + timeout
    failure: OSError | None = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in found:
            left = None if deadline is None else max(MINIMUM_WAIT, deadline - time.monotonic())
            connected = socket.socket(family, kind, protocol)
            try:
                connected.settimeout(left)
                connected.connect(address)
                return SocketStream(connected, record)
            except OSError as error:
                connected.close()
                failure = error
            except BaseException:
                connected.close()
                raise
    except (OSError, UnicodeError) as error:
        raise TransportError(f"cannot connect to {host}:{port}: {_reason(error)}") from error
    if isinstance(failure, TimeoutError):
        raise TransportTimeout(f"{host}:{port} does not answer in {timeout} s") from None
    raise TransportError(
        f"cannot connect to {host}:{port}: {failure and _reason(failure)}"
    ) from failure
