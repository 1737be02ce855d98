"""RPC over TCP (RFC 5531, 11): the transport of servers, and the listener."""

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Awaitable, Callable

from stagecoach.ulp.oncrpc.complaints import Complaints
from stagecoach.ulp.oncrpc.errors import (
    MessageTooLong,
    RpcConnectionError,
    TooManyConnections,
)
from stagecoach.ulp.oncrpc.limits import Account, Admission
from stagecoach.ulp.oncrpc.message import Message
from stagecoach.ulp.oncrpc.record import read_record
from stagecoach.ulp.oncrpc.tcp import MAXIMUM_RECORD, RecordStream
from stagecoach.ulp.oncrpc.transport import ServerTransport

_COMPLAINTS = Complaints(logging.getLogger(__name__))

_BACKLOG = 100
_RETRY_SECONDS = 0.2
"""Until the next try to accept a connection for which the process had no descriptor."""


class TcpCall:
    """A `Call` that came over TCP."""

    bulk_room: tuple[int, ...] = ()

    def __init__(self, message: Message, transport: "TcpServerTransport", octets: int):
        self.message = message
        self._transport = transport
        self._octets = octets
        self._reserved = 0

    async def reserve(self, octets: int) -> None:
        """As `Call.reserve`."""
        self._reserved += await self._transport.account.replies.take(octets)

    def buffer(self, octets: int) -> memoryview:
        """As `Call.buffer`."""
        if octets > MAXIMUM_RECORD:
            raise MessageTooLong(f"bulk item of {octets} bytes; allowed: {MAXIMUM_RECORD}")
        return memoryview(bytearray(octets))

    async def reply(self, message: Message) -> None:
        """As `Call.reply`."""
        try:
            await self._transport.stream.write(message)
        finally:
            self._end()

    async def drop(self) -> None:
        """Anything other than a call ends the connection: its peer does not speak RPC."""
        self._end()
        await self._transport.close()

    def _end(self) -> None:
        account = self._transport.account
        account.calls.give(self._octets)
        account.replies.give(self._reserved)
        self._transport.calls -= 1


class TcpServerTransport:
    """A `ServerTransport` on a TCP connection.

    Attributes
    ----------
    stream: of records. account: what the connection has. calls: that are not answered.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, account: Account
    ):
        self.stream = RecordStream(reader, writer, account.limits.reply_seconds)
        self.account = account
        self.calls = 0
        self._called = False

    @property
    def peer(self) -> str:
        """As `ServerTransport.peer`."""
        return self.account.peer

    async def receive(self) -> TcpCall:
        """As `ServerTransport.receive`; a client that is silent for too long is lost."""
        first = await self._first_octet()
        limits, loop, taken = self.account.limits, asyncio.get_running_loop(), 0
        try:
            async with asyncio.timeout(limits.record_seconds) as timer:

                async def admit(octets: int) -> None:
                    # The time that this end takes is not the client's.
                    nonlocal taken
                    timer.reschedule(None)
                    taken = await self.account.calls.take(octets)
                    timer.reschedule(loop.time() + limits.record_seconds)

                record = await read_record(self.stream.reader, MAXIMUM_RECORD, first, admit)
        except BaseException as error:
            self.account.calls.give(taken)
            if isinstance(error, TimeoutError):
                raise RpcConnectionError(f"no whole call in {limits.record_seconds} s") from error
            raise
        self._called = True
        self.calls += 1
        return TcpCall(Message(record), self, taken)

    async def _first_octet(self) -> bytes:
        limits = self.account.limits
        while True:
            seconds = limits.idle_seconds if self._called else limits.first_seconds
            try:
                async with asyncio.timeout(seconds):
                    return await self.stream.reader.readexactly(1)
            except TimeoutError as error:
                if not self.calls:
                    raise RpcConnectionError(f"no call in {seconds} s") from error
            except (asyncio.IncompleteReadError, OSError) as error:
                raise RpcConnectionError(f"the connection ended: {error}") from error

    async def close(self) -> None:
        """As `ServerTransport.close`."""
        try:
            await self.stream.close()
        finally:
            self.account.close()


class TcpListener:
    """Serves every TCP connection to a port.

    Parameters
    ----------
    serve: such as `RpcServer.serve`. admission: of the server; its own with the usual limits if not
        given.
    """

    def __init__(
        self,
        serve: Callable[[ServerTransport], Awaitable[None]],
        admission: Admission | None = None,
    ):
        self._serve = serve
        self._admission = admission or Admission()
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._connections: set[asyncio.Task[None]] = set()

    async def listen(self, host: str | None, port: int) -> int:
        """Listens at a host, `None` for all addresses; port 0 chooses one. Returns the port.

        Called once. Raises `OSError`.
        """
        if host is None:
            self._sockets.append(_everywhere(port))
        else:
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            for family, address in dict.fromkeys((each[0], str(each[4][0])) for each in found):
                listening = socket.create_server((address, port), family=family, backlog=_BACKLOG)
                self._sockets.append(listening)
                port = int(listening.getsockname()[1])
        for listening in self._sockets:
            listening.setblocking(False)
            self._accepting.append(asyncio.create_task(self._accept(listening)))
        return int(self._sockets[0].getsockname()[1])

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connected, address = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno != errno.ECONNABORTED:
                    _COMPLAINTS.warning("accept", f"cannot accept a connection: {error}")
                    await asyncio.sleep(_RETRY_SECONDS)
                continue
            try:
                account = self._admission.enter(str(address[0]))
            except TooManyConnections as error:
                connected.close()
                _COMPLAINTS.warning("admission", f"a client was turned away: {error}")
                continue
            task = loop.create_task(self._connected(connected, account))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

    async def _connected(self, connected: socket.socket, account: Account) -> None:
        try:
            with connected:  # also if the task is cancelled before there is a transport
                reader, writer = await asyncio.open_connection(sock=connected)
                transport = TcpServerTransport(reader, writer, account)
                try:
                    await self._serve(transport)
                finally:
                    await transport.close()
        except OSError as error:
            _COMPLAINTS.warning("connection", f"a connection was lost: {error}")
        except Exception as error:
            _COMPLAINTS.error("fault", "a connection failed", error)
        finally:
            account.close()

    async def close(self) -> None:
        """Stops listening and ends all connections."""
        tasks = [*self._accepting, *self._connections]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._accepting.clear()
        while self._sockets:
            self._sockets.pop().close()


def _everywhere(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        # The kernel may know IPv6, and the machine have no address of it.
        with contextlib.suppress(OSError):
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
            )
    return socket.create_server(("", port), backlog=_BACKLOG)
