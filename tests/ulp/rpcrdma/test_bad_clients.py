"""What a client may send that is wrong, and what the server answers; nothing stays registered."""

import asyncio
import contextlib
from random import Random

import pytest

from stagecoach.host_driver import AccessFlags
from stagecoach.sim.cosim.streams import seeded_random
from stagecoach.ulp.oncrpc.errors import RpcConnectionError
from stagecoach.ulp.oncrpc.message import Message
from stagecoach.ulp.rpcrdma.chunks import ChunkLists, ReadSegment, Segment
from stagecoach.ulp.rpcrdma.errors import ErrorCode
from stagecoach.ulp.rpcrdma.header import Fault, Header, Padding, Procedure
from stagecoach.ulp.rpcrdma.private_data import PrivateData
from stagecoach.ulp.rpcrdma.settings import Profile, ServerSettings
from tests.ulp.rpcrdma.raw import (
    call_of,
    done,
    nothing_comes,
    raw_client,
    still_serves,
    words,
)
from tests.ulp.rpcrdma.rig import (
    Devices,
    inline,
    items_of,
    message,
    pattern,
    run,
)

pytestmark = pytest.mark.usefixtures("compiled_device")

XID = 0x0BADCA11
STREAM = inline(XID).stream
NOWHERE = Segment(0xDEADBEEF, 100, 0x1000)


def long_call(*reads: tuple[int, Segment], **lists) -> bytes:
    entries = tuple(ReadSegment(position, segment) for position, segment in reads)
    nomsg = Header(XID, 8, Procedure.RDMA_NOMSG, ChunkLists(reads=entries, **lists))
    return nomsg.encode()


def segments(count: int, position: int = 12, length: int = 100) -> list[tuple[int, Segment]]:
    return [(position, Segment(1, length, 0))] * count


# Whoever read what these offer, would lose the connection.
ERR_CHUNK = [
    ("unknown procedure", words(XID, 1, 8, 7, 0, 0, 0)),
    ("RDMA_MSGP", Header(XID, 8, Procedure.RDMA_MSGP, padding=Padding(4, 4)).encode() + STREAM),
    ("another XID in the call", call_of(XID + 1, STREAM, (12, NOWHERE))[:-4] + words(0)),
    ("no call", words(XID, 1, 8, 0, 0, 0, 0)),
    ("call of 2 octets", call_of(XID, b"\0\0")),
    ("position not a multiple of 4", call_of(XID, STREAM, (13, NOWHERE))),
    ("position after the end", call_of(XID, STREAM, (400, NOWHERE))),
    ("second position after the end", call_of(XID, STREAM, (12, NOWHERE), (400, NOWHERE))),
    ("chunks that overlap", call_of(XID, STREAM, (12, NOWHERE), (60, NOWHERE))),
    ("endless read list", words(XID, 1, 8, 0) + words(1, 12, 1, 1, 0, 0) * 100),
    ("endless write list", words(XID, 1, 8, 0, 0) + words(1, 0) * 400),
    ("write chunk of 2^32 - 1 segments", words(XID, 1, 8, 0, 0, 1, 2**32 - 1, 0)),
    ("discriminator 2", words(XID, 1, 8, 0, 2, 0, 0)),
    ("more octets than are fetched", call_of(XID, STREAM, (12, Segment(1, 2**32 - 1, 0)))),
    ("many octets in many segments", call_of(XID, STREAM, *segments(100, length=2**24))),
    ("segment past the end", call_of(XID, STREAM, (12, Segment(1, 2, 2**64 - 1)))),
    ("long call without a chunk", words(XID, 1, 8, 1, 0, 0, 0)),
    ("long call without position zero", long_call((4, NOWHERE))),
    ("long call that goes on", long_call((0, NOWHERE)) + STREAM),
    ("position zero in a short call", call_of(XID, STREAM, (0, NOWHERE))),
    ("empty long call", long_call((0, Segment(1, 0, 0)))),
]


