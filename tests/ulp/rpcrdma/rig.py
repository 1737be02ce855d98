"""Two simulated devices with RPC-over-RDMA between them, and messages to send."""

import asyncio
import contextlib
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from stagecoach.host_driver import Context
from stagecoach.ulp.oncrpc.errors import RpcConnectionError
from stagecoach.ulp.oncrpc.message import PLACED, Bulk, Message, roundup
from stagecoach.ulp.oncrpc.transport import ReplyRoom
from stagecoach.ulp.rpcrdma.call import RdmaCall
from stagecoach.ulp.rpcrdma.client import RdmaClientTransport, connect
from stagecoach.ulp.rpcrdma.listener import RdmaListener
from stagecoach.ulp.rpcrdma.server import RdmaServerTransport
from stagecoach.ulp.rpcrdma.settings import ClientSettings, ServerSettings

SECONDS = 30.0
"""Longer than anything takes that goes well."""


@dataclass
class Devices:
    """Two open devices."""

    client: Context
    server: Context

    def check_clean(self) -> None:
        """No memory is registered, and no QP and CQ is left."""
        for context in (self.client, self.server):
            assert (context.mrs, context.qps, context.cqs) == ({}, {}, {})


@dataclass
class Pair:
    """A connection: both ends and the devices under them."""

    client: RdmaClientTransport
    server: RdmaServerTransport
    devices: Devices


@contextlib.asynccontextmanager
async def connected(
    devices: Devices,
    client: ClientSettings | None = None,
    server: ServerSettings | None = None,
    handler: Callable[[RdmaCall], Awaitable[None]] | None = None,
) -> AsyncIterator[Pair]:
    """A connection; `handler` serves each call in a task of its own. Nothing is left of it."""
    client, server = client or ClientSettings(), server or ServerSettings()
    async with RdmaListener(devices.server, port=0, settings=server) as listener:
        connecting = asyncio.ensure_future(
            connect(devices.client, "127.0.0.1", listener.port, client)
        )
        async with await listener.accept() as accepted:
            # A client of the profile RFC5666 calls at once.
            serving = asyncio.ensure_future(_serve(accepted, handler)) if handler else None
            try:
                async with await connecting as made:
                    yield Pair(made, accepted, devices)
            finally:
                if serving is not None:
                    serving.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await serving
    devices.check_clean()


async def _serve(
    transport: RdmaServerTransport, handler: Callable[[RdmaCall], Awaitable[None]]
) -> None:
    tasks = set()

    async def handle(call: RdmaCall) -> None:
        try:
            await handler(call)
        except Exception:
            traceback.print_exc()
            # The client hears of it at once.
            await transport.close()
            raise

    try:
        while True:
            task = asyncio.ensure_future(handle(await transport.receive()))
            tasks.add(task)
    except RpcConnectionError:
        pass  # the client has gone
    finally:
        for task in tasks:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
    for each in found:
        if isinstance(each, Exception):
            raise each


def run(work: Callable[[], Awaitable[None]]) -> None:
    """Runs a test to its end."""
    asyncio.run(asyncio.wait_for(_awaited(work), SECONDS))


async def _awaited(work: Callable[[], Awaitable[None]]) -> None:
    await work()


# Messages: XID and direction, then opaques and a last word.


def message(xid: int, *items: bytes | memoryview, last: int = 0x6C617374) -> Message:
    """A message whose opaques are all bulk items."""
    stream = xid.to_bytes(4) + bytes(4)
    position = len(stream)
    bulks = []
    for item in items:
        stream += len(item).to_bytes(4)
        position += 4
        bulks.append(Bulk(position, memoryview(item)))
        position += roundup(len(item))
    return Message(stream + last.to_bytes(4), tuple(bulks))


def inline(xid: int, *items: bytes) -> Message:
    """The same whose opaques are in the stream."""
    return Message(message(xid, *items).whole())


def items_of(found: Message) -> list[bytes]:
    """The opaques of a message that came, wherever they are."""
    items = []
    bulks = list(found.bulks)
    at, inserted = 8, 0
    while at < len(found.stream) - 4:
        octets = int.from_bytes(found.stream[at : at + 4])
        at += 4
        if bulks and bulks[0].position in (PLACED, at + inserted):
            data = bytes(bulks.pop(0).data)
            assert len(data) in (octets, roundup(octets))
            items.append(data[:octets])
            inserted += roundup(octets)
        else:
            items.append(found.stream[at : at + octets])
            at += roundup(octets)
    assert not bulks
    return items


async def echo(call: RdmaCall) -> None:
    """Answers with the opaques of the call, through the write list as far as there is one."""
    items = items_of(call.message)
    copies = []
    for item in items:
        view = call.buffer(len(item))
        view[:] = item
        copies.append(view)
    await call.reply(message(call.message.xid, *copies))


def room(octets: int, *sizes: int) -> ReplyRoom:
    """Room for a reply of `octets`, with buffers of these sizes."""
    return ReplyRoom(octets, tuple(memoryview(bytearray(size)) for size in sizes))


def pattern(octets: int, seed: int = 0) -> bytes:
    """Octets that differ from place to place."""
    return bytes((seed + at * 7 + (at >> 8)) & 0xFF for at in range(octets))
