"""RPC over TCP (RFC 5531, 11): records on a connection, and the transport of clients."""

import asyncio
import contextlib
import errno
import os
import socket
import struct
from typing import Self

from stagecoach.ulp.oncrpc.errors import (
    MessageTooLong,
    ReplyTimeout,
    ReplyTooLong,
    RpcConnectionError,
)
from stagecoach.ulp.oncrpc.message import Message, roundup
from stagecoach.ulp.oncrpc.record import pieces, read_record
from stagecoach.ulp.oncrpc.transport import ReplyRoom

MAXIMUM_RECORD = (1 << 20) + (1 << 16)
"""Bytes of a message: a bulk item of 1 MiB, and what is around it."""


CONNECT_SECONDS = 10.0
"""That a server has to take a connection."""
REPLY_SECONDS = 60.0
"""That it has to answer a call, if nothing else is said."""


CLOSE_SECONDS = 1.0
"""That what was written has to leave when the connection is closed."""


_NO_LINGER = struct.pack("ii", 1, 0)


class RecordStream:
    """A connection to which records are written whole.

    Parameters
    ----------
    write_seconds: that the peer has to take a record; `None` for ever.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        write_seconds: float | None = None,
    ):
        self.reader = reader
        self._writer = writer
        self._write_seconds = write_seconds
        self._writing = asyncio.Lock()

    async def write(self, message: Message) -> None:
        """Returns when the record has left, but for little."""
        if message.whole_octets > MAXIMUM_RECORD:
            raise MessageTooLong(
                f"message of {message.whole_octets} bytes; allowed: {MAXIMUM_RECORD}"
            )
        async with self._writing:
            try:
                async with asyncio.timeout(self._write_seconds):
                    self._writer.writelines(pieces(message))
                    await self._writer.drain()
            except TimeoutError as error:
                self._reset()
                raise RpcConnectionError(
                    f"the peer did not take a record in {self._write_seconds} s"
                ) from error
            except OSError as error:
                raise RpcConnectionError(f"the connection ended: {error}") from error

    async def close(self) -> None:
        """Closes the connection, also if the peer takes nothing."""
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                # One who is cancelled ends the waiting neither of others nor of a later call.
                await asyncio.shield(self._writer.wait_closed())
        except TimeoutError:
            self._reset()
        except OSError:
            pass
        finally:
            self._writer.transport.abort()

    def _reset(self) -> None:
        """Ends the connection with what the kernel has of it, which the peer does not take."""
        connected = self._writer.get_extra_info("socket")
        with contextlib.suppress(OSError):  # it is closed
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._writer.transport.abort()


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
        self._stream = RecordStream(reader, writer)
        self._reply_timeout = reply_timeout
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._lost: Exception | None = None
        self._receiver = asyncio.create_task(self._receive())

    @classmethod
    async def connect(
        cls, host: str, port: int, reply_timeout: float | None = REPLY_SECONDS
    ) -> Self:
        """Connects to a server. Raises `OSError`, such as `TimeoutError` if nothing answers."""
        what = f"cannot connect to {host} port {port}"
        try:
            async with asyncio.timeout(CONNECT_SECONDS) as limit:
                reader, writer = await _connected(host, port)
            return cls(reader, writer, reply_timeout)
        except UnicodeError as error:  # of a name that is none
            raise OSError(f"{what}: {error}") from error
        except OSError as error:
            why = f"no answer in {CONNECT_SECONDS} s" if limit.expired() else _why(error)
            raise type(error)(f"{what}: {why}") from error

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
            raise ReplyTooLong(f"reply of {len(reply.stream)} bytes; allowed: {allowed}")
        return reply

    async def _receive(self) -> None:
        try:
            while True:
                reply = Message(await read_record(self._stream.reader, MAXIMUM_RECORD))
                if len(reply.stream) < 4:
                    raise RpcConnectionError(f"a record of {len(reply.stream)} bytes")
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


async def _connected(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the first address of a host that takes one, or the error of the last."""
    loop = asyncio.get_running_loop()
    failure: OSError | None = None
    for family, kind, protocol, _, address in await loop.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        connected = socket.socket(family, kind, protocol)
        try:
            connected.setblocking(False)
            await loop.sock_connect(connected, address)
            return await asyncio.open_connection(sock=connected)
        except OSError as error:
            connected.close()
            failure = error
        except BaseException:
            connected.close()
            raise
    raise failure or OSError("it has no address")


def _why(error: OSError) -> str:
    """What is wrong, without asyncio's account of the call that failed."""
    if error.errno is None:
        return str(error)
    known = error.errno in errno.errorcode and not isinstance(error, socket.gaierror)
    return os.strerror(error.errno) if known else str(error.strerror)
