"""What RFC 8166 demands of a Responder, octet by octet; the Requester is a raw peer."""

import asyncio

import pytest

from stagecoach.host_driver import AccessFlags
from stagecoach.host_driver.errors import DeviceError
from stagecoach.ulp.oncrpc.errors import RpcConnectionError
from stagecoach.ulp.oncrpc.message import Bulk, Message
from stagecoach.ulp.rpcrdma.channel import Channel
from stagecoach.ulp.rpcrdma.chunks import ChunkLists, ReadSegment, Segment
from stagecoach.ulp.rpcrdma.header import Header, Padding, Procedure
from stagecoach.ulp.rpcrdma.pool import Pool
from stagecoach.ulp.rpcrdma.server import RdmaServerTransport
from stagecoach.ulp.rpcrdma.settings import Profile, ServerSettings
from tests.ulp.rpcrdma.raw import (
    SECONDS,
    RawPeer,
    call_of,
    nothing_comes,
    raw_client,
    segment_words,
    still_serves,
    words,
)
from tests.ulp.rpcrdma.rig import Devices, inline, message, pattern, run

pytestmark = pytest.mark.usefixtures("compiled_device")

XID = 0x5EED0001
LAST = 0x6C617374
STREAM = inline(XID).stream
GRANT = 32
"""What a server with default settings grants."""

MSG, NOMSG, MSGP, DONE, ERROR = range(5)
"""rdma_proc, as RFC 8166, 4.1.2 has it."""

ERR_VERS, ERR_CHUNK = 1, 2

ANY_HEADER = words(XID, 1, 8, MSG, 0, 0, 0)
ANY_VERSION_2 = words(XID, 2, 8, MSG, 0, 0, 0)


# What is not answered

TOO_SHORT = [each[:octets] for each in (ANY_HEADER, ANY_VERSION_2) for octets in range(28)]

ERRORS = [
    words(XID, 1, 8, ERROR),
    words(XID, 1, 8, ERROR, ERR_CHUNK),
    words(XID, 1, 8, ERROR, ERR_CHUNK, 0, 0),
    words(XID, 1, 8, ERROR, ERR_CHUNK) + bytes(100),
    words(XID, 1, 8, ERROR, ERR_VERS, 1, 1),
    words(XID, 1, 8, ERROR, ERR_VERS, 1, 1, 0),
    words(XID, 1, 8, ERROR, 0, 0, 0),
    words(XID, 1, 8, ERROR, 3, 0, 0),
    words(XID, 1, 8, ERROR, 2**32 - 1) + bytes(32),
    words(XID, 1, 8, ERROR, ERR_CHUNK, 0, 0) + b"\0",
    words(XID, 2, 8, ERROR, ERR_VERS, 1, 1),
    words(XID, 2, 8, ERROR, ERR_CHUNK, 1, 1),
    words(XID, 0, 8, ERROR, 9, 9, 9, 9),
    words(XID, 1, 8, ERROR, 0, 0, 0) + STREAM,
]

DONES = [
    words(XID, 1, 8, DONE) + behind
    for behind in (b"", b"\0", *(bytes(4 * count) for count in range(1, 9)), STREAM)
]


@pytest.mark.requirement("RFC8166-4.5-01", "RFC8166-4.5-08", "RFC8166-4.2.4-06", "RFC8166-4.6.2-02")
@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("silent", [TOO_SHORT, ERRORS, DONES], ids=["short", "ERROR", "DONE"])
def test_what_is_discarded_in_silence(devices: Devices, profile: Profile, silent: list[bytes]):
    async def work():
        async with raw_client(devices, ServerSettings(profile=profile)) as (peer, transport):
            for octets in silent:
                await peer.send(octets)
            await nothing_comes(peer, 0.1)
            assert (transport.discarded, transport.refused) == (len(silent), 0)
            await still_serves(peer, transport, XID)

    run(work)


@pytest.mark.requirement("RFC8166-4.5-01", "RFC8166-4.5-02", "RFC8166-4.5.2-01", "RFC8166-4.5.1-01")
def test_the_shortest_header_in_error_is_answered(devices: Devices):
    async def work():
        async with raw_client(devices) as (peer, _):
            await peer.send(ANY_HEADER)  # without a call
            assert await peer.next() == words(XID, 1, GRANT, ERROR, ERR_CHUNK)
            await peer.send(ANY_VERSION_2)
            assert await peer.next() == words(XID, 2, GRANT, ERROR, ERR_VERS, 1, 1)

    run(work)


# RDMA_ERROR


