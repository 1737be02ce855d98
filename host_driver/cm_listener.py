"""The connection manager's listener: takes in peers and their Requests (RFC 5044, 7.1.2)."""

import asyncio
import threading
import time
from collections import Counter
from typing import Self

from stagecoach.host_driver.cm_responder import ConnectionRequest
from stagecoach.host_driver.context import Context
from stagecoach.host_driver.dropped import Droppable
from stagecoach.host_driver.errors import require_type
from stagecoach.host_driver.mpa_errors import (
    ListenerClosed,
    StartupError,
    StartupStep,
    StartupTimeout,
)
from stagecoach.host_driver.mpa_exchange import DEFAULT_TIMEOUT, Deadline, FrameReader
from stagecoach.host_driver.mpa_startup import StartupFrame
from stagecoach.host_driver.transport.base import (
    ByteStream,
    Listener,
    StreamClosed,
    TransportError,
    TransportTimeout,
)

_IDLE_SECONDS = 0.2
"""How long `get_request` waits at a time for a peer if none is in the middle of its Request."""

_POLL_SECONDS = 0.002
"""The same if one is."""

_LOOP_SECONDS = 0.02
"""How often `accept` looks for a peer if none is in the middle of its Request."""


class _Handshake:
    """A connection whose Request is not complete."""

    def __init__(self, stream: ByteStream, seconds: float):
        self.stream = stream
        self.peer = stream.peer_address[0]
        self._reader = FrameReader(stream, reply=False)
        self._deadline = Deadline(seconds)

    def poll(self) -> StartupFrame | None:
        """The Request if it is complete; raises `StartupError` if it never will be."""
        frame = self._reader.poll()
        if frame is None and not self._deadline.left:
            raise self._reader.timeout(self._deadline.seconds)
        return frame


class ConnectionListener(Droppable):
    """Waits for peers on a port. Several threads may call `get_request`.

    Parameters
    ----------
    context: the open device; closing it closes the listener.
    host, port: where to listen; port 0 takes any free one, an empty host all addresses.
    backlog: connections that may be open without a whole Request, 1 or more. When one more peer
        comes, the oldest of the address that has most of them is turned away.
    request_timeout: seconds that each of them has for it (RFC 5044, 7.1.2 item 8).

    Attributes
    ----------
    port: the port in use.
    """

    def __init__(
        self,
        context: Context,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        backlog: int = 64,
        request_timeout: float = DEFAULT_TIMEOUT,
    ):
        require_type("context", context, Context)
        if backlog < 1:
            raise ValueError(f"backlog is {backlog}; allowed: 1 or more")
        self._request_seconds = Deadline(request_timeout, "request_timeout").seconds
        context._require_open()
        self._context = context
        self._backlog = backlog
        self._begun: list[_Handshake] = []
        self._turn = threading.Lock()  # around `_begun`; one thread accepts at a time
        self._listener: Listener = context.transport.listen(host, port)
        self.port = self._listener.address[1]
        context._adopt(self)
        self._opened(context)

    def __repr__(self) -> str:
        return f"<ConnectionListener at port {self.port}{', closed' if self._closed else ''}>"

    def get_request(self, timeout: float = DEFAULT_TIMEOUT) -> ConnectionRequest:
        """The next peer that wants to connect.

        Peers that are slow with their Request do not hold up others. Raises

        `StartupTimeout` if there is no Request within `timeout` seconds; a peer in the middle of
        its Request may go on, and the next call takes it,

        `MalformedFrame` or `StartupError`, once for each peer that sent anything but a Request,
        was too slow with it, was turned away, or has gone; its connection is closed then,

        `ListenerClosed` if the listener is closed, also while this waits.
        """
        deadline = Deadline(timeout)
        while True:
            self._context.lock.check()
            if self._turn.acquire(timeout=deadline.left):
                try:
                    request = self._take_turn(deadline)
                finally:
                    self._turn.release()
                if request is not None:
                    return request
            if not deadline.left:
                begun = len(self._begun)
                raise StartupTimeout(
                    StartupStep.PEER,
                    deadline.seconds,
                    f"no whole MPA Request frame at port {self.port}, {begun} begun",
                )

    async def accept(self) -> ConnectionRequest:
        """The next peer that wants to connect, as `get_request`, for an event loop that goes on.

        It waits until there is one, and looks 50 times a second. A task that waits can be
        cancelled: a peer in the middle of its Request may go on, and the next call takes it.

        Raises what `get_request` does for a peer that is not as it should be, and `ListenerClosed`
        if the listener is closed, also while this waits.
        """
        while True:
            self._context.lock.check()
            if self._turn.acquire(blocking=False):
                try:
                    request = self._take_turn(Deadline(0.0))
                finally:
                    self._turn.release()
                if request is not None:
                    return request
            await asyncio.sleep(_POLL_SECONDS if self._begun else _LOOP_SECONDS)

    def _take_turn(self, deadline: Deadline) -> ConnectionRequest | None:
        """Looks at the peers that are there, then waits a little for another one."""
        if self._closed:
            raise ListenerClosed(f"the listener at port {self.port} is closed; allowed: open")
        for handshake in list(self._begun):
            try:
                frame = handshake.poll()
            except BaseException:
                self._begun.remove(handshake)
                handshake.stream.close()
                raise
            if frame is not None:
                self._begun.remove(handshake)
                return ConnectionRequest(self._context, handshake.stream, frame)
        seconds = min(deadline.left, _POLL_SECONDS if self._begun else _IDLE_SECONDS)
        try:
            stream = self._listener.accept(seconds)
        except TransportTimeout:
            return None
        except StreamClosed as error:
            raise ListenerClosed(f"the listener at port {self.port} was closed") from error
        except TransportError as error:
            time.sleep(seconds)  # such as without a descriptor: the next try may fail as well
            raise StartupError(f"no connection at port {self.port}: {error}") from error
        self._begun.append(_Handshake(stream, self._request_seconds))
        if len(self._begun) > self._backlog:
            self._turn_away()
        return None

    def _turn_away(self) -> None:
        """Makes room: peers that mean it are done soon, and those that fall silent are old."""
        counts = Counter(each.peer for each in self._begun)
        most = max(counts.values())
        oldest = next(each for each in self._begun if counts[each.peer] == most)
        self._begun.remove(oldest)
        oldest.stream.close()
        raise StartupError(
            f"a peer at {oldest.peer} without a whole MPA Request frame was turned away for "
            f"another; allowed: {self._backlog} at a time"
        )

    def close(self) -> None:
        """Stops listening, also while `get_request` waits; what it has returned stays open."""
        self._context.lock.check()
        self._closed = True
        self._context._forget(self)
        self._listener.close()
        with self._turn:
            while self._begun:
                self._begun.pop().stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
