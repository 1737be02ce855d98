"""What the profile RFC5666 has more: read chunks in replies, RDMA_DONE, RDMA_MSGP, CCP."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecoach.host_driver import WROpcode
from stagecoach.ulp.oncrpc.errors import RpcConnectionError, RpcTransportError
from stagecoach.ulp.oncrpc.message import Message, roundup
from stagecoach.ulp.rpcrdma import configuration
from stagecoach.ulp.rpcrdma.call import RdmaCall
from stagecoach.ulp.rpcrdma.channel import Channel
from stagecoach.ulp.rpcrdma.configuration import ConfigCall, ConfigReply, ConfigRequest
from stagecoach.ulp.rpcrdma.header import Header, Padding, Procedure, decode_header
from stagecoach.ulp.rpcrdma.padding import pad, padding_octets, unpad
from stagecoach.ulp.rpcrdma.settings import ClientSettings, Profile, ServerSettings
from stagecoach.ulp.rpcrdma.terms import Terms
from tests.ulp.rpcrdma.raw import call_of, done, nothing_comes, raw_client
from tests.ulp.rpcrdma.rig import (
    Devices,
    connected,
    echo,
    inline,
    items_of,
    message,
    pattern,
    room,
    run,
)

pytestmark = pytest.mark.usefixtures("compiled_device")

OLD = Profile.RFC5666
CLIENT = ClientSettings(profile=OLD, offer_reply_chunk=False, credits=8)
SERVER = ServerSettings(profile=OLD, credits=8)


# Replies as read chunks


@pytest.mark.requirement(
    "RPCRDMA-3.5-01", "RPCRDMA-3.8-03", "RPCRDMA-3.4-04", "RPCRDMA-3.8-05", "RPCRDMA-3.8-06"
)
@pytest.mark.parametrize("bulk", [True, False], ids=["item", "whole reply"])
def test_a_reply_comes_as_read_chunks_and_is_acknowledged(devices: Devices, bulk: bool):
    async def work():
        items = [pattern(9001, 1), b"short", pattern(6000, 2)]
        answered = asyncio.Event()

        async def large(call: RdmaCall) -> None:
            xid = call.message.xid
            if xid == 4:
                await echo(call)
                return
            await call.reply(message(xid, *map(bytearray, items)) if bulk else inline(xid, *items))
            answered.set()

        async with connected(devices, CLIENT, SERVER, large) as pair:
            reply = await pair.client.call(inline(3), room(20_000))
            assert items_of(reply) == items
            assert [bulk.position % 4 for bulk in reply.bulks] == [0] * (3 if bulk else 0)
            await answered.wait()  # by RDMA_DONE
            assert pair.server.dones == {}
            # It counts until a reply shows that the server has it.
            assert pair.client.credits.unacknowledged_dones == 1
            await pair.client.call(inline(4), room(100))
            assert pair.client.credits.unacknowledged_dones == 0
            assert pair.client.credits.granted == 8

    run(work)


async def large_reply(call: RdmaCall) -> None:
    await call.reply(inline(call.message.xid, pattern(9000)))


@pytest.mark.requirement("RPCRDMA-3.8-04", "RPCRDMA-11-07", "RPCRDMA-3.3-02")
def test_replies_are_withheld_while_dones_take_all_credits_but_one(devices: Devices):
    async def work():
        server = ServerSettings(profile=OLD, credits=3)
        async with raw_client(devices, server) as (peer, transport):
            for xid in range(3):
                await peer.send(call_of(xid, inline(xid).stream))
            calls = [await transport.receive() for _ in range(3)]
            replies = [asyncio.ensure_future(large_reply(call)) for call in calls]
            first, second = await peer.next_header(), await peer.next_header()
            assert [header.procedure for header in (first, second)] == [Procedure.RDMA_NOMSG] * 2
            assert (first.credits, second.credits) == (2, 1)
            # A grant of 0 would be next.
            await nothing_comes(peer)
            await peer.send(done(first.xid))
            assert (await peer.next_header()).credits == 1
            await peer.send(done(second.xid))
            await peer.send(done(2))
            await asyncio.gather(*replies)
            assert transport.grant == 3

    run(work)


@pytest.mark.requirement("RPCRDMA-3.8-01", "RPCRDMA-11-05", "RPCRDMA-11-08")
def test_memory_is_taken_back_from_a_client_without_done(devices: Devices):
    async def work():
        server = ServerSettings(profile=OLD, done_timeout=0.3)
        async with raw_client(devices, server) as (peer, transport):
            before = set(devices.server.mrs)
            await peer.send(call_of(1, inline(1).stream))
            reply = asyncio.ensure_future(large_reply(await transport.receive()))
            header = await peer.next_header()
            (segment,) = (each.target for each in header.lists.reads)
            assert set(devices.server.mrs) - before == {segment.handle}
            await reply
            assert set(devices.server.mrs) == before
            # A late one is nothing, and the connection goes on.
            await peer.send(done(1))
            await peer.send(call_of(2, inline(2).stream))
            await echo(await transport.receive())
            assert (await peer.next_header()).xid == 2

    run(work)


@pytest.mark.requirement("RPCRDMA-11-05")
def test_memory_is_taken_back_when_the_client_vanishes_before_done(devices: Devices):
    async def work():
        async with raw_client(devices, SERVER) as (peer, transport):
            await peer.send(call_of(1, inline(1).stream))
            reply = asyncio.ensure_future(large_reply(await transport.receive()))
            assert (await peer.next_header()).lists.reads
            await peer.channel.close()
            with pytest.raises(RpcConnectionError):
                await reply
            with pytest.raises(RpcConnectionError):
                await transport.receive()
            await transport.close()
            devices.check_clean()

    run(work)


def test_a_withheld_reply_ends_with_the_connection(devices: Devices):
    async def work():
        async with raw_client(devices, ServerSettings(profile=OLD, credits=2)) as (peer, transport):
            for xid in range(2):
                await peer.send(call_of(xid, inline(xid).stream))
            calls = [await transport.receive() for _ in range(2)]
            replies = [asyncio.ensure_future(large_reply(call)) for call in calls]
            await peer.next_header()
            await nothing_comes(peer, 0.1)
            await peer.channel.close()
            for reply in replies:
                with pytest.raises(RpcConnectionError):
                    await reply

    run(work)


def test_a_client_that_does_not_wait_sends_done_all_the_same(devices: Devices):
    async def work():
        go = asyncio.Event()
        answered = asyncio.Event()

        async def late(call: RdmaCall) -> None:
            await go.wait()
            await large_reply(call)
            answered.set()

        async with connected(devices, CLIENT, SERVER, late) as pair:
            call = asyncio.ensure_future(pair.client.call(inline(1), room(20_000)))
            while not pair.client.credits.outstanding:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)
            call.cancel()
            await asyncio.wait([call])
            assert pair.client.credits.outstanding == 1
            go.set()
            await answered.wait()
            assert pair.client.credits.outstanding == 0

    run(work)


def test_a_client_that_goes_when_the_reply_is_there_sends_done_too(devices: Devices, monkeypatch):
    async def work():
        answered = asyncio.Event()

        async def large(call: RdmaCall) -> None:
            await large_reply(call)
            answered.set()

        async with connected(devices, CLIENT, SERVER, large) as pair:
            call = asyncio.ensure_future(pair.client.call(inline(1), room(20_000)))
            take = pair.client._on_message

            def take_and_cancel(*arguments) -> None:
                take(*arguments)
                call.cancel()

            pair.client._channel._on_message = take_and_cancel
            with pytest.raises(asyncio.CancelledError):
                await call
            pair.client._channel._on_message = take
            await answered.wait()
            assert pair.client.credits.outstanding == 0

    run(work)


# RDMA_MSGP


@pytest.mark.requirement("RPCRDMA-3.9-01", "RPCRDMA-6.2-01")
def test_calls_and_replies_are_padded(devices: Devices):
    async def work():
        server = ServerSettings(profile=OLD, align=256)
        seen: list[RdmaCall] = []

        async def watch(call: RdmaCall) -> None:
            seen.append(call)
            await echo(call)

        item = pattern(1501)
        async with connected(devices, CLIENT, server, watch) as pair:
            assert pair.client.sizes.align == 256
            for xid, octets in enumerate((512, 513, 1501)):
                call = message(xid, b"name", item[:octets])
                # The item has to end the message.
                stream = call.stream[:-4]
                reply = await pair.client.call(Message(stream, call.bulks), room(3000))
                assert seen[-1].message.stream == Message(stream, call.bulks).whole()
                padded = Procedure.RDMA_MSGP if octets > 512 else Procedure.RDMA_MSG
                assert seen[-1].header.procedure is padded
                assert reply.xid == xid

    run(work)


@pytest.mark.requirement("RPCRDMA-3.9-01")
def test_the_item_of_a_padded_reply_is_aligned_in_the_send(devices: Devices):
    async def work():
        server = ServerSettings(profile=OLD, align=128)
        item = pattern(700)
        whole = Message(message(1, item).stream[:-4], message(1, item).bulks)
        async with raw_client(devices, server) as (peer, transport):
            await peer.send(call_of(1, inline(1).stream))
            await (await transport.receive()).reply(whole)
            octets = await peer.next()
            header, end = decode_header(octets)
            assert (header.procedure, header.padding) == (Procedure.RDMA_MSGP, Padding(128, 512))
            assert octets.index(item) % 128 == 0
            assert unpad(octets[end:], end, Padding(128, 512)) == whole.whole()

    run(work)


@pytest.mark.requirement("RPCRDMA-3.9-01")
@given(
    st.binary(max_size=40).map(lambda octets: octets + bytes(-len(octets) % 4)),
    st.integers(1, 60),
    st.sampled_from([0, 1, 4, 16, 64, 4096]),
    st.sampled_from([36, 60]),
)
def test_unpad_takes_off_what_pad_puts_in(start: bytes, octets: int, align: int, before: int):
    padding = Padding(align, 0)
    # Words of the start that would be read as the length of an item are not the question here.
    start = bytes(byte & 0x80 for byte in start)
    item = len(start) + 4
    stream = start + octets.to_bytes(4) + b"x" * octets + bytes(roundup(octets) - octets)
    padded = pad(stream, item, before, padding)
    assert len(padded) == len(stream) + padding_octets(padding, before + item)
    if align:
        assert (before + padded.index(b"x")) % align == 0
    assert unpad(padded, before, padding) == stream


def test_what_has_no_long_item_at_its_end_is_left_as_it_is():
    stream = inline(1, b"abc").stream
    assert unpad(stream, 36, Padding(64, 2)) == stream
    # 8 octets, from the octet 64 of the Send on.
    item = bytes(16) + (8).to_bytes(4) + bytes(8) + b"12345678"
    assert unpad(item, 36, Padding(64, 8)) == item
    assert unpad(item, 36, Padding(64, 7)) == item[:20] + b"12345678"


# Connection Configuration Protocol


@pytest.mark.requirement("RPCRDMA-6-03", "RPCRDMA-6.2-01", "RPCRDMA-12-02")
def test_the_first_call_settles_the_sizes(devices: Devices):
    async def work():
        client = ClientSettings(profile=OLD, inline_octets=2048, ird=3)
        server = ServerSettings(profile=OLD, inline_octets=8192, align=64)
        async with connected(devices, client, server, echo) as pair:
            assert (pair.client.sizes.send_octets, pair.client.sizes.align) == (2048, 64)
            assert pair.server.terms == Terms(2048, 8192)
            assert pair.server.reads == 3
            # More Reads than may be under way at a time.
            pieces = ClientSettings(profile=OLD, inline_octets=2048, ird=2, segment_octets=900)
            async with connected_more(devices, pair, pieces, server) as other:
                item = bytearray(pattern(9999))
                reply = await other.client.call(message(5, item), room(100, 9999))
                assert reply.bulks[0].data == item
                assert other.server.reads == 2

    run(work)


def connected_more(devices, pair, client, server):
    """Another connection of the same devices; what the first one has is left."""
    shared = Devices(devices.client, devices.server)
    shared.check_clean = lambda: None  # type: ignore[method-assign]
    return connected(shared, client, server, echo)


def configure(xid: int, maxrdmaread: int) -> bytes:
    """A call of CONF_RDMA."""
    return call_of(xid, configuration.encode_call(xid, ConfigRequest(4096, 4096, maxrdmaread)))


@pytest.mark.requirement("RPCRDMA-6.2-01", "RPCRDMA-6.2-04")
def test_no_more_reads_are_under_way_than_the_client_wants(devices: Devices, monkeypatch):
    async def work():
        batches: list[int] = []
        post = Channel.post

        async def watch(channel, requests):
            batches.append(sum(request.opcode == WROpcode.RDMA_READ for request in requests))
            return await post(channel, requests)

        monkeypatch.setattr(Channel, "post", watch)
        async with raw_client(devices, SERVER) as (peer, transport):
            for xid, (limit, expected) in enumerate([(2, [2, 2, 1]), (1, [1] * 5), (100, [5])]):
                await peer.send(configure(xid, limit))
                await peer.next()
                batches.clear()
                parts = [peer.readable(pattern(7, seed)) for seed in range(5)]
                stream = message(9, bytes(35)).stream
                await peer.send(call_of(9, stream, *((12, part) for part in parts)))
                call = await transport.receive()
                whole = b"".join(pattern(7, seed) for seed in range(5))
                assert bytes(call.message.bulks[0].data) == whole
                assert [count for count in batches if count] == expected
                await call.drop()
            # With none there is only one answer.
            await peer.send(configure(7, 0))
            await peer.next()
            await peer.send(call_of(9, stream, (12, parts[0])))
            assert (await peer.next_header()).procedure is Procedure.RDMA_ERROR

    run(work)


@pytest.mark.slow
@pytest.mark.requirement("RPCRDMA-6-03")
def test_a_server_without_the_protocol_leaves_the_sizes_as_they_are(devices: Devices):
    async def work():
        async def unavailable(call: RdmaCall) -> None:
            words = (call.message.xid, 1, 0, 0, 0, 1)  # accepted: PROG_UNAVAIL
            await call.reply(Message(b"".join(word.to_bytes(4) for word in words)))

        async with connected(devices, CLIENT, ServerSettings(announce=False), unavailable) as pair:
            assert (pair.client.sizes.send_octets, pair.client.sizes.align) == (1024, 0)

    run(work)


ANSWER = ConfigReply(4096, 64, 8)
ACCEPTED = "0000000a 00000001 00000000 00000000 00000000"


@pytest.mark.requirement("RPCRDMA-6-03", "RPCRDMA-12-02")
def test_configuration_calls_and_replies_are_those_of_rfc_5531():
    octets = configuration.encode_call(10, ConfigRequest(1, 2, 3))
    assert octets == bytes.fromhex(
        "0000000a 00000000 00000002 00018841 00000001 00000001"
        "00000000 00000000 00000000 00000000 00000001 00000002 00000003"
    )
    call = ConfigCall.decode(octets)
    assert call == ConfigCall(10, 1, 1, ConfigRequest(1, 2, 3))
    answer = call.answer(ANSWER)
    assert answer == bytes.fromhex(f"{ACCEPTED} 00000000 00001000 00000040 00000008")
    assert configuration.decode_reply(answer) == ANSWER
    with_credential = (
        octets[:24] + bytes.fromhex("00000001 00000005 1122334455000000") + octets[32:]
    )
    assert ConfigCall.decode(with_credential) == call


@pytest.mark.parametrize(
    ("version", "procedure", "arguments", "status"),
    [
        (2, 1, 12, "00000002 00000001 00000001"),
        (1, 0, 0, "00000000"),
        (1, 2, 12, "00000003"),
        (1, 1, 8, "00000004"),
        (1, 1, 16, "00000004"),
    ],
    ids=["PROG_MISMATCH", "NULL", "PROC_UNAVAIL", "GARBAGE_ARGS", "more arguments"],
)
def test_other_configuration_calls_are_answered_as_rpc_wants(version, procedure, arguments, status):
    octets = bytes.fromhex(f"0000000a 00000000 00000002 00018841 {version:08x} {procedure:08x}")
    call = ConfigCall.decode(octets + bytes(16 + arguments))
    assert call is not None
    assert call.answer(ANSWER) == bytes.fromhex(f"{ACCEPTED} {status}")


@pytest.mark.parametrize("cut", range(0, 40, 4))
def test_what_is_no_configuration_call_is_the_programs(cut: int):
    octets = configuration.encode_call(10, ConfigRequest(1, 2, 3))
    assert ConfigCall.decode(octets[:cut]) is None
    endless = octets[:28] + b"\xff" * 4 + octets[32:]
    assert ConfigCall.decode(endless) is None
    assert ConfigCall.decode(octets[:12] + (100003).to_bytes(4) + octets[16:]) is None


@pytest.mark.parametrize("octets", ["0000000a", f"{ACCEPTED}", "0000000a" + "00000001" * 9])
def test_replies_that_are_none_are_errors(octets: str):
    with pytest.raises(RpcTransportError, match="reply to CONF_RDMA"):
        configuration.decode_reply(bytes.fromhex(octets))


def test_a_header_of_done_is_16_octets():
    assert len(Header(1, 2, Procedure.RDMA_DONE).encode()) == 16