@pytest.mark.requirement(
    "RPCRDMA-4.2-01",
    "RPCRDMA-4.2-02",
    "RPCRDMA-4.2-04",
    "RPCRDMA-4.2-05",
    "RPCRDMA-4.1-03",
    "RPCRDMA-4.1-04",
    "RPCRDMA-3.9-01",
    "RPCRDMA-3.4-06",
)
def test_bad_headers_are_answered_with_err_chunk_and_the_xid(devices: Devices):
    async def work():
        async with raw_client(devices) as (peer, transport):
            before = dict(devices.server.mrs)
            for name, octets in ERR_CHUNK:
                await peer.send(octets)
                header = await peer.next_header()
                xid = int.from_bytes(octets[:4])
                assert (header.xid, header.fault) == (xid, Fault(ErrorCode.ERR_CHUNK)), name
                assert header.credits == 32, name
            assert transport.refused == len(ERR_CHUNK)
            assert devices.server.mrs == before
            await still_serves(peer, transport, XID + 7)

    run(work)


@pytest.mark.requirement("RPCRDMA-4.1-05", "RPCRDMA-4.2-02", "RPCRDMA-4.2-03")
def test_another_version_is_answered_with_err_vers_and_its_own(devices: Devices):
    async def work():
        async with raw_client(devices) as (peer, transport):
            for version in (0, 2, 2**32 - 1):
                await peer.send(words(XID, version, 8, 0, 0, 0, 0) + STREAM)
                assert await peer.next() == words(XID, version, 32, 4, 1, 1, 1)
            await still_serves(peer, transport, XID + 7)

    run(work)


def test_what_cannot_be_trusted_and_what_is_reserved_is_discarded(devices: Devices):
    async def work():
        async with raw_client(devices) as (peer, transport):
            silent = [
                b"",
                words(XID),
                words(XID, 1, 8, 0, 0, 0),  # shorter than a header (RFC 8166, 4.5)
                words(XID, 2, 8, 0, 0, 0),
                done(XID),
                Header(XID, 8, Procedure.RDMA_ERROR, fault=Fault(ErrorCode.ERR_CHUNK)).encode(),
                words(XID, 1, 8, 4, 1, 1, 1),
            ]
            for octets in silent:
                await peer.send(octets)
            await nothing_comes(peer)
            assert transport.discarded == len(silent)
            await still_serves(peer, transport, XID + 7)

    run(work)


@pytest.mark.requirement("RPCRDMA-3.4-01", "RPCRDMA-3.7-01", "RPCRDMA-5.1-01")
def test_unusual_lists_that_say_the_truth_are_served(devices: Devices):
    async def work():
        async with raw_client(devices) as (peer, transport):
            item = pattern(5001)
            parts = [peer.readable(item[:1]), peer.readable(item[1:3000]), Segment(5, 0, 0)]
            roundup = peer.readable(bytes(3))
            reads = [*parts, peer.readable(item[3000:]), roundup]
            # An empty segment, one octet alone, and the roundup in a segment of its own.
            stream = message(XID, item).stream
            await peer.send(call_of(XID, stream, *((12, each) for each in reads)))
            call = await transport.receive()
            assert items_of(call.message) == [item]
            assert call.message.whole() == message(XID, item).whole()
            # It may also be in front of the others, which stand in no order.
            whole = message(XID, item, b"abc", item).whole()
            at = whole.index(b"abc")
            first, second = peer.readable(item), peer.readable(item)
            stream = whole[:12] + whole[12 + 5004 : at + 8]
            await peer.send(
                call_of(XID, stream + whole[-4:], (at + 8, first), (12, second), (at + 8, roundup))
            )
            assert (await transport.receive()).message.whole() == whole
            await call.drop()
            with pytest.raises(ValueError, match="answered or dropped"):
                await call.reply(inline(XID))

    run(work)


