"""What a server may answer that is wrong, or not at all; nothing of the client stays registered."""

import asyncio

import pytest

from stagecoach.host_driver import AccessFlags, SendWR, WROpcode
from stagecoach.host_driver.wr import SGE
from stagecoach.ulp.oncrpc.errors import ReplyTimeout, RpcConnectionError, RpcTransportError
from stagecoach.ulp.oncrpc.transport import ReplyRoom
from stagecoach.ulp.rpcrdma.chunks import ChunkLists, ReadSegment, Segment
from stagecoach.ulp.rpcrdma.errors import ErrorCode, RdmaErrorReceived
from stagecoach.ulp.rpcrdma.header import Fault, Header, Padding, Procedure, decode_header
from stagecoach.ulp.rpcrdma.reply import cut
from stagecoach.ulp.rpcrdma.settings import ClientSettings
from tests.ulp.rpcrdma.raw import RawPeer, raw_server, words
from tests.ulp.rpcrdma.rig import Devices, inline, items_of, message, pattern, room, run

pytestmark = pytest.mark.usefixtures("compiled_device")

XID = 0x600D
STREAM = inline(XID, b"result").stream


def reply(xid: int = XID, stream: bytes = STREAM, credits: int = 8, **fields) -> bytes:
    return Header(xid, credits, **fields).encode() + stream


async def outstanding(transport, peer: RawPeer, offered: ReplyRoom | None = None, **fields):
    """A call that has arrived: its task and its header."""
    task = asyncio.ensure_future(
        transport.call(message(XID, *fields.get("items", ())), offered or room(100))
    )
    return task, await peer.next_header()


async def write(peer: RawPeer, segment: Segment, octets: bytes) -> None:
    """An RDMA Write out of a region of the peer."""
    _, source = peer.region(octets, AccessFlags(0))
    element = SGE(source.offset, len(octets), source.handle)
    request = SendWR(
        opcode=WROpcode.RDMA_WRITE,
        sg=[element],
        send_flags=0,
        remote_addr=segment.offset,
        rkey=segment.handle,
    )
    await (await peer.channel.post([request]))


@pytest.mark.requirement("RPCRDMA-4.2-01", "RPCRDMA-4.1-03", "RPCRDMA-3.4-04")
def test_what_is_no_reply_is_discarded_and_the_call_waits_on(devices: Devices):
    async def work():
        async with raw_server(devices) as (transport, peer):
            task, _ = await outstanding(transport, peer)
            read = ReadSegment(12, peer.readable(b"abcd"))
            others = [
                b"",
                words(XID, 1, 8),
                words(XID, 2, 8, 0, 0, 0, 0) + STREAM,
                words(XID, 1, 8, 9, 0, 0, 0) + STREAM,
                words(XID, 1, 8, 0, 2, 0, 0) + STREAM,
                words(XID, 1, 8, 4, 3) + bytes(32),
                reply(XID + 1, inline(XID + 1).stream),
                reply(XID, inline(XID + 1).stream),
                Header(XID, 8, Procedure.RDMA_DONE).encode(),
                reply(procedure=Procedure.RDMA_MSGP, padding=Padding(4, 4)),
                reply(lists=ChunkLists(reads=(read,))),
            ]
            for octets in others:
                await peer.send(octets)
            await asyncio.sleep(0.1)
            assert not task.done()
            assert transport.discarded == len(others)
            await peer.send(reply())
            assert items_of(await task) == [b"result"]
            # A second one is none either.
            await peer.send(reply())
            while transport.discarded == len(others):
                await asyncio.sleep(0.001)

    run(work)


@pytest.mark.requirement("RPCRDMA-4.2-03")
def test_rdma_error_ends_the_call_and_no_other(devices: Devices):
    async def work():
        async with raw_server(devices) as (transport, peer):
            for fault, detail in [
                (Fault(ErrorCode.ERR_VERS, 2, 3), "ERR_VERS, the peer knows versions 2 to 3"),
                (Fault(ErrorCode.ERR_CHUNK), "ERR_CHUNK$"),
            ]:
                task, _ = await outstanding(transport, peer, room(9000, 500))
                error = Header(XID, 8, Procedure.RDMA_ERROR, fault=fault)
                await peer.send(error.encode())
                with pytest.raises(RdmaErrorReceived, match=detail) as caught:
                    await task
                assert caught.value.code is fault.code
                assert transport.credits.outstanding == 0
            task, _ = await outstanding(transport, peer)
            await peer.send(reply())
            await task

    run(work)


