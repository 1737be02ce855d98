"""What RFC 8166 demands of a Requester, octet by octet; the Responder is a raw peer."""

import asyncio

import pytest

from stagecoach.host_driver import MR, AccessFlags, QPState, SendFlags, SendWR, WROpcode
from stagecoach.host_driver.errors import DeviceError
from stagecoach.host_driver.wr import SGE
from stagecoach.ulp.oncrpc.errors import RpcConnectionError, RpcTransportError
from stagecoach.ulp.oncrpc.message import Message, roundup
from stagecoach.ulp.oncrpc.transport import ReplyRoom
from stagecoach.ulp.rpcrdma.chunks import ChunkLists, ReadSegment, Segment
from stagecoach.ulp.rpcrdma.errors import ErrorCode, RdmaErrorReceived
from stagecoach.ulp.rpcrdma.header import Header, decode_header
from stagecoach.ulp.rpcrdma.reply import cut
from stagecoach.ulp.rpcrdma.settings import ClientSettings
from tests.ulp.rpcrdma.raw import (
    SECONDS,
    RawPeer,
    nothing_comes,
    raw_server,
    segment_words,
    words,
)
from tests.ulp.rpcrdma.rig import Devices, inline, items_of, message, pattern, room, run

pytestmark = pytest.mark.usefixtures("compiled_device")

XID = 0x5EED0002
LAST = 0x6C617374
CREDITS = 32
"""What a client with default settings requests."""

MSG, NOMSG, MSGP, DONE, ERROR = range(5)
"""rdma_proc, as RFC 8166, 4.1.2 has it."""

ERR_VERS, ERR_CHUNK = 1, 2
STREAM = inline(XID, b"result").stream
REPLY = words(XID, 1, 8, MSG, 0, 0, 0) + STREAM


async def calling(transport, peer: RawPeer, call: Message, offered: ReplyRoom):
    """A call that has arrived: its task, its header, and its Send."""
    task = asyncio.ensure_future(transport.call(call, offered))
    octets = await peer.next()
    return task, decode_header(octets)[0], octets


async def post(peer: RawPeer, opcode: WROpcode, segment: Segment, octets: bytes) -> bytearray:
    """An RDMA Write of these octets, or an RDMA Read of as many into what is returned."""
    buffer, place = peer.region(octets, AccessFlags.LOCAL_WRITE)
    await (
        await peer.channel.post(
            [
                SendWR(
                    opcode=opcode,
                    sg=[SGE(place.offset, len(octets), place.handle)],
                    remote_addr=segment.offset,
                    rkey=segment.handle,
                    send_flags=SendFlags(0),
                )
            ]
        )
    )
    return buffer


async def fetched(peer: RawPeer, *segments: Segment) -> bytes:
    """What is in segments of the client."""
    return b"".join(
        [
            bytes(await post(peer, WROpcode.RDMA_READ, each, bytes(each.length)))
            for each in segments
            if each.length
        ]
    )


# Calls


@pytest.mark.requirement(
    *(f"RFC8166-3.4.4.1-{number}" for number in ("01", "02")),
    *("RFC8166-3.4.4.4-01", "RFC8166-3.4.4.4-02", "RFC8166-3.4.5-01", "RFC8166-3.4.5-02"),
    *("RFC8166-3.4.5-03", "RFC8166-3.4.5.2-01", "RFC8166-3.4.5.2-03", "RFC8166-4.2.1-01"),
    *("RFC8166-3.4.6-01", "RFC8166-3.4.6.2-01", "RFC8166-4.3.2.2-02", "RFC8166-4.2.2-01"),
)
@pytest.mark.parametrize("octets", range(4097, 4101))
def test_a_call_with_chunks_octet_by_octet(devices: Devices, octets: int):
    async def work():
        async with raw_server(devices, ClientSettings(segment_octets=4095)) as (transport, peer):
            first, second = bytearray(pattern(octets)), bytearray(pattern(octets, 3))
            rooms = room(100, octets, 5)
            task, header, came = await calling(
                transport, peer, message(XID, first, b"between", second), rooms
            )
            one, two, three, four = (each.target for each in header.lists.reads)
            (long, rest), (short,) = header.lists.writes
            then = 12 + roundup(octets) + 4 + 8 + 4
            assert came == words(
                *(XID, 1, CREDITS, MSG),
                *(1, 12, *segment_words(one, 4095), 1, 12, *segment_words(two, octets - 4095)),
                *(1, then, *segment_words(three, 4095)),
                *(1, then, *segment_words(four, octets - 4095), 0),
                *(1, 2, *segment_words(long, 4095), *segment_words(rest, octets - 4095)),
                *(1, 1, *segment_words(short, 5), 0, 0),
                *(XID, 0, octets, 7),
            ) + b"between\0" + words(octets, LAST)
            assert await fetched(peer, one, two) == first
            assert await fetched(peer, three, four) == second
            lists = ChunkLists(writes=(cut((long, rest), 0), cut((short,), 0)))
            await peer.send(Header(XID, 8, lists=lists).encode() + STREAM)
            await task

    run(work)


