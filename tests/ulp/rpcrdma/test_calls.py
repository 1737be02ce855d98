"""Calls and replies between two devices in the profile RFC8166, by every way that there is."""

import asyncio

import pytest

from stagecoach.ulp.oncrpc.errors import MessageTooLong
from stagecoach.ulp.oncrpc.message import PLACED, Bulk, Message
from stagecoach.ulp.oncrpc.transport import ReplyRoom
from stagecoach.ulp.rpcrdma.call import RdmaCall
from stagecoach.ulp.rpcrdma.errors import ErrorCode, RdmaErrorReceived
from stagecoach.ulp.rpcrdma.header import Procedure
from stagecoach.ulp.rpcrdma.settings import ClientSettings, ServerSettings
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

SMALL = ClientSettings(inline_octets=1024, segment_octets=1000, credits=8)


class Seen:
    """The headers of the calls that a handler has answered."""

    def __init__(self):
        self.calls: list[RdmaCall] = []

    async def __call__(self, call: RdmaCall) -> None:
        self.calls.append(call)
        await echo(call)

    @property
    def lists(self):
        return self.calls[-1].header.lists

    @property
    def procedure(self) -> Procedure:
        return self.calls[-1].header.procedure


@pytest.mark.requirement("RPCRDMA-3-01", "RPCRDMA-3.8-02", "RPCRDMA-3.4-04")
def test_short_calls_and_their_replies_go_inline(devices: Devices):
    async def work():
        seen = Seen()
        async with connected(devices, handler=seen) as pair:
            for xid in range(5):
                # Both have a bulk item, which is short enough to stay in the stream.
                reply = await pair.client.call(message(xid, b"abc" * xid, b""), room(100))
                assert (reply.xid, reply.bulks) == (xid, ())
                assert items_of(reply) == [b"abc" * xid, b""]
                assert seen.procedure is Procedure.RDMA_MSG
                assert (seen.lists.reads, seen.lists.writes, seen.lists.reply) == ((), (), None)

    run(work)


@pytest.mark.requirement("RPCRDMA-3.7-02", "RPCRDMA-3.4-07")
@pytest.mark.requirement("RFC8166-3.5.2-01")
@pytest.mark.parametrize("octets", [4094, 4097, 20_000])
def test_long_items_of_a_call_become_read_chunks(devices: Devices, octets: int):
    async def work():
        seen = Seen()
        async with connected(devices, handler=seen) as pair:
            item = bytearray(pattern(octets))
            call = message(1, b"short", item, b"behind")
            reply = await pair.client.call(call, room(2 * octets, octets, octets, octets))
            assert items_of(seen.calls[0].message) == [b"short", item, b"behind"]
            # One segment, at the position of the item in the whole stream, without roundup.
            (segment,) = seen.lists.reads
            assert (segment.position, segment.target.length) == (24, octets)
            assert [bytes(bulk.data) for bulk in reply.bulks] == [b"short", item, b"behind"]

    run(work)


@pytest.mark.requirement(
    "RPCRDMA-3.4-03", "RPCRDMA-3.4-05", "RPCRDMA-3.6-01", "RPCRDMA-3.6-02", "RPCRDMA-3.4-08"
)
def test_results_go_through_write_chunks_in_order(devices: Devices):
    async def work():
        seen = Seen()
        async with connected(devices, SMALL, handler=seen) as pair:
            # The first chunk has four segments, the third is not used.
            buffers = tuple(bytearray(size) for size in (3500, 2000, 10))
            offered = ReplyRoom(500, tuple(map(memoryview, buffers)))
            items = [pattern(3333, 1), pattern(7, 2)]
            reply = await pair.client.call(message(9, *items), offered)
            assert [len(chunk) for chunk in seen.lists.writes] == [4, 2, 1]
            assert [bulk.position for bulk in reply.bulks] == [PLACED] * 3
            assert [bytes(bulk.data) for bulk in reply.bulks] == [*items, b""]
            assert buffers[0] == items[0] + bytes(167)
            assert buffers[1] == items[1] + bytes(1993)
            # The buffers themselves: nothing was copied.
            assert reply.bulks[0].data.obj is buffers[0]

    run(work)


@pytest.mark.requirement("RPCRDMA-3.4-04")
def test_an_empty_write_chunk_has_its_result_returned_inline(devices: Devices):
    async def work():
        async with connected(devices, handler=echo) as pair:
            items = [b"in the stream", pattern(5000)]
            reply = await pair.client.call(message(3, *items), room(500, 0, 5000))
            assert [bytes(bulk.data) for bulk in reply.bulks] == [b"", items[1]]
            assert items[0] in reply.stream

    run(work)


@pytest.mark.requirement("RPCRDMA-4-01", "RPCRDMA-5.1-01", "RPCRDMA-5.2-01")
def test_long_calls_and_long_replies_go_as_one_chunk(devices: Devices):
    async def work():
        seen = Seen()
        async with connected(devices, SMALL, handler=seen) as pair:
            items = [pattern(4000, seed) for seed in range(3)]
            # Nothing of it is a bulk item.
            reply = await pair.client.call(inline(5, *items), room(13_000))
            assert seen.procedure is Procedure.RDMA_NOMSG
            assert {each.position for each in seen.lists.reads} == {0}
            assert len(seen.lists.reads) == 13
            assert seen.lists.reply is not None and len(seen.lists.reply) == 13
            assert items_of(reply) == items

    run(work)