@pytest.mark.requirement("RPCRDMA-3.4-09", "RPCRDMA-3.6-01", "RPCRDMA-3.7-03")
def test_returned_write_lists_that_lie_end_the_call(devices: Devices):
    async def work():
        async with raw_server(devices, ClientSettings(segment_octets=300)) as (transport, peer):

            async def answer(change) -> object:
                buffer = memoryview(bytearray(500))
                task, header = await outstanding(transport, peer, ReplyRoom(100, (buffer,)))
                (chunk,) = header.lists.writes
                assert [segment.length for segment in chunk] == [300, 200]
                for segment in chunk:
                    await write(peer, segment, b"w" * segment.length)
                await peer.send(reply(lists=ChunkLists(writes=change(chunk))))
                return await task

            def other(chunk):
                return (Segment(1, 300, chunk[0].offset), chunk[1])

            lies = [
                lambda chunk: (chunk, chunk),
                lambda chunk: (chunk[:1],),
                lambda chunk: (other(chunk),),
                lambda chunk: ((cut(chunk, 9)[0], chunk[1]),),
                lambda chunk: ((chunk[0], Segment(chunk[1].handle, 501, chunk[1].offset)),),
            ]
            for lie in lies:
                with pytest.raises(RpcTransportError):
                    await answer(lie)
            for octets in (500, 0, 299):
                found = await answer(lambda chunk, octets=octets: (cut(chunk, octets),))
                assert bytes(found.bulks[0].data) == b"w" * octets
            # No list at all: no chunk is used.
            assert [bytes(bulk.data) for bulk in (await answer(lambda chunk: ())).bulks] == [b""]

    run(work)


def test_long_replies_that_lie_end_the_call(devices: Devices):
    async def work():
        async with raw_server(devices) as (transport, peer):

            async def answer(octets: int, stream: bytes, reply_chunk=None) -> object:
                task, header = await outstanding(transport, peer, room(4000))
                assert header.lists.reply is not None
                await write(peer, header.lists.reply[0], stream)
                returned = cut(header.lists.reply, octets)
                lists = ChunkLists(reply=reply_chunk or returned)
                await peer.send(Header(XID, 8, Procedure.RDMA_NOMSG, lists).encode())
                return await task

            good = inline(XID, pattern(3000)).stream
            assert items_of(await answer(len(good), good)) == [pattern(3000)]
            with pytest.raises(RpcTransportError, match="the long reply: XID"):
                await answer(len(good), inline(XID + 1, pattern(3000)).stream)
            with pytest.raises(RpcTransportError, match="the long reply: RPC message of 3 bytes"):
                await answer(3, good)
            with pytest.raises(RpcTransportError, match="the reply returns chunk"):
                await answer(len(good), good, (Segment(1, 4000, 0),))
            # Without an offer there is no chunk to return.
            task, _ = await outstanding(transport, peer)
            lists = ChunkLists(reply=(Segment(1, 100, 0),))
            await peer.send(Header(XID, 8, Procedure.RDMA_NOMSG, lists).encode())
            with pytest.raises(RpcTransportError, match="a long reply without its chunk"):
                await task

    run(work)


@pytest.mark.requirement("RPCRDMA-3.3-02", "RPCRDMA-3.3-06")
def test_a_grant_of_none_leaves_one_call_at_a_time(devices: Devices):
    async def work():
        async with raw_server(devices) as (transport, peer):
            task, _ = await outstanding(transport, peer)
            await peer.send(reply(credits=0))
            await task
            calls = [
                asyncio.ensure_future(transport.call(inline(xid), room(100))) for xid in (1, 2)
            ]
            for xid in (1, 2):
                assert (await peer.next_header()).xid == xid
                await asyncio.sleep(0.05)
                assert transport.credits.outstanding == 1
                await peer.send(reply(xid, inline(xid).stream, credits=0))
            await asyncio.gather(*calls)

    run(work)


# Memory


def test_memory_of_a_call_is_for_its_peer_alone_and_only_as_long_as_it_lasts(devices: Devices):
    async def work():
        async with raw_server(devices) as (transport, peer):
            mrs = devices.client.mrs
            before = dict(mrs)
            task, header = await outstanding(
                transport, peer, room(9000, 500), items=[bytearray(5000)]
            )
            lists = header.lists
            rights = {segment.target.handle: AccessFlags.REMOTE_READ for segment in lists.reads}
            for chunk in (*lists.writes, lists.reply):
                rights |= {segment.handle: AccessFlags.REMOTE_WRITE for segment in chunk}
            assert {stag: mrs[stag].access for stag in mrs.keys() - before.keys()} == rights
            assert len(rights) == 3
            (qp,) = devices.client.qps.values()
            assert {mrs[stag]._qp for stag in rights} == {qp}
            await peer.send(reply())
            await task
            assert mrs == before

    run(work)