@pytest.mark.requirement(
    *("RFC8166-3.5.3-01", "RFC8166-3.5.3-02", "RFC8166-3.5.3-05", "RFC8166-6.1-01"),
    *("RFC8166-6.1-02", "RFC8166-3.4.2-02", "RFC8166-4.2.4-03", "RFC8166-4.2.4-04"),
    *("RFC8166-4.2.4-02", "RFC8166-3.3.3-06", "RFC8166-3.4.4-01"),
)
@pytest.mark.parametrize("octets", [980, 981, 982, 983, 984, 985])
def test_a_call_at_the_threshold_goes_inline_and_behind_it_at_position_zero(
    devices: Devices, octets: int
):
    async def work():
        async with raw_server(devices, ClientSettings(segment_octets=900)) as (transport, peer):
            item = pattern(octets)
            payload = words(XID, 0, octets) + item + bytes(-octets % 4) + words(LAST)
            task, header, came = await calling(transport, peer, inline(XID, item), room(100))
            if 28 + len(payload) <= 1024:
                assert came == words(XID, 1, CREDITS, MSG, 0, 0, 0) + payload
            else:
                one, two = (each.target for each in header.lists.reads)
                segments = (1, 0, *segment_words(one, 900))
                segments += (1, 0, *segment_words(two, len(payload) - 900))
                assert came == words(XID, 1, CREDITS, NOMSG, *segments, 0, 0, 0)
                assert await fetched(peer, one, two) == payload
            await peer.send(REPLY)
            await task

    run(work)


@pytest.mark.requirement("RFC8166-4.3.3-01", "RFC8166-3.3.3-06")
@pytest.mark.parametrize("octets", [-4, 0, 4, 3000])
@pytest.mark.parametrize("writes", [False, True], ids=["alone", "with a write list"])
def test_a_reply_chunk_is_offered_for_replies_above_the_threshold(
    devices: Devices, octets: int, writes: bool
):
    async def work():
        async with raw_server(devices) as (transport, peer):
            # The header of such a reply: 28 octets, 24 of a write chunk with one segment.
            most = 1024 - 28 - (24 if writes else 0)
            offered = room(most + octets, *([100] if writes else []))
            task, header, _ = await calling(transport, peer, inline(XID), offered)
            if octets <= 0:
                assert header.lists.reply is None
            else:
                (segment,) = header.lists.reply
                assert segment.length == most + octets
            await peer.send(REPLY)
            await task

    run(work)


@pytest.mark.requirement("RFC8166-4.3.3-01")
def test_a_reply_chunk_cannot_be_left_out():
    with pytest.raises(ValueError, match="offer_reply_chunk is False; allowed: True"):
        ClientSettings(offer_reply_chunk=False)


@pytest.mark.requirement("RFC8166-3.3.3-04")
def test_replies_of_1024_octets_are_taken_with_the_smallest_settings(devices: Devices):
    async def work():
        async with raw_server(devices, ClientSettings(inline_octets=1024)) as (transport, peer):
            task, _, _ = await calling(transport, peer, inline(XID), room(996))
            stream = inline(XID, pattern(1024 - 28 - 16)).stream
            await peer.send(words(XID, 1, 8, MSG, 0, 0, 0) + stream)
            assert await task == Message(stream)

    run(work)


# Replies


