"""RPC over TCP (RFC 5531, 11): transports of clients and of servers."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Self

from host_driver.oncrpc.errors import (
    MessageTooLong,
    ReplyTimeout,
    ReplyTooLong,
    RpcConnectionError,
)
from host_driver.oncrpc.message import Message, roundup
from host_driver.oncrpc.record import pieces, read_record
from host_driver.oncrpc.transport import ReplyRoom, ServerTransport

MAXIMUM_RECORD = (1 << 20) + (1 << 16)
"""Octets of a message: a bulk item of 1 MiB, and what is around it."""


CONNECT_SECONDS = 10.0
"""That a server has to take a connection."""
REPLY_SECONDS = 60.0
"""That it has to answer a call, if nothing else is said."""


class _Stream:
    """A connection to which records are written whole."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.reader = reader
        self._writer = writer
        self._writing = asyncio.Lock()

    async def write(self, message: Message) -> None:
        if message.whole_octets > MAXIMUM_RECORD:
            raise MessageTooLong(
                f"message of {message.whole_octets} octets; allowed: {MAXIMUM_RECORD}"
            )
        async with self._writing:
            try:
                self._writer.writelines(pieces(message))
                await self._writer.drain()
            except OSError as error:
                raise RpcConnectionError(f"the connection ended: {error}") from error

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class TcpClientTransport:
    """A `ClientTransport` on a TCP connection. Bulk items go in the stream.

    Parameters
    ----------
    reader, writer: of the connection; see `connect`.
    reply_timeout: seconds for a call; `None` for ever.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        reply_timeout: float | None = REPLY_SECONDS,
    ):
        self._stream = _Stream(reader, writer)
        self._reply_timeout = reply_timeout
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._lost: Exception | None = None
        self._receiver = asyncio.create_task(self._receive())

    @classmethod
    async def connect(
        cls, host: str, port: int, reply_timeout: float | None = REPLY_SECONDS
    ) -> Self:
        """Raises `OSError`, such as `TimeoutError` if nothing answers."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(host, port)
            return cls(reader, writer, reply_timeout)
        except TimeoutError as error:
            raise TimeoutError(
                f"cannot connect to {host}:{port}: no answer in {CONNECT_SECONDS} s"
            ) from error

    async def call(self, message: Message, room: ReplyRoom) -> Message:
        """As `ClientTransport.call`. `ReplyTimeout` if there is no reply in time."""
        if self._lost is not None:
            raise RpcConnectionError(str(self._lost)) from self._lost
        if message.xid in self._waiting:
            raise ValueError(f"XID {message.xid:#x}; allowed: one that no call under way has")
        future = self._waiting[message.xid] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._reply_timeout) as limit:
                await self._stream.write(message)
                reply = await future
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ReplyTimeout(
                f"call {message.xid:#010x}: no reply in {self._reply_timeout} s"
            ) from error
        finally:
            del self._waiting[message.xid]
        allowed = room.octets + sum(roundup(len(bulk)) for bulk in room.bulks)
        if len(reply.stream) > allowed:
            raise ReplyTooLong(f"reply of {len(reply.stream)} octets; allowed: {allowed}")
        return reply

    async def _receive(self) -> None:
        try:
            while True:
                reply = Message(await read_record(self._stream.reader, MAXIMUM_RECORD))
                if len(reply.stream) < 4:
                    raise RpcConnectionError(f"a record of {len(reply.stream)} octets")
                future = self._waiting.get(reply.xid)
                if future is not None and not future.done():  # else nobody waits any more
                    future.set_result(reply)
        except RpcConnectionError as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._lost = self._lost or error
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(RpcConnectionError(str(error)))

    async def close(self) -> None:
        """As `ClientTransport.close`."""
        self._fail(RpcConnectionError("the connection was closed"))
        self._receiver.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._receiver
        await self._stream.close()


class TcpCall:
    """A `Call` that came over TCP."""

    bulk_room: tuple[int, ...] = ()

    def __init__(self, message: Message, stream: _Stream):
        self.message = message
        self._stream = stream

    def buffer(self, octets: int) -> memoryview:
        """As `Call.buffer`."""
        if octets > MAXIMUM_RECORD:
            raise MessageTooLong(f"bulk item of {octets} octets; allowed: {MAXIMUM_RECORD}")
        return memoryview(bytearray(octets))

    async def reply(self, message: Message) -> None:
        """As `Call.reply`."""
        await self._stream.write(message)

    async def drop(self) -> None:
        """What is no call ends the connection: its peer does not speak RPC."""
        await self._stream.close()


class TcpServerTransport:
    """A `ServerTransport` on a TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._stream = _Stream(reader, writer)

    async def receive(self) -> TcpCall:
        """As `ServerTransport.receive`."""
        message = Message(await read_record(self._stream.reader, MAXIMUM_RECORD))
        return TcpCall(message, self._stream)

    async def close(self) -> None:
        """As `ServerTransport.close`."""
        await self._stream.close()


class TcpListener:
    """Serves every TCP connection to a port.

    Parameters
    ----------
    serve: such as `RpcServer.serve`.
    """

    def __init__(self, serve: Callable[[ServerTransport], Awaitable[None]]):
        self._serve = serve
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def listen(self, host: str | None, port: int) -> int:
        """Listens at an address, `None` for all; port 0 chooses one. Returns the port."""
        self._server = await asyncio.start_server(self._connected, host, port)
        return int(self._server.sockets[0].getsockname()[1])

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._serve(TcpServerTransport(reader, writer))
        except asyncio.CancelledError:
            pass  # by `close`; asyncio's callback of 3.11 reports it otherwise
        finally:
            self._connections.discard(task)

    async def close(self) -> None:
        """Stops listening and ends all connections."""
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()
