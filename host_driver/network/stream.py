"""A stream of a connection that the engine keeps, and the listener that hands streams out."""

import contextlib
from collections import deque
from collections.abc import Callable
from ipaddress import IPv4Address
from typing import Self

from stagecoach.host_driver.network.errors import stream_error
from stagecoach.host_driver.network.ip_fields import IpFields
from stagecoach.host_driver.network.turn import Turn
from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.transport.base import StreamClosed, TransportError, TransportTimeout


def text(end: tuple[IPv4Address, int]) -> tuple[str, int]:
    """Address and port as a `ByteStream` tells them."""
    return str(end[0]), end[1]


class NetworkStream:
    """A `ByteStream`.

    Parameters
    ----------
    turn: lock of the network. handle: of the connection. segment: bytes of the longest one.
    on_close: is called under the lock when this end closes it; says whether bytes are unread.
    """

    def __init__(
        self,
        turn: Turn,
        handle: int,
        local: tuple[IPv4Address, int],
        remote: tuple[IPv4Address, int],
        segment: int,
        on_close: Callable[["NetworkStream"], None],
    ):
        self._turn = turn
        self.handle = handle
        self.local_address = text(local)
        self.peer_address = text(remote)
        self.maximum_segment_size = segment
        self._on_close = on_close
        self._received = bytearray()
        self._usable = True  # neither closed nor given away
        self._end: StreamEnd | None = None
        self._why = ""  # it ended, in words

    @property
    def open(self) -> bool:
        """Whether it was neither closed here nor given to a device."""
        return self._usable

    @property
    def has_ended(self) -> bool:
        """Whether the engine forgot it."""
        return self._end is not None

    def ended(self, how: StreamEnd, unread: bytes) -> None:
        """The engine forgot it; `unread` are the last bytes that it had."""
        self._end = how
        timed_out = how is StreamEnd.TIMED_OUT
        self._why = self._turn.explain(how.words) if timed_out else how.words
        if how is StreamEnd.CLOSED:
            self._received += unread

    def gone(self) -> StreamClosed:
        """The error of a stream that has ended."""
        assert self._end is not None
        host, port = self.peer_address
        return stream_error(self._end, f"the stream to {host}:{port} ended: {self._why}")

    def _late(self, what: str) -> TransportTimeout:
        return TransportTimeout(self._turn.explain(what))

    def _require_usable(self) -> None:
        self._turn.require_open()
        if not self._usable:
            raise StreamClosed("the stream was closed or given to a device")

    def sendall(self, octets: bytes, timeout: float | None = None) -> None:
        """Send all bytes."""
        left = memoryview(octets)

        def done() -> bool:
            nonlocal left
            self._require_usable()
            if self._end is not None:
                raise self.gone()
            with contextlib.suppress(KeyError):  # it ended, and the network has not seen that yet
                left = left[self._turn.port.send(self.handle, bytes(left)) :] if left else left
            return not left

        with self._turn.lock:
            if not self._turn.wait(done, self._turn.deadline(timeout)):
                raise self._late(f"{len(left)} of {len(octets)} bytes not sent in {timeout} s")

    def _fill(self, count: int) -> bool:
        """Take bytes up to `count` in all; whether so many are there. Raises at the end."""
        self._require_usable()
        missing = count - len(self._received)
        if missing > 0 and self._end is None:
            try:
                self._take(missing)
            except StreamClosed:
                raise self._ended_early(count) from None
        elif missing > 0:
            raise self._ended_early(count)
        return len(self._received) >= count

    def _take(self, count: int) -> None:
        with contextlib.suppress(KeyError):  # it ended, and the network has not seen that yet
            self._received += self._turn.port.receive(self.handle, count)

    def _ended_early(self, count: int) -> StreamClosed:
        if self._end not in (None, StreamEnd.CLOSED):
            return self.gone()
        return StreamClosed(
            f"the peer closed the stream after {len(self._received)} of {count} bytes"
        )

    def receive_exactly(self, count: int, timeout: float | None = None) -> bytes:
        """Return the next `count` bytes and take nothing beyond them.

        What came before a timeout or the end of the stream is there for the next call.
        """
        if count < 0:
            raise ValueError(f"count is {count}; allowed: 0 or more")
        with self._turn.lock:
            deadline = self._turn.deadline(timeout)
            if not self._turn.wait(lambda: self._fill(count), deadline):
                raise self._late(f"{len(self._received)} of {count} bytes came in {timeout} s")
            octets = bytes(self._received[:count])
            del self._received[:count]
            return octets

    def _has_octet(self) -> bool:
        self._require_usable()
        if self._received:
            return True
        if self._end is not None:
            raise self.gone()
        with contextlib.suppress(KeyError):  # it ended, and the network has not seen that yet
            self._turn.port.receive(self.handle, 0)  # raises at the end
            return self._turn.port.readable(self.handle)
        return False

    def wait_readable(self, timeout: float | None = None) -> None:
        """Wait for a byte, and leave it in the stream."""
        with self._turn.lock:
            deadline = self._turn.deadline(timeout)
            if not self._turn.wait(self._has_octet, deadline):
                raise self._late(f"nothing came in {timeout} s")

    def give_away(self, take: Callable[[int], None]) -> None:
        """Call `take(handle)`; if it returns, the connection belongs to the taker.

        Raises TransportError if bytes that came were not taken: they would be lost.
        """
        with self._turn.lock:
            self._require_usable()
            if self._end is not None:
                raise self.gone()
            if self._received:
                raise TransportError(
                    f"{len(self._received)} bytes of the stream are not taken; allowed: none"
                )
            self._usable = False
        try:
            take(self.handle)  # it may wait for the device, which may wait for the network
        except BaseException:
            self._usable = True
            raise

    def unread(self) -> bool:
        """Whether bytes came that nobody took."""
        if self._received or self._end is not None:
            return bool(self._received)
        with contextlib.suppress(StreamClosed):
            self._take(1)
        return bool(self._received)

    def close(self) -> None:
        """Send FIN after what was sent, unless it was given away.

        RST if the peer sent bytes that nobody took: they are lost, and it has to know
        (RFC 9293, SHLD-3).
        """
        with self._turn.lock:
            if self._usable:
                self._usable = False
                if self._end is None and self._turn.failure is None:
                    self._on_close(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class NetworkListener:
    """A `Listener`.

    Parameters
    ----------
    turn: lock of the network. address: own one and port. backlog: handshakes under way, and as
        many streams that nobody has accepted. fields: of the packets of its connections.
    on_close: is called under the lock when it closes.
    """

    def __init__(
        self,
        turn: Turn,
        address: tuple[str, int],
        backlog: int,
        fields: IpFields,
        on_close: Callable[["NetworkListener"], None],
    ):
        self._turn = turn
        self.address = address
        self.backlog = backlog
        self.fields = fields
        self._on_close = on_close
        self._ready: deque[NetworkStream] = deque()
        self._closed = False

    @property
    def full(self) -> bool:
        """Whether no further stream may be added."""
        return len(self._ready) >= self.backlog

    def add(self, stream: NetworkStream) -> None:
        """A peer opened one."""
        self._ready.append(stream)

    def accept(self, timeout: float | None = None) -> NetworkStream:
        """Return the next stream that a peer opens."""

        def done() -> bool:
            if self._closed:
                raise StreamClosed("the listener was closed")
            return bool(self._ready)

        with self._turn.lock:
            self._turn.require_open()
            if not self._turn.wait(done, self._turn.deadline(timeout)):
                host, port = self.address
                raise TransportTimeout(f"no peer connected to {host}:{port} in {timeout} s")
            return self._ready.popleft()

    def close(self) -> None:
        """Stop listening; streams that nobody has accepted are closed."""
        with self._turn.lock:
            if self._closed:
                return
            self._closed = True
            while self._ready:
                self._ready.popleft().close()
            self._on_close(self)
            self._turn.notify()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