def read_list(peer: RawPeer) -> bytes:
    reads = (ReadSegment(12, peer.readable(b"abcd")),)
    return Header(XID, 99, lists=ChunkLists(reads=reads)).encode() + inline(XID).stream


IN_ERROR = [
    *(REPLY[:octets] for octets in range(32)),
    words(XID, 2, 99, MSG, 0, 0, 0) + STREAM,
    words(XID, 0, 99, NOMSG, 0, 0, 0),
    words(XID, 1, 99, 5, 0, 0, 0) + STREAM,
    words(XID, 1, 99, MSG, 2, 0, 0) + STREAM,
    words(XID, 1, 99, MSG, 0, 1, 9, 9, 9, 9, 9),
    words(XID, 1, 99, MSG, 0, 0, 0) + inline(XID + 1).stream,
    words(XID, 1, 99, MSG, 0, 0, 0) + STREAM + b"\0",
    words(XID, 1, 99, NOMSG, 0, 0, 0),
    words(XID, 1, 99, NOMSG, 0, 0, 1, 1, 1, 100, 0, 0) + STREAM,
]
TO_NO_CALL = [
    words(XID + xid, 1, 99, MSG, 0, 0, 0) + inline(XID + xid).stream
    for xid in (1, 2)  # one that waits for a credit, and none
]
MSGPS = [
    words(XID, 1, 99, MSGP, 4, 4, 0, 0, 0) + STREAM,
    words(XID, 1, 99, MSGP, 0, 0, 0),
    words(XID, 2, 99, MSGP, 4, 4, 0, 0, 0) + STREAM,
]
DONES = [words(XID, 1, 99, DONE) + bytes(4 * count) for count in range(9)]
ERRORS = [
    words(XID, 1, 99, ERROR),
    words(XID, 1, 99, ERROR, 0),
    words(XID, 1, 99, ERROR, 3),
    words(XID, 1, 99, ERROR, 3) + bytes(32),
    words(XID, 1, 99, ERROR, ERR_CHUNK, 0),
    words(XID, 1, 99, ERROR, ERR_CHUNK) + b"\0",
    words(XID, 1, 99, ERROR, ERR_VERS),
    words(XID, 1, 99, ERROR, ERR_VERS, 1),
    words(XID, 1, 99, ERROR, ERR_VERS, 1, 1, 1),
    words(XID, 2, 99, ERROR, ERR_CHUNK),
]


@pytest.mark.requirement(
    *("RFC8166-4.5-01", "RFC8166-4.5-03", "RFC8166-4.5-08", "RFC8166-4.6.1-03"),
    *("RFC8166-4.6.2-01", "RFC8166-4.6.2-02", "RFC8166-4.2.4-05", "RFC8166-3.3.3-03"),
    *("RFC8166-4.3.1-01", "RFC8166-4.2.1-01", "RFC8166-4.2.4-03"),
)
@pytest.mark.parametrize(
    "discarded",
    [IN_ERROR, TO_NO_CALL, MSGPS, DONES, ERRORS, [read_list]],
    ids=["in error", "to no call", "MSGP", "DONE", "ERROR", "read list"],
)
def test_what_is_discarded_in_silence(devices: Devices, discarded: list):
    async def work():
        async with raw_server(devices) as (transport, peer):
            task, _, _ = await calling(transport, peer, inline(XID), room(100))
            # With a valid reply, and not before, this may go.
            second = asyncio.ensure_future(transport.call(inline(XID + 1), room(100)))
            for each in discarded:
                await peer.send(each if isinstance(each, bytes) else each(peer))
            await nothing_comes(peer, 0.1)
            assert transport.discarded == len(discarded)
            assert transport.credits.granted == 1
            assert not task.done()
            await peer.send(REPLY)
            assert items_of(await task) == [b"result"]
            assert transport.credits.granted == 8
            assert (await peer.next_header()).xid == XID + 1
            await peer.send(words(XID + 1, 1, 8, MSG, 0, 0, 0) + inline(XID + 1).stream)
            await second

    run(work)