@pytest.mark.requirement("RPCRDMA-3.4-06")
@pytest.mark.parametrize("octets", [4095, 4097])
def test_a_count_that_is_not_that_of_the_chunk_can_be_seen_by_the_program(
    devices: Devices, octets: int
):
    async def work():
        async with raw_client(devices) as (peer, transport):
            stream = message(XID, bytes(4096)).stream
            await peer.send(call_of(XID, stream, (12, peer.readable(bytes(octets)))))
            call = await transport.receive()
            # RPC answers GARBAGE_ARGS (RFC 8166, 4.5.2).
            (bulk,) = call.message.bulks
            assert len(bulk.data) == octets
            assert call.message.stream[8:12] == (4096).to_bytes(4)
            await call.drop()

    run(work)


@pytest.mark.parametrize(
    "segment",
    [NOWHERE, "write only", "too short"],
    ids=["no such handle", "no right to read", "longer than the region"],
)
def test_a_read_chunk_that_cannot_be_read_ends_the_connection(devices: Devices, segment):
    async def work():
        async with raw_client(devices) as (peer, transport):
            if segment == "write only":
                place = peer.region(100, AccessFlags.REMOTE_WRITE)[1]
            elif segment == "too short":
                short = peer.readable(bytes(100))
                place = Segment(short.handle, 101, short.offset)
            else:
                place = segment
            await peer.send(call_of(XID, STREAM, (12, place)))
            with pytest.raises(RpcConnectionError):
                await asyncio.wait_for(transport.receive(), 10)
            await peer.until_ended()
            await transport.close()
            assert devices.server.mrs == {}

    run(work)


def test_a_write_chunk_that_cannot_be_written_ends_the_connection(devices: Devices):
    async def work():
        async with raw_client(devices) as (peer, transport):
            short = peer.region(100, AccessFlags.REMOTE_WRITE)[1]
            lying = Segment(short.handle, 5000, short.offset)
            await peer.send(call_of(XID, STREAM, writes=((lying,),)))
            call = await transport.receive()
            assert call.bulk_room == (5000,)
            reply = asyncio.ensure_future(call.reply(message(XID, bytearray(4999))))
            await peer.until_ended()
            # Its Send may have left before the peer complained.
            await asyncio.wait([reply])
            assert isinstance(reply.exception(), RpcConnectionError | None)
            with pytest.raises(RpcConnectionError):
                await transport.receive()
            await transport.close()
            assert devices.server.mrs == {}

    run(work)


@pytest.mark.requirement("RPCRDMA-3.3-05", "RPCRDMA-6-01", "RPCRDMA-11-06")
def test_more_calls_than_credits_end_the_connection_and_no_other(devices: Devices):
    async def work():
        server = ServerSettings(credits=2)
        async with raw_client(devices, server) as (greedy, transport):
            for xid in range(2):
                await greedy.send(call_of(xid, inline(xid).stream))
            calls = [await transport.receive() for _ in range(2)]
            assert not greedy.ended.is_set()
            await greedy.channel.send(call_of(2, inline(2).stream))
            await greedy.until_ended()
            with pytest.raises(RpcConnectionError):
                await transport.receive()
            for call in calls:
                with pytest.raises(RpcConnectionError):
                    await call.reply(inline(call.message.xid))

    run(work)


@pytest.mark.requirement("RPCRDMA-6-01", "RPCRDMA-6-02")
def test_a_call_longer_than_the_receives_ends_the_connection(devices: Devices):
    async def work():
        server = ServerSettings(inline_octets=1024)
        async with raw_client(devices, server) as (peer, transport):
            await peer.send(call_of(1, inline(1, bytes(1024 - 44)).stream))
            await (await transport.receive()).drop()
            await peer.channel.send(call_of(2, inline(2, bytes(1024 - 40)).stream))
            await peer.until_ended()
            with pytest.raises(RpcConnectionError):
                await transport.receive()

    run(work)


def test_a_client_that_vanishes_leaves_nothing(devices: Devices):
    async def work():
        server = ServerSettings(profile=Profile.RFC8166)
        async with raw_client(devices, server) as (peer, transport):
            await peer.send(
                call_of(1, message(1, bytes(64)).stream, (12, peer.readable(bytes(64))))
            )
            call = await transport.receive()
            view = call.buffer(500)
            await peer.channel.close()
            with pytest.raises(RpcConnectionError):
                await asyncio.wait_for(transport.receive(), 10)
            assert len(call.buffer(600)) == 600
            with pytest.raises(RpcConnectionError):
                await call.reply(message(1, view))
            await transport.close()
            devices.check_clean()

    run(work)