def test_a_long_call_may_have_read_chunks_too(devices: Devices):
    async def work():
        seen = Seen()
        async with connected(devices, SMALL, handler=seen) as pair:
            call = message(6, bytearray(pattern(3001)))
            long = Message(call.stream + pattern(1400), call.bulks)
            task = asyncio.ensure_future(pair.client.call(long, room(100)))
            while not seen.calls:
                await asyncio.sleep(0.001)
            assert seen.procedure is Procedure.RDMA_NOMSG
            assert sorted({each.position for each in seen.lists.reads}) == [0, 12]
            assert seen.calls[0].message.whole() == long.whole()
            task.cancel()

    run(work)


@pytest.mark.requirement("RPCRDMA-5.2-02", "RPCRDMA-4.2-05")
def test_a_reply_for_which_there_is_no_room_is_answered_with_err_chunk(devices: Devices):
    async def work():
        errors = []

        async def long_reply(call: RdmaCall) -> None:
            with pytest.raises(MessageTooLong) as caught:
                await call.reply(inline(call.message.xid, bytes(20_000)))
            errors.append(str(caught.value))

        async with connected(devices, handler=long_reply) as pair:
            for xid, octets in enumerate((100, 10_000)):
                with pytest.raises(RdmaErrorReceived) as refused:
                    await pair.client.call(inline(xid), room(octets))
                assert refused.value.code is ErrorCode.ERR_CHUNK
            assert "allowed: 0 in the reply chunk" in errors[0]
            assert "allowed: 10000 in the reply chunk" in errors[1]
            assert pair.server.refused == 2
            # The credits are there again.
            assert pair.client.credits.outstanding == 0

    run(work)


def test_an_item_longer_than_its_write_chunk_is_answered_with_err_chunk(devices: Devices):
    async def work():
        async def one_too_much(call: RdmaCall) -> None:
            with pytest.raises(MessageTooLong, match="of 101 bytes; allowed: 0 to 100"):
                await call.reply(message(call.message.xid, bytes(call.bulk_room[0] + 1)))

        async with connected(devices, handler=one_too_much) as pair:
            with pytest.raises(RdmaErrorReceived):
                await pair.client.call(inline(1), room(100, 100))

    run(work)


@pytest.mark.requirement("RPCRDMA-3.3-04", "RPCRDMA-6.1-01", "RPCRDMA-6.1-02", "RPCRDMA-4.1-06")
@pytest.mark.requirement("RFC8166-3.3.1-01", "RFC8166-3.3.3-01", "RFC8166-3.3.3-02")
def test_calls_complete_in_any_order_and_never_exceed_the_credits(devices: Devices):
    async def work():
        waiting: list[RdmaCall] = []
        most = 0

        async def collect(call: RdmaCall) -> None:
            waiting.append(call)

        client, server = ClientSettings(credits=6), ServerSettings(credits=4)
        async with connected(devices, client, server, collect) as pair:
            calls = [
                asyncio.ensure_future(pair.client.call(inline(xid, pattern(50, xid)), room(200)))
                for xid in range(12)
            ]
            answered = 0
            while answered < len(calls):
                expected = min(4 if answered else 1, len(calls) - answered)
                while len(waiting) < expected:
                    await asyncio.sleep(0.001)
                await asyncio.sleep(0.02)
                # One before the first reply, then as many as granted.
                assert len(waiting) == expected
                most = max(most, pair.client.credits.outstanding)
                # The last one that came is answered first.
                call = waiting.pop()
                await echo(call)
                answered += 1
                xid = call.message.xid
                assert items_of(await calls[xid]) == [pattern(50, xid)]
            assert most == 4

    run(work)


@pytest.mark.requirement("RFC8166-3.3.1-02", "RFC8166-3.3.1-04")
@pytest.mark.requirement(
    "RPCRDMA-3.3-01", "RPCRDMA-3.3-02", "RPCRDMA-3.3-03", "RPCRDMA-3.3-06", "RPCRDMA-11-06"
)
def test_requests_and_grants_may_change(devices: Devices):
    async def work():
        seen = Seen()
        async with connected(devices, handler=seen) as pair:
            for xid, (requested, granted) in enumerate([(1, 32), (32, 1), (4, 7), (8, 2)]):
                pair.client.credits.request(requested)
                pair.server.credits = granted
                await pair.client.call(inline(xid), room(100))
                assert seen.calls[-1].header.credits == requested
                assert pair.client.credits.granted == granted
            with pytest.raises(ValueError, match="credits are 0; allowed: 1 to 32"):
                pair.server.credits = 0

    run(work)