@pytest.mark.requirement(
    *(f"RFC8166-4.5-{number}" for number in ("02", "04", "05", "06")),
    *("RFC8166-4.5.1-01", "RFC8166-4.2.2-01", "RFC8166-3.3.1-02"),
)
@pytest.mark.parametrize("version", [0, 2, 3, 2**32 - 1])
@pytest.mark.parametrize("procedure", [MSG, NOMSG, MSGP, DONE, 5, 2**32 - 1])
def test_another_version_octet_by_octet(devices: Devices, version: int, procedure: int):
    async def work():
        async with raw_client(devices) as (peer, transport):
            await peer.send(words(XID, version, 8, procedure, 1, 2, 3) + STREAM)
            assert await peer.next() == words(XID, version, GRANT, ERROR, ERR_VERS, 1, 1)
            await still_serves(peer, transport, XID + 1)

    run(work)


PLACE = Segment(0xDEADBEEF, 100, 0x1000)
READ = (1, 12, 0xDEADBEEF, 100, 0, 0x1000)
IN_ERROR = {
    "an invalid rdma_proc": words(XID, 1, 8, 5, 0, 0, 0) + STREAM,
    "RDMA_NOMSG without lists": words(XID, 1, 8, NOMSG, 0, 0, 0),
    "another XID in the call": words(XID, 1, 8, MSG, 0, 0, 0, XID + 1, 0, LAST),
    "RDMA_NOMSG with a write list alone": words(
        XID, 1, 8, NOMSG, 0, 1, 1, 0xDEADBEEF, 100, 0, 0, 0, 0
    ),
    "RDMA_NOMSG with a reply chunk alone": words(
        XID, 1, 8, NOMSG, 0, 0, 1, 1, 0xDEADBEEF, 100, 0, 0
    ),
    "RDMA_NOMSG with another read chunk alone": words(XID, 1, 8, NOMSG, *READ, 0, 0, 0),
    "RDMA_NOMSG with a call after it": words(XID, 1, 8, NOMSG, 1, 0, *READ[2:], 0, 0, 0) + STREAM,
    "RDMA_MSGP": words(XID, 1, 8, MSGP, 4, 4, 0, 0, 0) + STREAM,
    "RDMA_MSGP that cannot be decoded": words(XID, 1, 8, MSGP, 4, 4, 7),
    **{
        f"Position {at}": words(XID, 1, 8, MSG, 1, at, *READ[2:], 0, 0, 0) + STREAM
        for at in (9, 10, 11)
    },
}


@pytest.mark.requirement(
    *(f"RFC8166-4.5-{number}" for number in ("02", "04", "05", "06")),
    *("RFC8166-4.5.2-01", "RFC8166-4.2.1-01", "RFC8166-4.2.4-03", "RFC8166-4.2.4-04"),
    *("RFC8166-3.4.5-03", "RFC8166-4.6.1-02"),
)
@pytest.mark.parametrize("octets", IN_ERROR.values(), ids=IN_ERROR)
def test_a_header_in_error_octet_by_octet(devices: Devices, octets: bytes):
    async def work():
        async with raw_client(devices) as (peer, transport):
            await peer.send(octets)
            assert await peer.next() == words(XID, 1, GRANT, ERROR, ERR_CHUNK)
            await still_serves(peer, transport, XID + 1)

    run(work)


# Replies


async def replied(peer: RawPeer, transport: RdmaServerTransport, answer: Message, **lists) -> bytes:
    """The Send of a reply to a call with these lists."""
    await peer.send(call_of(XID, STREAM, **lists))
    await (await transport.receive()).reply(answer)
    return await peer.next()


def target(peer: RawPeer, octets: int) -> tuple[bytearray, Segment]:
    return peer.region(b"\xff" * octets, AccessFlags.REMOTE_WRITE)


