"""The reference endpoint behind a TCP socket, with MPA startup as initiator or responder."""

import select
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Self

from stagecoach.sim.model import mpa, startup
from stagecoach.sim.model.endpoint import Completion, Endpoint
from stagecoach.sim.model.startup import EnhancedData, StartupFrame

RECEIVE_OCTETS = 1 << 16
DEFAULT_TIMEOUT = 10.0


class Rejected(Exception):
    """The responder answered with R=1; ``reply`` has its private data."""

    def __init__(self, reply: StartupFrame) -> None:
        super().__init__(f"connection rejected, private data {reply.private_data!r}")
        self.reply = reply


class Peer:
    """An :class:`Endpoint` which reads and writes one socket, blocking, with timeouts.

    Made by :meth:`connect` (initiator) or :meth:`accept` (responder). Keyword arguments that these
    do not name go to the endpoint. Work is posted through ``peer.endpoint``; ``pump`` moves
    octets, ``wait`` pumps until enough completions are there. ``cut``, if given, tells for every
    piece of output how many octets the next ``sendall`` takes.
    """

    def __init__(
        self,
        connection: socket.socket,
        endpoint: Endpoint,
        *,
        request: StartupFrame,
        reply: StartupFrame,
        early: bytes = b"",
        cut: Callable[[int], int] | None = None,
    ) -> None:
        self.socket = connection
        self.endpoint = endpoint
        self.request = request
        self.reply = reply
        self.end_of_stream = False
        self._cut = cut
        self._outgoing: deque[memoryview] = deque()
        connection.setblocking(False)
        if early:
            endpoint.receive(early)

    @classmethod
    def connect(
        cls,
        connection: socket.socket,
        *,
        private_data: bytes = b"",
        markers: bool = False,
        crc: bool = True,
        revision: int = startup.REVISION_ENHANCED,
        enhanced: EnhancedData | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        cut: Callable[[int], int] | None = None,
        **endpoint_options: object,
    ) -> Self:
        """MPA startup as initiator over a connected socket. Raises :class:`Rejected` on R=1."""
        request = StartupFrame(
            reply=False,
            markers=markers,
            crc=crc,
            revision=revision,
            private_data=private_data,
            enhanced=enhanced,
        )
        connection.settimeout(timeout)
        connection.sendall(request.encode())
        reply, early = _receive_startup(connection, timeout, reply=True)
        if reply.reject:
            raise Rejected(reply)
        settled = mpa.negotiate(request, reply)
        endpoint = Endpoint(
            markers_out=settled.initiator_sends_markers,
            markers_in=settled.responder_sends_markers,
            crc=settled.crc,
            responder=False,
            **endpoint_options,  # type: ignore[arg-type]
        )
        return cls(connection, endpoint, request=request, reply=reply, early=early, cut=cut)

    @classmethod
    def accept(
        cls,
        connection: socket.socket,
        *,
        private_data: bytes = b"",
        markers: bool = False,
        crc: bool = True,
        enhanced: EnhancedData | None = None,
        reject: bool = False,
        timeout: float = DEFAULT_TIMEOUT,
        cut: Callable[[int], int] | None = None,
        **endpoint_options: object,
    ) -> Self:
        """MPA startup as responder over an accepted socket.

        The Reply has the revision of the Request, and enhanced data only if the Request had some
        (``enhanced`` gives other values than the Request's mirrored ones). With ``reject`` the
        Reply has R=1 and :class:`Rejected` is raised here too.
        """
        request, early = _receive_startup(connection, timeout, reply=False)
        if request.enhanced is None:
            enhanced = None
        elif enhanced is None:
            theirs = request.enhanced
            enhanced = EnhancedData(
                ird=theirs.ord,
                ord=theirs.ird,
                peer_to_peer=theirs.peer_to_peer,
                # A Send as RTR would take a receive buffer of the ULP.
                rtr_write=theirs.rtr_write,
                rtr_read=theirs.rtr_read,
            )
        reply = StartupFrame(
            reply=True,
            markers=markers,
            crc=crc or request.crc,
            reject=reject,
            revision=request.revision,
            private_data=private_data,
            enhanced=enhanced,
        )
        connection.settimeout(timeout)
        connection.sendall(reply.encode())
        if reject:
            raise Rejected(reply)
        settled = mpa.negotiate(request, reply)
        endpoint = Endpoint(
            markers_out=settled.responder_sends_markers,
            markers_in=settled.initiator_sends_markers,
            crc=settled.crc,
            responder=True,
            **endpoint_options,  # type: ignore[arg-type]
        )
        return cls(connection, endpoint, request=request, reply=reply, early=early, cut=cut)

    def pump(self, timeout: float = 0.0) -> bool:
        """Send what waits and receive, for at most ``timeout`` seconds.

        Returns whether octets moved. Sending never keeps from receiving, so two peers that both
        send much do not block each other. The end of the peer's stream closes the endpoint.
        """
        self._collect()
        readable, writable, _ = select.select(
            [] if self.end_of_stream else [self.socket],
            [self.socket] if self._outgoing else [],
            [],
            timeout,
        )
        if readable:
            self._receive()
            self._collect()
        if writable:
            self._send()
        return bool(readable or writable)

    def run_until(self, condition: Callable[[], bool], timeout: float = DEFAULT_TIMEOUT) -> None:
        """Pump until ``condition`` holds.

        Raises ``TimeoutError``, or ``ConnectionError`` when the peer closed before.
        """
        deadline = time.monotonic() + timeout
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"condition not met within {timeout} s")
            if self.end_of_stream:
                raise ConnectionError("the peer closed the connection before the condition held")
            self.pump(min(left, 0.05))

    def wait(self, count: int = 1, timeout: float = DEFAULT_TIMEOUT) -> list[Completion]:
        """Pump until ``count`` completions came; returns all that are there."""
        completions: list[Completion] = []

        def enough() -> bool:
            completions.extend(self.endpoint.poll())
            return len(completions) >= count

        self.run_until(enough, timeout)
        return completions

    def close(self, timeout: float = DEFAULT_TIMEOUT) -> None:
        """Send what waits, then close the socket; output that nobody takes is dropped."""
        deadline = time.monotonic() + timeout
        try:
            self._collect()
            while self._outgoing and not self.end_of_stream and time.monotonic() < deadline:
                self.pump(0.05)
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            # The peer was faster; there is nothing left to send to.
            pass
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _collect(self) -> None:
        fpdus = self.endpoint.take_output()
        if self._cut is None:
            self._outgoing.extend(map(memoryview, fpdus))
            return
        octets = memoryview(b"".join(fpdus))
        while octets:
            count = max(1, self._cut(len(octets)))
            self._outgoing.append(octets[:count])
            octets = octets[count:]

    def _send(self) -> None:
        try:
            while self._outgoing:
                piece = self._outgoing[0]
                sent = self.socket.send(piece)
                if sent < len(piece):
                    self._outgoing[0] = piece[sent:]
                    return
                self._outgoing.popleft()
        except BlockingIOError:
            return
        except ConnectionError:
            self._end()

    def _receive(self) -> None:
        try:
            octets = self.socket.recv(RECEIVE_OCTETS)
        except BlockingIOError:
            return
        except ConnectionError:
            octets = b""
        if octets:
            self.endpoint.receive(octets)
        else:
            self._end()

    def _end(self) -> None:
        self.end_of_stream = True
        self._outgoing.clear()
        self.endpoint.tcp_closed()


def _receive_startup(
    connection: socket.socket, timeout: float, *, reply: bool
) -> tuple[StartupFrame, bytes]:
    """One startup frame and the octets that came with it."""
    deadline = time.monotonic() + timeout
    octets = b""
    while True:
        parsed = StartupFrame.parse(octets)
        if parsed is not None:
            frame, end = parsed
            if frame.reply != reply:
                raise startup.invalid(f"a {'Reply' if frame.reply else 'Request'} Frame came")
            return frame, octets[end:]
        connection.settimeout(max(deadline - time.monotonic(), 1e-3))
        received = connection.recv(RECEIVE_OCTETS)
        if not received:
            raise ConnectionError(f"connection closed after {len(octets)} bytes of a startup frame")
        octets += received