def test_after_the_reply_the_server_cannot_change_the_result(devices: Devices):
    async def work():
        async with raw_server(devices) as (transport, peer):
            buffer = memoryview(bytearray(500))
            task, header = await outstanding(transport, peer, ReplyRoom(100, (buffer,)))
            (chunk,) = header.lists.writes
            await write(peer, chunk[0], b"x" * 500)
            await peer.send(reply(lists=ChunkLists(writes=(chunk,))))
            await task
            await write(peer, chunk[0], b"y" * 500)
            await peer.until_ended()
            assert buffer == b"x" * 500
            with pytest.raises(RpcConnectionError):
                await transport.call(inline(1), room(100))

    run(work)


def test_a_region_that_the_server_has_invalidated_is_given_back_too(devices: Devices):
    async def work():
        async with raw_server(devices) as (transport, peer):
            before = set(devices.client.mrs)
            for _ in range(3):
                buffer = memoryview(bytearray(5000))
                task, header = await outstanding(transport, peer, ReplyRoom(100, (buffer,)))
                (chunk,) = header.lists.writes
                octets = reply(lists=ChunkLists(writes=(chunk,)))
                await (await peer.channel.send(octets, invalidate=chunk[0].handle))
                await task
                assert set(devices.client.mrs) == before

    run(work)


@pytest.mark.slow
def test_a_server_that_never_answers_is_a_timeout(devices: Devices):
    async def work():
        settings = ClientSettings(reply_timeout=1.0)
        async with raw_server(devices, settings) as (transport, peer):
            before = set(devices.client.mrs)
            task, header = await outstanding(transport, peer, room(9000, 500))
            with pytest.raises(ReplyTimeout, match=r"call 0x0000600d: no reply in 1\.0 s"):
                await task
            assert set(devices.client.mrs) == before
            # The server may still answer: its credit is not free.
            assert transport.credits.outstanding == 1
            with pytest.raises(ValueError, match="is outstanding"):
                await transport.call(inline(XID), room(100))
            with pytest.raises(ReplyTimeout):
                await transport.call(inline(XID + 1), room(100))
            # It does, inline, and the XID may be used again.
            assert header.lists.reply is not None
            await peer.send(reply())
            while transport.credits.outstanding:
                await asyncio.sleep(0.001)
            task, _ = await outstanding(transport, peer)
            await peer.send(reply())
            await task

    run(work)


def test_a_cancelled_call_leaves_no_memory_and_a_late_write_finds_none(devices: Devices):
    async def work():
        async with raw_server(devices) as (transport, peer):
            before = set(devices.client.mrs)
            buffer = memoryview(bytearray(500))
            task, header = await outstanding(transport, peer, ReplyRoom(100, (buffer,)))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert set(devices.client.mrs) == before
            await write(peer, header.lists.writes[0][0], b"late")
            await peer.until_ended()
            assert buffer == bytes(500)

    run(work)


def test_a_server_that_vanishes_ends_all_calls(devices: Devices):
    async def work():
        async with raw_server(devices) as (transport, peer):
            task, _ = await outstanding(transport, peer, room(9000, 500), items=[bytearray(9000)])
            second = asyncio.ensure_future(transport.call(inline(1), room(100)))
            await peer.channel.close()
            for each in (task, second):
                with pytest.raises(RpcConnectionError):
                    await asyncio.wait_for(each, 10)
            with pytest.raises(RpcConnectionError):
                await transport.call(inline(2), room(100))
            await transport.close()
            devices.check_clean()

    run(work)


def test_a_reply_before_the_end_of_the_connection_is_not_lost(devices: Devices):
    async def work():
        for _ in range(5):
            async with raw_server(devices) as (transport, peer):
                task, _ = await outstanding(transport, peer)
                await peer.send(reply())
                await peer.channel.close()
                assert items_of(await task) == [b"result"]

    run(work)


@pytest.mark.requirement("RPCRDMA-6-01")
def test_a_reply_longer_than_the_receives_ends_the_connection(devices: Devices):
    async def work():
        async with raw_server(devices, ClientSettings(inline_octets=1024)) as (transport, peer):
            task, _ = await outstanding(transport, peer)
            await peer.channel.send(reply(stream=inline(XID, bytes(1024)).stream))
            with pytest.raises(RpcConnectionError):
                await asyncio.wait_for(task, 10)

    run(work)


@pytest.mark.requirement("RPCRDMA-4.1-09", "RPCRDMA-3-01")
def test_the_first_call_of_a_client_word_by_word(devices: Devices):
    async def work():
        async with raw_server(devices, ClientSettings(credits=5)) as (transport, peer):
            task = asyncio.ensure_future(transport.call(inline(XID), room(100)))
            octets = await peer.next()
            # No record mark; XID, version, requested credits, RDMA_MSG, no lists, XID again.
            assert octets == words(XID, 1, 5, 0, 0, 0, 0) + inline(XID).stream
            assert decode_header(octets)[1] == 28
            await peer.send(reply())
            await task

    run(work)