@pytest.mark.requirement("RPCRDMA-6.2-02", "RPCRDMA-6-02")
@pytest.mark.requirement("RFC8166-3.3.3-05", "RFC8166-3.3.3-06")
def test_sends_are_1024_octets_until_both_ends_have_told_more(devices: Devices):
    async def work():
        silent = ServerSettings(announce=False)
        seen = Seen()
        async with connected(devices, server=silent, handler=seen) as pair:
            assert (pair.client.sizes.send_octets, pair.client.sizes.receive_octets) == (1024, 1024)
            # 28 octets of header, 12 of XID, direction and last word, 4 of the length.
            for xid, octets in enumerate((1024 - 44, 1024 - 40)):
                await pair.client.call(inline(xid, pattern(octets)), room(octets + 16))
                assert seen.procedure is (Procedure.RDMA_NOMSG if xid else Procedure.RDMA_MSG)
        async with connected(
            devices, ClientSettings(inline_octets=2048), ServerSettings(inline_octets=8192), seen
        ) as pair:
            assert (pair.client.sizes.send_octets, pair.client.sizes.receive_octets) == (2048, 2048)
            assert pair.server.terms.send_octets == 2048
            await pair.client.call(inline(9, pattern(2048 - 44)), room(2000))
            assert seen.procedure is Procedure.RDMA_MSG

    run(work)


@pytest.mark.requirement("RPCRDMA-6.2-04")
def test_without_rdma_reads_a_long_call_is_an_error_of_the_client(devices: Devices):
    async def work():
        async with connected(devices, ClientSettings(ird=0), handler=echo) as pair:
            with pytest.raises(MessageTooLong, match="to a peer that may not read"):
                await pair.client.call(inline(1, bytes(5000)), room(100))
            assert pair.client.credits.outstanding == 0
            # Everything else goes on.
            item = pattern(9000)
            reply = await pair.client.call(inline(2, item[:1000]), room(100, 9000))
            assert bytes(reply.bulks[0].data) == item[:1000]

    run(work)


def test_a_handler_that_answers_nonsense_is_told_and_so_is_the_client(devices: Devices):
    async def work():
        async def nonsense(call: RdmaCall) -> None:
            xid = call.message.xid
            good = message(xid, pattern(20))
            wrong = {
                1: message(xid + 1),
                2: Message(good.stream, (Bulk(PLACED, good.bulks[0].data),)),
                3: Message(good.stream, (Bulk(400, good.bulks[0].data),)),
                4: Message(good.stream, (Bulk(14, good.bulks[0].data),)),
                5: Message(good.stream, good.bulks * 2),
                6: Message(b"", ()),
            }
            with pytest.raises(ValueError, match="allowed"):
                await call.reply(wrong[xid])
            with pytest.raises(ValueError, match="answered or dropped"):
                await call.drop()

        # Of each credit there is one, so none may be lost.
        async with connected(devices, server=ServerSettings(credits=1), handler=nonsense) as pair:
            for xid in range(1, 7):
                with pytest.raises(RdmaErrorReceived):
                    await pair.client.call(inline(xid), room(100))

    run(work)


def test_an_xid_that_is_outstanding_is_refused(devices: Devices):
    async def work():
        async with connected(devices) as pair:
            first = asyncio.ensure_future(pair.client.call(inline(1), room(100)))
            await asyncio.sleep(0)
            with pytest.raises(ValueError, match="XID 0x00000001 is outstanding"):
                await pair.client.call(inline(1), room(100))
            first.cancel()

    run(work)


def test_read_only_items_and_foreign_memory_are_sent_too(devices: Devices):
    async def work():
        async def foreign(call: RdmaCall) -> None:
            # Neither is memory of the transport; the first cannot be registered.
            items = [pattern(9000), bytearray(pattern(9001, 3))]
            await call.reply(message(call.message.xid, *items))

        async with connected(devices, handler=foreign) as pair:
            call = message(1, pattern(6000))
            reply = await pair.client.call(call, room(200, 9000, 9001))
            assert [bytes(bulk.data) for bulk in reply.bulks] == [pattern(9000), pattern(9001, 3)]

    run(work)


def test_memory_of_the_server_is_registered_once_and_reused(devices: Devices):
    async def work():
        async with connected(devices, handler=echo) as pair:
            regions = []
            for xid in range(4):
                item = bytearray(pattern(9000 + xid))
                await pair.client.call(message(xid, item), room(100, 9100))
                await asyncio.sleep(0.02)
                regions.append(set(devices.server.mrs))
            # Receives, Sends, what is read, what is written.
            assert [len(stags) for stags in regions] == [4] * 4
            assert regions == [regions[0]] * 4

    run(work)


def test_four_calls_with_many_octets_each_way_at_a_time(devices: Devices):
    async def work():
        octets = 100_000
        async with connected(devices, handler=echo) as pair:

            async def one(xid: int) -> None:
                item = bytearray(pattern(octets, xid))
                reply = await pair.client.call(message(xid, item), room(200, octets))
                assert reply.bulks[0].data == item

            await asyncio.gather(*(one(xid) for xid in range(4)))

    run(work)