def test_unused_chunks_come_back_empty(devices: Devices):
    async def work():
        async with raw_client(devices) as (peer, transport):
            place = Segment(77, 100, 0x1000)
            offered = {"writes": ((place, place), ()), "reply": (place,)}
            await peer.send(call_of(XID, STREAM, **offered))
            await (await transport.receive()).reply(inline(XID))
            unused = Segment(77, 0, 0x1000)
            lists = (await peer.next_header()).lists
            assert lists == ChunkLists(writes=((unused, unused), ()), reply=(unused,))

    run(work)


@pytest.mark.parametrize("wanted", [True, False])
def test_send_with_invalidate_is_for_clients_that_take_it(devices: Devices, wanted: bool):
    async def work():
        told = PrivateData(4096, 4096, remote_invalidation=wanted)
        async with raw_client(devices, told=told) as (peer, transport):
            buffer, place = peer.region(100, AccessFlags.REMOTE_WRITE)
            await peer.send(call_of(XID, STREAM, writes=((place,),)))
            call = await transport.receive()
            await call.reply(message(XID, memoryview(pattern(60))))
            lists = (await peer.next_header()).lists
            assert lists.writes == ((Segment(place.handle, 60, place.offset),),)
            assert buffer == pattern(60) + bytes(40)
            assert peer.stags == [place.handle if wanted else None]
            # Nothing is left to invalidate.
            await peer.send(call_of(XID + 1, inline(XID + 1).stream))
            await (await transport.receive()).reply(Message(inline(XID + 1).stream))
            await peer.next()
            assert peer.stags[1:] == [None]

    run(work)


def spoilt(random: Random) -> bytes:
    """A good message with some words changed, or cut."""
    place = Segment(5, 64, 0x1000)
    good = [
        call_of(XID, STREAM),
        call_of(XID, STREAM, writes=((place, place), (), (place,)), reply=(place,)),
        call_of(XID, STREAM, (12, Segment(1, 0, 0)), writes=((place,),)),
        long_call((0, Segment(1, 0, 0)), (24, Segment(1, 0, 0))),
        Header(XID, 8, Procedure.RDMA_MSGP, padding=Padding(64, 4)).encode() + STREAM,
    ]
    octets = bytearray(random.choice(good))
    for _ in range(random.randint(1, 3)):
        at = 4 * random.randrange(len(octets) // 4)
        value = random.choice([0, 1, 2, 3, 4, 2**31, 2**32 - 1, random.getrandbits(32)])
        octets[at : at + 4] = value.to_bytes(4)
    return bytes(octets[: random.choice([len(octets), random.randrange(len(octets))])])


@pytest.mark.requirement("RPCRDMA-4.2-01", "RPCRDMA-4.1-04")
@pytest.mark.parametrize("profile", Profile)
def test_spoilt_messages_are_answered_discarded_or_calls(devices: Devices, profile: Profile):
    random = seeded_random()

    async def handled(peer, transport, before: int) -> None:
        while transport.refused + transport.discarded == before and not peer.ended.is_set():
            with contextlib.suppress(TimeoutError):
                call = await asyncio.wait_for(transport.receive(), 0.005)
                await call.drop()
                return

    async def work():
        for _ in range(3):
            async with raw_client(devices, ServerSettings(profile=profile)) as (peer, transport):
                for _ in range(25):
                    before = transport.refused + transport.discarded
                    # A segment that cannot be read ends the connection, as it must.
                    with contextlib.suppress(RpcConnectionError):
                        await peer.send(spoilt(random))
                        await handled(peer, transport, before)
                    if peer.ended.is_set() or transport.channel.error is not None:
                        break
                else:
                    await still_serves(peer, transport, XID + 7)

    run(work)
