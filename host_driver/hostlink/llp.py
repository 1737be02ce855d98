"""The LLP of a device at a link: the kernel's TCP sockets, lent to it."""

import contextlib
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from stagecoach.host_driver.transport.base import TransportError
from stagecoach.host_driver.transport.records import Record, RecordKind
from stagecoach.hw.interface.hostlink import EVENTS, SEND_CLOSE, SEND_LAST
from stagecoach.hw.interface.llp import CLOSE_OCTETS, LlpEventKind

RECEIVE_OCTETS = 1 << 20
"""Bytes that are kept for the device, of a connection."""

TRANSMIT_OCTETS = 256 << 10
"""The window: bytes that the socket has not taken, of a connection."""

WINDOW_STEP = TRANSMIT_OCTETS // 8
LINGER_SECONDS = 2.0

RX_AVAILABLE, TX_WINDOW, EMSS, CLOSED = LlpEventKind
_MASK = 0xFFFFFFFF

Done = Callable[[bool], None]


@dataclass
class _Connection:
    """One attached socket. Positions count all bytes; messages carry their low 32 bits."""

    socket: socket.socket
    stream: int
    received: bytearray = field(default_factory=bytearray)  # from `released` on
    released: int = 0
    announced: int = 0
    ended: bool = False
    closed_announced: bool = False
    part: bytearray = field(default_factory=bytearray)  # of an FPDU
    backlog: deque[bytes] = field(default_factory=deque)
    sent: int = 0  # taken by the kernel, or dropped
    transmitted: int = 0
    granted: int = 0
    window_announced: bool = False
    closing: bool = False
    broken: bool = False
    events_ahead: int = 0  # sent to the device, not taken by it
    interest: int = 0
    done: Done | None = None  # the connection is being detached
    deadline: float = 0.0

    @property
    def end(self) -> int:
        return self.released + len(self.received)


NO_CYCLE = 0
"""In records: the host does not know the cycles of the device."""