@pytest.mark.requirement("RFC8166-4.5-07", "RFC8166-4.5-01", "RFC8166-4.2.4-05")
@pytest.mark.parametrize(
    ("octets", "code"),
    [
        (words(XID, 1, 3, ERROR, ERR_CHUNK), ErrorCode.ERR_CHUNK),
        (words(XID, 1, 3, ERROR, ERR_VERS, 2, 3), ErrorCode.ERR_VERS),
        (words(XID, 2, 3, ERROR, ERR_VERS, 2, 3), ErrorCode.ERR_VERS),
    ],
)
def test_rdma_error_completes_the_call_and_no_other(
    devices: Devices, octets: bytes, code: ErrorCode
):
    async def work():
        async with raw_server(devices) as (transport, peer):
            before = set(devices.client.mrs)
            task, _, _ = await calling(transport, peer, inline(XID - 1), room(100))
            await peer.send(words(XID - 1, 1, 8, MSG, 0, 0, 0) + inline(XID - 1).stream)
            await task
            other = asyncio.ensure_future(transport.call(inline(XID + 1), room(100)))
            await peer.next()
            task, _, _ = await calling(transport, peer, inline(XID), room(9000, 500))
            await peer.send(octets)
            with pytest.raises(RdmaErrorReceived) as caught:
                await task
            assert caught.value.code is code
            assert transport.credits.outstanding == 1
            assert set(devices.client.mrs) == before
            assert not other.done()
            await nothing_comes(peer, 0.05)
            await peer.send(words(XID + 1, 1, 8, MSG, 0, 0, 0) + inline(XID + 1).stream)
            await other

    run(work)


@pytest.mark.requirement("RFC8166-4-02", "RFC8166-4.3.3-02", "RFC8166-4.2.4-01", "RFC8166-4.2.4-02")
def test_short_and_long_replies_come_in_any_order(devices: Devices):
    async def work():
        async with raw_server(devices) as (transport, peer):
            for xid, long in enumerate([False, True, False, True, True], XID):
                task, header, _ = await calling(transport, peer, inline(xid), room(3000))
                stream = inline(xid, b"some").stream
                (segment,) = header.lists.reply
                if long:
                    await post(peer, WROpcode.RDMA_WRITE, segment, stream)
                    lists = (0, 0, 1, 1, *segment_words(segment, len(stream)))
                    await peer.send(words(xid, 1, 8, NOMSG, *lists))
                else:
                    lists = (0, 0, 1, 1, *segment_words(segment, 0))
                    await peer.send(words(xid, 1, 8, MSG, *lists) + stream)
                assert await task == Message(stream)

    run(work)


@pytest.mark.requirement("RFC8166-4.3.2.2-04", "RFC8166-3.4.6-02")
@pytest.mark.parametrize("returned", [True, False], ids=["unused", "no write list"])
def test_the_memory_of_an_unused_chunk_is_no_result(devices: Devices, returned: bool):
    async def work():
        async with raw_server(devices) as (transport, peer):
            task, header, _ = await calling(transport, peer, inline(XID), room(100, 500))
            (chunk,) = header.lists.writes
            await post(peer, WROpcode.RDMA_WRITE, chunk[0], b"w" * 500)
            lists = ChunkLists(writes=(cut(chunk, 0),) if returned else ())
            await peer.send(Header(XID, 8, lists=lists).encode() + STREAM)
            reply = await task
            assert [bytes(bulk.data) for bulk in reply.bulks] == [b""]

    run(work)


# Resources


@pytest.mark.requirement("RFC8166-3.3.1-06", "RFC8166-3.3.1-01", "RFC8166-3.3.1-03")
@pytest.mark.parametrize(("requested", "granted"), [(3, 9), (9, 3), (1, 1)])
def test_calls_in_flight_have_credits_and_a_receive_each(
    devices: Devices, requested: int, granted: int
):
    async def work():
        async with raw_server(devices, ClientSettings(credits=requested)) as (transport, peer):
            qp = transport._channel.qp
            send, seen = qp.post_send, []

            def watched(*requests: SendWR) -> None:
                seen.append((qp.receives_posted, len(transport._pending)))
                send(*requests)

            qp.post_send = watched  # type: ignore[method-assign]
            tasks = [
                asyncio.ensure_future(transport.call(inline(xid), room(100))) for xid in range(12)
            ]
            came: list[int] = []
            for answered in range(12):
                most = min(12, answered + min(requested, granted) if answered else 1)
                while len(came) < most:
                    header = await peer.next_header()
                    assert header.credits == requested
                    came.append(header.xid)
                await nothing_comes(peer, 0.01)
                xid = came[answered]
                await peer.send(words(xid, 1, granted, MSG, 0, 0, 0) + inline(xid).stream)
            await asyncio.gather(*tasks)
            assert len(seen) == 12
            assert all(posted == requested for posted, _ in seen)

    run(work)


