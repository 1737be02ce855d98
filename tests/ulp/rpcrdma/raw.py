"""Peers that send whatever octets a test wants, over a QP of a device."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from unittest import mock

from stagecoach.host_driver import MR, AccessFlags, Context, QPInitAttr, cm
from stagecoach.ulp.rpcrdma import channel
from stagecoach.ulp.rpcrdma.channel import Channel
from stagecoach.ulp.rpcrdma.chunks import ChunkLists, ReadSegment, Segment
from stagecoach.ulp.rpcrdma.client import RdmaClientTransport, connect
from stagecoach.ulp.rpcrdma.header import Header, Procedure, decode_header
from stagecoach.ulp.rpcrdma.listener import RdmaListener
from stagecoach.ulp.rpcrdma.private_data import PrivateData
from stagecoach.ulp.rpcrdma.server import RdmaServerTransport
from stagecoach.ulp.rpcrdma.settings import ClientSettings, ServerSettings
from tests.ulp.rpcrdma.rig import Devices, echo, inline

SECONDS = 10.0


def with_rfc7306() -> contextlib.AbstractContextManager[object]:
    """Channels that are made meanwhile have QPs with atomics and Immediate Data."""
    return mock.patch.object(channel, "QPInitAttr", partial(QPInitAttr, rfc7306=True))


class RawPeer:
    """One end of a connection without RPC-over-RDMA, whose QP has atomics and Immediate Data.

    Attributes
    ----------
    received: octets of the Sends that came; `give_back` posts their receives again at once.
    stags: that were invalidated by them.
    """

    def __init__(self, context: Context, receives: int = 16, octets: int = 4096):
        self.received: asyncio.Queue[bytes] = asyncio.Queue()
        self.stags: list[int | None] = []
        self.ended = asyncio.Event()
        self._regions: list[MR] = []
        with with_rfc7306():
            self.channel = Channel(
                context,
                receives=receives,
                sends=16,
                octets=octets,
                on_message=self._on_message,
                on_end=lambda error: self.ended.set(),
            )

    def _on_message(self, slot: int, octets: bytes, stag: int | None) -> None:
        self.channel.give_back(slot)
        self.stags.append(stag)
        self.received.put_nowait(octets)

    async def send(self, octets: bytes) -> None:
        """Sends octets; they have left when it returns."""
        await (await self.channel.send(octets))

    async def next(self) -> bytes:
        """The next Send that comes."""
        return await asyncio.wait_for(self.received.get(), SECONDS)

    async def next_header(self) -> Header:
        """Its header."""
        return decode_header(await self.next())[0]

    async def until_ended(self) -> None:
        """Waits until the connection is over."""
        await asyncio.wait_for(self.ended.wait(), SECONDS)

    def region(self, octets: int | bytes, access: AccessFlags) -> tuple[bytearray, Segment]:
        """Memory for the peer, and the segment that names all of it."""
        buffer = bytearray(octets)
        mr = MR(self.channel.pd, buffer, access, qp=self.channel.qp)
        self._regions.append(mr)  # until the QP is closed
        return buffer, Segment(mr.rkey, mr.length, mr.addr)

    def readable(self, octets: bytes) -> Segment:
        """Memory that the peer may read."""
        return self.region(octets, AccessFlags.REMOTE_READ)[1]


@contextlib.asynccontextmanager
async def raw_client(
    devices: Devices,
    server: ServerSettings | None = None,
    told: PrivateData | None = None,
    **fields,
) -> AsyncIterator[tuple[RawPeer, RdmaServerTransport]]:
    """A raw client with a real server, which is closed at the end; nothing is left of both."""
    server = server or ServerSettings()
    async with RdmaListener(devices.server, port=0, settings=server) as listener:
        accepting = asyncio.ensure_future(listener.accept())
        peer = RawPeer(devices.client, **fields)
        data = b"" if told is None else told.encode()
        try:
            await asyncio.to_thread(
                cm.connect, peer.channel.qp, "127.0.0.1", listener.port, private_data=data
            )
            async with await accepting as accepted:
                yield peer, accepted
        finally:
            await peer.channel.close()
    devices.check_clean()


@contextlib.asynccontextmanager
async def raw_server(
    devices: Devices, client: ClientSettings | None = None
) -> AsyncIterator[tuple[RdmaClientTransport, RawPeer]]:
    """A real client with a raw server; nothing is left of both."""
    settings = replace(client or ClientSettings(), announce=False)
    with cm.listen(devices.server) as listener:
        peer = RawPeer(devices.server)

        def accept() -> None:
            listener.get_request(SECONDS).accept(peer.channel.qp)

        try:
            accepting = asyncio.ensure_future(asyncio.to_thread(accept))
            transport = await connect(devices.client, "127.0.0.1", listener.port, settings)
            await accepting
            async with transport:
                yield transport, peer
        finally:
            await peer.channel.close()
    devices.check_clean()


def words(*values: int) -> bytes:
    """Words as XDR has them."""
    return b"".join(value.to_bytes(4) for value in values)


def segment_words(segment: Segment, length: int) -> tuple[int, int, int, int]:
    """HLOO of a segment with this length (RFC 8166, 4.7)."""
    return segment.handle, length, segment.offset >> 32, segment.offset & 0xFFFFFFFF


def call_of(xid: int, stream: bytes, *reads: tuple[int, Segment], **lists) -> bytes:
    """An RDMA_MSG with read segments at positions, and other lists."""
    entries = tuple(ReadSegment(position, segment) for position, segment in reads)
    return Header(xid, 8, lists=ChunkLists(reads=entries, **lists)).encode() + stream


def done(xid: int) -> bytes:
    """RDMA_DONE."""
    return Header(xid, 8, Procedure.RDMA_DONE).encode()


async def nothing_comes(peer: RawPeer, seconds: float = 0.2) -> None:
    """Fails if the peer gets a message or loses the connection."""
    with contextlib.suppress(TimeoutError):
        octets = await asyncio.wait_for(peer.received.get(), seconds)
        raise AssertionError(f"{octets.hex()} came")
    assert not peer.ended.is_set()


async def still_serves(peer: RawPeer, transport: RdmaServerTransport, xid: int) -> None:
    """A call and its reply, after the answers to what came before."""
    await peer.send(call_of(xid, inline(xid, b"good").stream))
    await echo(await transport.receive())
    while (header := await peer.next_header()).xid != xid:
        assert header.fault is not None
    assert header.procedure is Procedure.RDMA_MSG
