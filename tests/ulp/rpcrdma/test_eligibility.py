"""Which items may become chunks, and what comes of those that must not, or should have.

RFC 8166, 3.4.2, 3.4.4 and 6.1; RFC 5666, 3.4; RFC 5667, 4.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any

import pytest

from stagecoach.ulp.nfs.program import NFS
from stagecoach.ulp.oncrpc.client import RpcClient
from stagecoach.ulp.oncrpc.errors import GarbageArguments, XdrError
from stagecoach.ulp.oncrpc.message import PLACED, Bulk, Message
from stagecoach.ulp.oncrpc.program import Procedure, Program
from stagecoach.ulp.oncrpc.records import Record
from stagecoach.ulp.oncrpc.server import RpcServer, Service
from stagecoach.ulp.oncrpc.xdr import Decoder, Encoder
from stagecoach.ulp.oncrpc.xdr_types import UINT, VOID, BulkOpaque, Maybe, Union, XdrType
from stagecoach.ulp.rpcrdma.chunks import ChunkLists
from stagecoach.ulp.rpcrdma.header import Header
from stagecoach.ulp.rpcrdma.reply import cut
from tests.ulp.oncrpc.arithmetic import ADD_TO_OCTETS, ARITHMETIC, Block
from tests.ulp.rpcrdma.raw import call_of, raw_client, raw_server, words
from tests.ulp.rpcrdma.rig import Devices, connected, pattern, run
from tests.ulp.rpcrdma.test_bad_servers import write

pytestmark = pytest.mark.usefixtures("compiled_device")

XID = 0x5EED0003
ERR_CHUNK = words(XID, 1, 32, 4, 2)
GARBAGE_ARGS = words(XID, 1, 32, 0, 0, 0, 0, XID, 1, 0, 0, 0, 4)
"""RDMA_MSG with an accepted reply (RFC 5531, 9)."""


@pytest.mark.requirement(
    *("RPCRDMA-3.4-02", "RPCRDMA-3.4-01", "RPCRDMA-3.6-02"),
    *("RFC8166-3.4.2-01", "RFC8166-3.4.2-02", "RFC8166-3.4.4.3-02"),
)
def test_the_binding_of_nfs_says_what_may_be_a_chunk():
    procedures = NFS.procedures
    arguments = {each.name for each in procedures if each.arguments.bulk_octets}
    results = {each.name for each in procedures if each.result.bulk_octets}
    assert arguments == {"WRITE", "SYMLINK"}
    assert results == {"READ", "READLINK"}


# What of an item stays in the stream


class Arm(IntEnum):
    DATA = 7
    NOTHING = 8


ITEM = BulkOpaque(100)
UNION = Union(Arm, {Arm.DATA: ITEM, Arm.NOTHING: VOID})


def packed(kind: XdrType[Any], value: Any) -> tuple[bytes, list[tuple[int, bytes]]]:
    encoder = Encoder()
    kind.pack(encoder, value)
    message = encoder.message()
    return message.stream, [(bulk.position, bytes(bulk.data)) for bulk in message.bulks]


@pytest.mark.requirement(
    *("RFC8166-3.4.4.1-01", "RFC8166-3.4.4.1-02", "RFC8166-3.4.4.2-01", "RFC8166-3.4.4.2-02"),
    *("RFC8166-3.4.4.3-01", "RFC8166-3.4.4.3-02"),
)
def test_counts_presence_and_discriminants_stay_in_the_stream():
    data = memoryview(b"abcde")
    assert packed(ITEM, data) == (words(5), [(4, b"abcde")])
    assert packed(Maybe(ITEM), data) == (words(1, 5), [(8, b"abcde")])
    assert packed(Maybe(ITEM), None) == (words(0), [])
    assert packed(UNION, (Arm.DATA, data)) == (words(7, 5), [(8, b"abcde")])
    assert packed(UNION, (Arm.NOTHING, None)) == (words(8), [])


# Arguments that must not be chunks


def call() -> bytes:
    """ADD_TO_OCTETS with "hello", 16 octets, and 7."""
    header = words(XID, 0, 2, ARITHMETIC.number, ARITHMETIC.version, ADD_TO_OCTETS.number)
    return header + words(0, 0, 0, 0, 5) + b"hello\0\0\0" + words(16) + pattern(16) + words(7)


DATA = 56
"""Where the only eligible item begins."""


@pytest.mark.requirement("RFC8166-6.1-03", "RFC8166-6.1-04", "RFC8166-4.5.2-02")
@pytest.mark.parametrize("too", [False, True], ids=["alone", "with the eligible item"])
def test_a_reduced_argument_that_is_not_eligible_is_not_processed(devices: Devices, too: bool):
    async def work():
        executed = []

        def handler(request, block: Block) -> Block:
            executed.append(block)
            return block

        server = RpcServer([Service(ARITHMETIC, {ADD_TO_OCTETS: handler})])
        async with raw_client(devices) as (peer, transport):
            serving = asyncio.ensure_future(server.serve(transport))
            whole = call()
            eligible = peer.readable(pattern(16))
            for position in range(4, len(whole), 4):
                reads = [(position, peer.readable(whole[position : position + 4]))]
                left = whole[:position] + whole[position + 4 :]
                if too and not DATA - 4 < position < DATA + 16:
                    reads.append((DATA, eligible))
                    at = DATA - 4 if position < DATA else DATA
                    left = left[:at] + left[at + 16 :]
                await peer.send(call_of(XID, left, *reads))
                assert await peer.next() in (ERR_CHUNK, GARBAGE_ARGS), position
                assert executed == [], position
            await peer.send(call_of(XID, whole[:DATA] + whole[DATA + 16 :], (DATA, eligible)))
            await peer.next()
            assert executed == [Block(b"hello", memoryview(pattern(16)), 7)]
            await peer.channel.close()
            await serving

    run(work)


@pytest.mark.requirement("RFC8166-4.5.2-02", "RFC8166-3.4.5.2-02", "RFC8166-3.4.5.2-03")
@pytest.mark.parametrize("octets", [12, 15, 17, 20, 24])
def test_a_chunk_of_another_length_than_its_item_is_garbage(devices: Devices, octets: int):
    async def work():
        server = RpcServer([Service(ARITHMETIC, {ADD_TO_OCTETS: lambda request, block: block})])
        async with raw_client(devices) as (peer, transport):
            serving = asyncio.ensure_future(server.serve(transport))
            whole = call()
            reads = (DATA, peer.readable(bytes(octets)))
            await peer.send(call_of(XID, whole[:DATA] + whole[DATA + 16 :], reads))
            assert await peer.next() == GARBAGE_ARGS
            await peer.channel.close()
            await serving

    run(work)


# Results


RESULT = pattern(600)
Answer = Callable[[Any, Header], Awaitable[bytes]]


def accepted(xid: int, *rest: bytes) -> bytes:
    return words(xid, 1, 0, 0, 0, 0) + b"".join(rest)


async def called(devices: Devices, answer: Answer, octets: int = 600) -> Block:
    """The result of ADD_TO_OCTETS from a server that answers so."""
    async with raw_server(devices) as (transport, peer):
        client = RpcClient(transport, None)
        block = Block(b"hello", memoryview(b"abcd"), 7)
        into = [memoryview(bytearray(octets))]
        task = asyncio.ensure_future(client.call(ARITHMETIC, ADD_TO_OCTETS, block, into=into))
        header = await peer.next_header()
        await peer.send(await answer(peer, header))
        return await task


def reduced(header: Header, octets: int, stream: bytes) -> bytes:
    """A reply that returns so many octets in its write chunk."""
    lists = ChunkLists(writes=(cut(header.lists.writes[0], octets),))
    return Header(header.xid, 8, lists=lists).encode() + stream


async def good(peer, header: Header) -> bytes:
    await write(peer, header.lists.writes[0][0], RESULT)
    stream = accepted(header.xid, words(5), b"olleh\0\0\0", words(600, 8))
    return reduced(header, 600, stream)


async def inline_beside_an_unused_chunk(peer, header: Header) -> bytes:
    data = words(100) + RESULT[:100]
    return reduced(header, 0, accepted(header.xid, words(5), b"olleh\0\0\0", data, words(8)))


async def inline_without_a_write_list(peer, header: Header) -> bytes:
    data = words(100) + RESULT[:100]
    stream = accepted(header.xid, words(5), b"olleh\0\0\0", data, words(8))
    return Header(header.xid, 8).encode() + stream


async def the_name_in_the_chunk(peer, header: Header) -> bytes:
    await write(peer, header.lists.writes[0][0], b"olleh")
    return reduced(header, 5, accepted(header.xid, words(5, 4), b"data", words(8)))


async def a_chunk_for_no_item(peer, header: Header) -> bytes:
    stream = accepted(header.xid, words(5), b"olleh\0\0\0", words(0, 8))
    return reduced(header, 4, stream)


@pytest.mark.requirement("RFC8166-6.1-05", "RFC8166-6.1-06")
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(inline_beside_an_unused_chunk, id="an eligible result beside an unused chunk"),
        pytest.param(inline_without_a_write_list, id="an eligible result and no write list"),
        pytest.param(the_name_in_the_chunk, id="a result that is not eligible"),
        pytest.param(a_chunk_for_no_item, id="a chunk for no item"),
    ],
)
def test_results_in_the_wrong_place_end_the_call(devices: Devices, answer: Answer):
    async def work():
        with pytest.raises(XdrError):
            await called(devices, answer)

    run(work)


@pytest.mark.requirement("RFC8166-6.1-06", "RFC8166-4.3.2.3-01", "RFC8166-4.3.2.2-03")
def test_results_in_the_right_place_are_taken(devices: Devices):
    async def refused(peer, header: Header) -> bytes:
        return reduced(header, 0, words(header.xid, 1, 0, 0, 0, 4))

    async def nothing(peer, header: Header) -> bytes:
        stream = accepted(header.xid, words(5), b"olleh\0\0\0", words(0, 8))
        return reduced(header, 0, stream)

    async def wanted_inline(peer, header: Header) -> bytes:
        assert header.lists.writes == ((),)
        data = words(100) + RESULT[:100]
        stream = accepted(header.xid, words(5), b"olleh\0\0\0", data, words(8))
        lists = ChunkLists(writes=((),))
        return Header(header.xid, 8, lists=lists).encode() + stream

    async def work():
        assert (await called(devices, good)).data == RESULT
        assert (await called(devices, nothing)).data == b""
        assert (await called(devices, wanted_inline, 0)).data == RESULT[:100]
        with pytest.raises(GarbageArguments):
            await called(devices, refused)

    run(work)


@pytest.mark.requirement("RFC8166-4.3.3-01")
@pytest.mark.parametrize("octets", [0, 4])
def test_a_result_that_is_wanted_inline_counts_for_the_reply_chunk(devices: Devices, octets: int):
    async def work():
        async with raw_server(devices) as (transport, peer):
            client = RpcClient(transport, None)
            block = Block(b"hello", memoryview(b"abcd"), 7)
            into = [memoryview(bytearray(octets))]
            task = asyncio.ensure_future(client.call(ARITHMETIC, ADD_TO_OCTETS, block, into=into))
            header = await peer.next_header()
            room = 0 if header.lists.reply is None else header.lists.reply[0].length
            # Its type has up to 1 MiB.
            assert (room > 1 << 20) == (octets == 0)
            await peer.channel.close()
            await asyncio.wait([task])
            task.exception()

    run(work)


# Several chunks


@dataclass(frozen=True)
class Two:
    first: Annotated[memoryview, BulkOpaque(1000)]
    second: Annotated[memoryview, BulkOpaque(1000)]


@dataclass(frozen=True)
class MaybeTwo:
    first: Annotated[memoryview, BulkOpaque(1000)] | None
    second: Annotated[memoryview, BulkOpaque(1000)]


TWO = Procedure(1, "TWO", UINT, Record(Two))
MAYBE_TWO = Procedure(2, "MAYBE_TWO", UINT, Record(MaybeTwo))
UNLIMITED = Procedure(3, "UNLIMITED", UINT, BulkOpaque())
PAIRS = Program("PAIRS", 0x20000002, 1, [TWO, MAYBE_TWO, UNLIMITED])


def pairs(request, octets: int, kind: type) -> Any:
    first = None if kind is MaybeTwo and not octets else memoryview(bytes(pattern(octets)))
    return kind(first, memoryview(bytes(pattern(700, 5))))


@pytest.mark.requirement("RFC8166-4.3.2.2-01", "RFC8166-4.3.2-01")
@pytest.mark.parametrize("procedure", [TWO, MAYBE_TWO], ids=lambda each: each.name)
@pytest.mark.parametrize("octets", [0, 500])
def test_an_item_takes_the_chunk_that_the_one_before_it_left(
    devices: Devices, procedure: Procedure[int, Any], octets: int
):
    handlers = {
        TWO: lambda request, octets: pairs(request, octets, Two),
        MAYBE_TWO: lambda request, octets: pairs(request, octets, MaybeTwo),
    }
    server = RpcServer([Service(PAIRS, handlers)])

    async def work():
        async with connected(devices) as pair:
            serving = asyncio.ensure_future(server.serve(pair.server))
            into = [memoryview(bytearray(1000)) for _ in range(2)]
            client = RpcClient(pair.client, None)
            result = await client.call(PAIRS, procedure, octets, into=into)
            assert bytes(result.first or b"") == pattern(octets)
            assert bytes(result.second) == pattern(700, 5)
            assert result.second.obj is into[1 if octets else 0].obj
            await client.close()
            await serving

    run(work)


def test_an_empty_buffer_is_enough_for_an_empty_item_whose_type_has_no_limit(devices: Devices):
    server = RpcServer([Service(PAIRS, {UNLIMITED: lambda request, _: memoryview(b"")})])

    async def work():
        async with connected(devices) as pair:
            serving = asyncio.ensure_future(server.serve(pair.server))
            client = RpcClient(pair.client, None)
            assert await client.call(PAIRS, UNLIMITED, 0, into=[memoryview(b"")]) == b""
            await client.close()
            await serving

    run(work)


@pytest.mark.requirement("RFC8166-4.3.2.2-01")
@pytest.mark.parametrize("place", [0, 1])
def test_an_empty_item_may_have_taken_its_chunk_or_not(place: int):
    into = [memoryview(bytearray(b"abcdefgh")) for _ in range(2)]
    lengths = [5 if number == place else 0 for number in range(2)]
    bulks = tuple(Bulk(PLACED, each[:n]) for each, n in zip(into, lengths, strict=True))
    decoder = Decoder(Message(words(0, 5), bulks), into)
    result = Record(Two).unpack(decoder)
    decoder.done()
    assert (bytes(result.first), bytes(result.second)) == (b"", b"abcde")
    assert result.second.obj is into[place].obj