@pytest.mark.requirement(
    *("RFC8166-3.4.6-02", "RFC8166-3.4.6.2-02", "RFC8166-3.4.6.2-03", "RFC8166-3.4.4.1-01"),
    *("RFC8166-3.4.4.1-02", "RFC8166-3.4.4.4-01", "RFC8166-3.4.4.4-02", "RFC8166-4.3.1-01"),
    *("RFC8166-4.3.2-01", "RFC8166-4.3.2.2-03", "RFC8166-4.3.2.3-01", "RFC8166-4.3.2.3-02"),
    *("RFC8166-4.2.1-01", "RFC8166-4.2.2-01", "RFC8166-4.3.3-02", "RFC8166-4.3.3-03"),
)
def test_a_reply_with_every_kind_of_chunk_octet_by_octet(devices: Devices):
    async def work():
        async with raw_client(devices) as (peer, transport):
            (first, one), (second, two) = target(peer, 8), target(peer, 12)
            (rest, three), (_, long) = target(peer, 8), target(peer, 2000)
            # Filled, empty, filled, unused; the reply chunk is not needed.
            writes = ((one,), (), (two, three), (three, two))
            items = message(XID, b"12345", b"inline", b"abcdefghijklmno")
            octets = await replied(peer, transport, items, writes=writes, reply=(long,))
            assert octets == words(
                *(XID, 1, GRANT, MSG, 0),
                *(1, 1, *segment_words(one, 5)),
                *(1, 0),
                *(1, 2, *segment_words(two, 12), *segment_words(three, 3)),
                *(1, 2, *segment_words(three, 0), *segment_words(two, 0)),
                *(0, 1, 1, *segment_words(long, 0)),
                *(XID, 0, 5, 6),
            ) + b"inline\0\0" + words(15, LAST)
            assert first == b"12345" + b"\xff" * 3
            assert second == b"abcdefghijkl"
            assert rest == b"mno" + b"\xff" * 5

    run(work)


@pytest.mark.requirement(
    "RFC8166-3.4.6-03", "RFC8166-3.4.6-02", "RFC8166-3.4.6.2-02", "RFC8166-3.4.6.2-03"
)
@pytest.mark.parametrize("octets", range(10))
def test_a_chunk_is_filled_without_gaps(devices: Devices, octets: int):
    async def work():
        async with raw_client(devices) as (peer, transport):
            places = [target(peer, size) for size in (3, 2, 4)]
            chunk = tuple(place for _, place in places)
            reply = await replied(
                peer, transport, message(XID, b"123456789"[:octets]), writes=(chunk,)
            )
            lengths = [min(octets, 3), min(max(octets - 3, 0), 2), max(octets - 5, 0)]
            returned = [
                word
                for segment, length in zip(chunk, lengths, strict=True)
                for word in segment_words(segment, length)
            ]
            header = words(XID, 1, GRANT, MSG, 0, 1, 3, *returned, 0, 0)
            assert reply == header + words(XID, 0, octets, LAST)
            written = b"".join(
                bytes(buffer[:length]) for (buffer, _), length in zip(places, lengths, strict=True)
            )
            left = b"".join(
                bytes(buffer[length:]) for (buffer, _), length in zip(places, lengths, strict=True)
            )
            assert (written, left) == (b"123456789"[:octets], b"\xff" * (9 - octets))

    run(work)


@pytest.mark.requirement(
    *("RFC8166-3.5.3-01", "RFC8166-3.5.3-04", "RFC8166-3.5.3-05", "RFC8166-4.3.3-02"),
    *("RFC8166-4.3.3-03", "RFC8166-3.3.3-04", "RFC8166-3.3.3-06", "RFC8166-4.2.4-02"),
    *("RFC8166-4.2.4-04", "RFC8166-4.3.1-01", "RFC8166-6.1-02"),
)
@pytest.mark.parametrize("octets", [973, 974, 975, 976, 977, 978, 979, 980])
def test_a_reply_at_the_threshold_goes_inline_and_behind_it_through_the_reply_chunk(
    devices: Devices, octets: int
):
    async def work():
        async with raw_client(devices) as (peer, transport):
            assert transport.terms.send_octets == 1024
            buffer, long = target(peer, 2000)
            # 48 octets of header, 16 with XID, direction, count and last word.
            item = pattern(octets - 16)
            roundup = bytes(-octets % 4)
            payload = words(XID, 0, octets - 16) + item + roundup + words(LAST)
            reply = await replied(peer, transport, inline(XID, item), reply=(long,))
            if len(payload) + 48 <= 1024:
                returned = segment_words(long, 0)
                assert reply == words(XID, 1, GRANT, MSG, 0, 0, 1, 1, *returned) + payload
                assert buffer == b"\xff" * 2000
            else:
                returned = segment_words(long, len(payload))
                assert reply == words(XID, 1, GRANT, NOMSG, 0, 0, 1, 1, *returned)
                assert buffer == payload + b"\xff" * (2000 - len(payload))

    run(work)