# Memory


@pytest.mark.requirement("RFC8166-4.5.4-01", "RFC8166-4.4.1-01")
@pytest.mark.parametrize("cancelled", [False, True])
def test_a_region_that_cannot_be_invalidated_closes_the_connection_before_the_call_ends(
    devices: Devices, monkeypatch: pytest.MonkeyPatch, cancelled: bool
):
    async def work():
        async with raw_server(devices) as (transport, peer):
            qp = transport._channel.qp
            task, _, _ = await calling(transport, peer, inline(XID), room(100, 500))
            close = MR.close

            def fail(region: MR) -> None:
                monkeypatch.setattr(MR, "close", close)
                raise DeviceError("it does not answer, on purpose")

            monkeypatch.setattr(MR, "close", fail)
            if cancelled:
                task.cancel()
                await asyncio.sleep(0.001)
                task.cancel()
            else:
                await peer.send(REPLY)
            with pytest.raises(DeviceError):
                await task
            assert qp.state is QPState.RESET
            await peer.until_ended()

    run(work)


@pytest.mark.requirement("RFC8166-8.1-01", "RFC8166-8.1.3-01", "RFC8166-4.4.1-01")
@pytest.mark.parametrize("attack", ["write", "read", "late", "other connection"])
def test_memory_of_a_call_has_one_right_one_peer_and_one_life(devices: Devices, attack: str):
    async def work():
        before = set(devices.client.mrs)
        async with raw_server(devices) as (transport, peer):
            source, sink = bytearray(pattern(5000)), memoryview(bytearray(500))
            posted = set(devices.client.mrs)
            task, header, _ = await calling(
                transport, peer, message(XID, source), ReplyRoom(100, (sink,))
            )
            (read,) = (each.target for each in header.lists.reads)
            ((write,),) = header.lists.writes
            handles = {read.handle, write.handle}
            assert set(devices.client.mrs) - posted == handles
            with pytest.raises(RpcConnectionError):
                if attack == "write":
                    await post(peer, WROpcode.RDMA_WRITE, read, bytes(5000))
                elif attack == "read":
                    await post(peer, WROpcode.RDMA_READ, write, bytes(500))
                elif attack == "late":
                    await peer.send(REPLY)
                    await task
                    assert set(devices.client.mrs) == posted
                    await post(peer, WROpcode.RDMA_WRITE, write, b"x" * 500)
                else:
                    async with raw_server(_shared(devices)) as (other, second):
                        # The Responder sends nothing before the first FPDU (RFC 5044, 7.1.2).
                        call, _, _ = await calling(other, second, inline(XID), room(100))
                        await second.send(REPLY)
                        await call
                        await post(second, WROpcode.RDMA_WRITE, write, b"x" * 500)
                        await second.until_ended()
                        raise RpcConnectionError("the other one")
                await peer.until_ended()
                raise RpcConnectionError("its device may say so first")
            if attack == "other connection":
                await peer.send(REPLY)
            if attack in ("write", "read"):
                with pytest.raises(RpcConnectionError):
                    await task
            else:
                await task
            assert source == pattern(5000)
            assert sink == bytes(500)
        assert set(devices.client.mrs) == before

    run(work)


def _shared(devices: Devices) -> Devices:
    """The same devices; what another connection has is left."""
    shared = Devices(devices.client, devices.server)
    shared.check_clean = lambda: None  # type: ignore[method-assign]
    return shared


def test_a_reply_that_returns_what_was_not_offered_ends_the_call(devices: Devices):
    async def work():
        async with raw_server(devices) as (transport, peer):
            task, _, _ = await calling(transport, peer, inline(XID), room(100))
            lists = ChunkLists(reply=(Segment(1, 100, 0),))
            await peer.send(Header(XID, 8, lists=lists).encode() + STREAM)
            with pytest.raises(RpcTransportError):
                await asyncio.wait_for(task, SECONDS)

    run(work)