class KernelLlp:
    """All connections of a device. Of one thread; `selector` is where that thread waits.

    Parameters
    ----------
    send_event: sends an LLP_EVENT: connection, kind, value.
    events: that the device has room for.
    record: keep `records`.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        send_event: Callable[[int, int, int], None],
        events: int = EVENTS,
        record: bool = False,
    ):
        self._selector = selector
        self._send_event = send_event
        self._credit = events
        self._taken = 0
        self._on_their_way: deque[_Connection] = deque()  # of the events that are not taken
        self._connections: dict[int, _Connection] = {}
        self._pending: deque[int] = deque()  # connections that have something to say
        self._lingering: list[tuple[socket.socket, float]] = []
        self._streams = 0
        self._record = record
        self.records: list[Record] = []

    @property
    def attached(self) -> list[int]:
        """Connections that have a stream, those included that are being detached."""
        return list(self._connections)

    # What the driver asks for

    def attach(self, number: int, descriptor: int) -> None:
        """Takes a connected socket over."""
        if number in self._connections:
            raise TransportError(f"connection {number} has a stream already; detach it first")
        connected = socket.socket(fileno=descriptor)
        connected.setblocking(False)
        with contextlib.suppress(OSError):  # it is no TCP
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._streams += 1
        self._connections[number] = _Connection(connected, self._streams)
        self._note(number, RecordKind.ATTACH, 0)
        self._watch(number)
        self._announce(number)

    def detach(self, number: int, seconds: float, done: Done) -> None:
        """Ends a connection; `done` is told whether all was sent, at the latest after the time."""
        connection = self._connections.get(number)
        if connection is None or connection.done is not None:
            raise TransportError(f"connection {number} has no stream")
        connection.done = done
        connection.deadline = time.monotonic() + seconds
        self._watch(number)

    def close(self) -> None:
        """Ends all, without waiting."""
        for number in list(self._connections):
            connection = self._connections[number]
            self._end(number, not connection.backlog)
        for connected, _ in self._lingering:
            connected.close()
        self._lingering.clear()

    # What the device says

    def take_send(self, number: int, octets: bytes, flags: int) -> None:
        """A part of an FPDU. Raises `TransportError` for bytes that the window does not allow."""
        connection = self._connections.get(number)
        if connection is None:
            return
        sent = connection.transmitted + len(connection.part) + len(octets)
        if sent > connection.granted + CLOSE_OCTETS:
            raise TransportError(
                f"the device has sent {sent} bytes on connection {number}; allowed: "
                f"{connection.granted}, and {CLOSE_OCTETS} with the close"
            )
        connection.part += octets
        if not flags & SEND_LAST:
            return
        fpdu = bytes(connection.part)
        connection.part.clear()
        connection.closing |= bool(flags & SEND_CLOSE)
        if fpdu:
            self._note(number, RecordKind.TRANSMIT, connection.transmitted, fpdu)
            connection.transmitted += len(fpdu)
            if connection.broken:
                connection.sent = connection.transmitted
            else:
                connection.backlog.append(fpdu)
        self._flush(number)

    def answer_request(self, number: int, position: int, octets: int) -> bytes:
        """Received bytes, in whole words; zero where the connection has none."""
        connection = self._connections.get(number)
        data = b""
        if connection is not None:
            offset = (position - connection.released) & _MASK
            data = bytes(connection.received[offset : offset + octets])
        return data + bytes(-(-octets // 8) * 8 - len(data))

    def take_release(self, number: int, position: int) -> None:
        """Received bytes before a position may be forgotten."""
        connection = self._connections.get(number)
        if connection is None:
            return
        freed = (position - connection.released) & _MASK
        if freed <= connection.announced - connection.released:
            del connection.received[:freed]
            connection.released += freed
            self._watch(number)

    def take_taken(self, count: int) -> None:
        """The device has taken events, `count` mod 256 by now."""
        taken = (count - self._taken) & 0xFF
        if taken > len(self._on_their_way):
            raise TransportError(
                f"the device has taken {taken} events; allowed: {len(self._on_their_way)}, as many "
                "as are on their way"
            )
        for _ in range(taken):
            self._credit += 1
            self._on_their_way.popleft().events_ahead -= 1
        self._taken = count

    # Sockets and events

    def ready(self, number: int, events: int) -> None:
        """The socket of a connection can be read or written."""
        connection = self._connections.get(number)
        if connection is None:
            return
        if events & selectors.EVENT_WRITE:
            self._flush(number)
        if events & selectors.EVENT_READ:
            self._receive(number)

    def serve(self) -> None:
        """Says what is to be said; ends what is to end."""
        while self._credit and self._pending:
            number = self._pending.popleft()
            connection = self._connections.get(number)
            event = None if connection is None else self._next_event(connection)
            if connection is None or event is None:
                continue
            self._credit -= 1
            connection.events_ahead += 1
            self._on_their_way.append(connection)
            self._send_event(number, *event)
            self._announce(number)
        now = time.monotonic()
        for number in list(self._connections):
            connection = self._connections[number]
            if connection.done is None:
                continue
            # Events on their way belong to this attachment, not to the next one.
            flushed = not connection.backlog and not connection.part
            if now >= connection.deadline or (flushed and not connection.events_ahead):
                self._end(number, flushed and not connection.broken)
        self._lingering = [one for one in self._lingering if self._lingers(*one)]

    def deadline(self) -> float | None:
        """When `serve` has something to do without being asked."""
        ends = [one.deadline for one in self._connections.values() if one.done is not None]
        if self._lingering:
            ends.append(time.monotonic() + 0.02)
        return min(ends) if ends else None

    def _note(self, number: int, kind: RecordKind, position: int, data: bytes = b"") -> None:
        if self._record:
            stream = self._connections[number].stream
            self.records.append(
                Record(kind, number, stream, NO_CYCLE, time.time_ns(), position, data)
            )

    def _watch(self, number: int) -> None:
        connection = self._connections[number]
        room = len(connection.received) < RECEIVE_OCTETS
        wanted = 0
        if connection.done is None and not connection.ended and room:
            wanted |= selectors.EVENT_READ
        if connection.backlog:
            wanted |= selectors.EVENT_WRITE
        if wanted == connection.interest:
            return
        if not connection.interest:
            self._selector.register(connection.socket, wanted, number)
        elif not wanted:
            self._selector.unregister(connection.socket)
        else:
            self._selector.modify(connection.socket, wanted, number)
        connection.interest = wanted

    def _receive(self, number: int) -> None:
        connection = self._connections[number]
        try:
            octets = connection.socket.recv(RECEIVE_OCTETS - len(connection.received))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            octets = b""
        if octets:
            self._note(number, RecordKind.RECEIVE, connection.end, octets)
            connection.received += octets
        else:
            connection.ended = True
            self._note(number, RecordKind.CLOSED, connection.end)
        self._watch(number)
        self._announce(number)

    def _flush(self, number: int) -> None:
        """One send for each FPDU, so that segments start with FPDUs if the kernel takes them."""
        connection = self._connections[number]
        while connection.backlog:
            octets = connection.backlog[0]
            try:
                taken = connection.socket.send(octets)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                connection.broken = True
                connection.backlog.clear()
                connection.sent = connection.transmitted
                break
            connection.sent += taken
            if taken == len(octets):
                connection.backlog.popleft()
            else:
                connection.backlog[0] = octets[taken:]
        if connection.closing and not connection.backlog and not connection.broken:
            with contextlib.suppress(OSError):
                connection.socket.shutdown(socket.SHUT_WR)
        self._watch(number)
        self._announce(number)

    def _announce(self, number: int) -> None:
        if number not in self._pending:
            self._pending.append(number)

    def _next_event(self, connection: _Connection) -> tuple[int, int] | None:
        """What a connection has to say now; CLOSED is always the last."""
        if connection.done is not None:
            return None
        window = connection.sent + TRANSMIT_OCTETS
        if not connection.window_announced or window - connection.granted >= WINDOW_STEP:
            connection.window_announced = True
            connection.granted = window
            return TX_WINDOW, window & _MASK
        if connection.end != connection.announced:
            connection.announced = connection.end
            return RX_AVAILABLE, connection.end & _MASK
        if connection.ended and not connection.closed_announced:
            connection.closed_announced = True
            return CLOSED, 0
        return None

    def _end(self, number: int, flushed: bool) -> None:
        connection = self._connections[number]
        self._note(number, RecordKind.DETACH, connection.transmitted)
        if connection.interest:
            self._selector.unregister(connection.socket)
        with contextlib.suppress(OSError):
            connection.socket.shutdown(socket.SHUT_WR)
        # Closing with unread bytes would reset the connection, and might cost the peer what it
        # has not read.
        self._lingering.append((connection.socket, time.monotonic() + LINGER_SECONDS))
        del self._connections[number]
        if connection.done is not None:
            connection.done(flushed)

    @staticmethod
    def _lingers(connected: socket.socket, deadline: float) -> bool:
        try:
            while connected.recv(1 << 16):
                pass
            open_still = False
        except (BlockingIOError, InterruptedError):
            open_still = True
        except OSError:
            open_still = False
        if open_still and time.monotonic() < deadline:
            return True
        connected.close()
        return False