@pytest.mark.requirement("RFC8166-3.5.3-04", "RFC8166-4.3.2-01", "RFC8166-4.2.4-04")
def test_a_long_reply_is_reduced_first(devices: Devices):
    async def work():
        async with raw_client(devices) as (peer, transport):
            (item, place), (buffer, long) = target(peer, 3000), target(peer, 2000)
            answer = message(XID, pattern(2999), b"x" * 1100)
            octets = await replied(peer, transport, answer, writes=((place,),), reply=(long,))
            payload = words(XID, 0, 2999, 1100) + b"x" * 1100 + words(LAST)
            assert octets == words(
                *(XID, 1, GRANT, NOMSG, 0, 1, 1, *segment_words(place, 2999), 0),
                *(1, 1, *segment_words(long, len(payload))),
            )
            assert item == pattern(2999) + b"\xff"
            assert buffer == payload + b"\xff" * (2000 - len(payload))

    run(work)


# Calls


@pytest.mark.requirement("RFC8166-3.5.3-03", "RFC8166-4-02", "RFC8166-4.2.4-01")
def test_a_long_call_may_be_short(devices: Devices):
    async def work():
        async with raw_client(devices) as (peer, transport):
            for xid, long in enumerate([True, False, True], XID):
                stream = inline(xid).stream
                if long:
                    reads = (ReadSegment(0, peer.readable(stream)),)
                    await peer.send(
                        Header(xid, 8, Procedure.RDMA_NOMSG, ChunkLists(reads)).encode()
                    )
                else:
                    await peer.send(call_of(xid, stream))
                call = await transport.receive()
                assert call.message == Message(stream)
                await call.reply(Message(stream))
                assert await peer.next() == words(xid, 1, GRANT, MSG, 0, 0, 0) + stream

    run(work)


@pytest.mark.requirement("RFC8166-3.3.3-04", "RFC8166-3.3.3-06")
def test_calls_of_1024_octets_are_taken_with_the_smallest_settings(devices: Devices):
    async def work():
        async with raw_client(devices, ServerSettings(inline_octets=1024)) as (peer, transport):
            stream = inline(XID, pattern(1024 - 28 - 16)).stream
            octets = call_of(XID, stream)
            assert len(octets) == 1024
            await peer.send(octets)
            call = await transport.receive()
            assert call.message == Message(stream)
            await call.reply(Message(stream))
            assert len(await peer.next()) == 1024

    run(work)


@pytest.mark.requirement("RFC8166-3.4.5-02", "RFC8166-3.4.5.2-02", "RFC8166-3.4.5.2-03")
@pytest.mark.parametrize("rounded", ["no", "in the last segment", "in a segment of its own"])
def test_segments_are_joined_in_list_order_with_or_without_roundup(devices: Devices, rounded: str):
    async def work():
        async with raw_client(devices) as (peer, transport):
            first, second = b"abcdefg", b"1234567890"
            whole = message(XID, first, second)
            ends = {"no": b"", "in the last segment": b"\0", "in a segment of its own": b""}
            parts = [(12, b"ab"), (24, b"1234"), (12, b"cdefg" + ends[rounded]), (24, b"567890")]
            if rounded == "in a segment of its own":
                parts += [(24, bytes(2)), (12, bytes(1))]
            reads = [(at, peer.readable(octets)) for at, octets in parts]
            await peer.send(call_of(XID, whole.stream, *reads))
            call = await transport.receive()
            assert call.message == Message(
                whole.stream, (Bulk(12, memoryview(first)), Bulk(24, memoryview(second)))
            )
            assert call.message.whole() == words(XID, 0, 7) + first + b"\0" + words(10) + (
                second + bytes(2) + words(LAST)
            )
            await call.drop()

    run(work)


# Resources


@pytest.mark.requirement("RFC8166-3.3.1-05", "RFC8166-3.3.1-02", "RFC8166-3.3.1-04")
def test_what_a_reply_grants_is_posted_before_it_is_sent(devices: Devices):
    async def work():
        async with raw_client(devices, ServerSettings(credits=4)) as (peer, transport):
            qp = transport.channel.qp
            post, at_send = qp.post_send, []

            def watched(*requests) -> None:
                at_send.append(qp.receives_posted)
                post(*requests)

            qp.post_send = watched  # type: ignore[method-assign]
            transport.credits = 1
            for xid in range(4):
                await peer.send(call_of(xid, inline(xid).stream))
            calls = [await transport.receive() for _ in range(4)]
            assert qp.receives_posted == 0
            for outstanding, grant, call in zip((3, 2, 1, 0), (1, 2, 3, 4), calls, strict=True):
                transport.credits = grant
                await call.reply(inline(call.message.xid))
                assert (await peer.next_header()).credits == grant
                # The calls that are not answered have the others.
                assert at_send.pop() == 4 - outstanding >= grant
            # So it is for RDMA_ERROR.
            await peer.send(ANY_HEADER)
            assert (await peer.next_header()).credits == 4
            assert at_send == [4]

    run(work)


@pytest.mark.requirement("RFC8166-8.1.1-01")
def test_each_connection_has_a_protection_domain(devices: Devices):
    async def work():
        async with raw_client(devices) as (_, first):
            pd = first.channel.pd
            assert [region.pd for region in devices.server.mrs.values()] == [pd] * 2
            other = Channel(
                devices.server,
                receives=1,
                sends=1,
                octets=1024,
                on_message=lambda *_: None,
                on_end=lambda _: None,
            )
            assert other.pd is not pd
            assert other.pd.number != pd.number
            await other.close()

    run(work)


# An answer that cannot be sent


def fail(*_: object) -> None:
    raise DeviceError("it does not answer, on purpose")


async def is_closed(peer: RawPeer, transport: RdmaServerTransport) -> None:
    await peer.until_ended()
    with pytest.raises(RpcConnectionError, match="an answer is lost"):
        await asyncio.wait_for(transport.receive(), SECONDS)


@pytest.mark.requirement("RFC8166-4.5.4-02")
@pytest.mark.parametrize("octets", [ANY_HEADER, ANY_VERSION_2], ids=["ERR_CHUNK", "ERR_VERS"])
def test_an_error_that_cannot_be_sent_ends_the_connection(devices: Devices, octets: bytes):
    async def work():
        async with raw_client(devices) as (peer, transport):
            transport.channel.qp.post_send = fail  # type: ignore[method-assign]
            await peer.send(octets)
            await is_closed(peer, transport)

    run(work)


@pytest.mark.requirement("RFC8166-4.5.4-02")
@pytest.mark.parametrize("what", ["post", "registration", "registration and post"])
def test_a_reply_that_cannot_be_sent_ends_the_connection(
    devices: Devices, monkeypatch: pytest.MonkeyPatch, what: str
):
    async def work():
        async with raw_client(devices) as (peer, transport):
            _, place = target(peer, 5000)
            await peer.send(call_of(XID, STREAM, writes=((place,),)))
            call = await transport.receive()
            if "registration" in what:
                monkeypatch.setattr(Pool, "take", fail)
            if "post" in what:
                transport.channel.qp.post_send = fail  # type: ignore[method-assign]
            with pytest.raises(DeviceError):
                await call.reply(message(XID, pattern(3000)))
            await is_closed(peer, transport)

    run(work)


@pytest.mark.requirement("RFC8166-4.5.4-02")
def test_a_call_whose_chunks_cannot_be_registered_ends_the_connection(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
):
    async def work():
        async with raw_client(devices) as (peer, transport):
            monkeypatch.setattr(Pool, "take", fail)
            await peer.send(call_of(XID, STREAM, (12, PLACE)))
            await is_closed(peer, transport)

    run(work)


@pytest.mark.requirement("RFC8166-4.5.4-02")
def test_a_reply_that_is_cancelled_ends_the_connection(devices: Devices):
    async def work():
        async with raw_client(devices) as (peer, transport):
            _, place = target(peer, 5000)
            await peer.send(call_of(XID, STREAM, writes=((place,),)))
            call = await transport.receive()
            view = call.buffer(5000)
            view[:] = pattern(5000)
            replying = asyncio.ensure_future(call.reply(message(XID, view)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            replying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await replying
            # Its memory may still be read by the device: nobody gets it.
            assert call.buffer(5000).obj is not view.obj
            await is_closed(peer, transport)

    run(work)


# What is not there any more


@pytest.mark.requirement("RFC8166-4.6.1-01", "RFC8166-4.6.1-02")
def test_rdma_msgp_is_not_sent_and_answered_with_err_chunk(devices: Devices):
    async def work():
        settings = ServerSettings(align=64)
        async with raw_client(devices, settings) as (peer, transport):
            whole = Message(
                message(XID, pattern(700)).stream[:-4], message(XID, pattern(700)).bulks
            )
            octets = await replied(peer, transport, whole)
            assert octets == words(XID, 1, GRANT, MSG, 0, 0, 0) + whole.whole()
            padded = Header(XID, 8, Procedure.RDMA_MSGP, padding=Padding(64, 4)).encode()
            await peer.send(padded + STREAM)
            assert await peer.next() == words(XID, 1, GRANT, ERROR, ERR_CHUNK)

    run(work)
