"""Reduced streams and their read chunks: putting them together, and lists that lie."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecoach.ulp.oncrpc.message import Bulk, Message, roundup
from stagecoach.ulp.rpcrdma.chunks import ChunkLists, ReadSegment, Segment
from stagecoach.ulp.rpcrdma.errors import ErrorCode, HeaderError
from stagecoach.ulp.rpcrdma.header import Header, Procedure
from stagecoach.ulp.rpcrdma.read_chunks import join, read_chunks, split

XID = 0x01020304
MOST = 1 << 20


def header(*reads: tuple[int, int], procedure: Procedure = Procedure.RDMA_MSG) -> Header:
    """With read segments of these positions and lengths."""
    entries = tuple(
        ReadSegment(position, Segment(number, length, 0x1000 * number))
        for number, (position, length) in enumerate(reads)
    )
    return Header(XID, 1, procedure, ChunkLists(reads=entries))


def refused(each: Header, detail: str, most: int = MOST) -> None:
    with pytest.raises(HeaderError, match=detail) as caught:
        read_chunks(each, most)
    assert (caught.value.xid, caught.value.answer) == (XID, ErrorCode.ERR_CHUNK)


def test_segments_of_one_position_are_one_chunk_in_list_order():
    whole, chunks = read_chunks(header((40, 7), (24, 8), (40, 9), (24, 5)), MOST)
    assert whole is None
    assert [(chunk.position, chunk.octets) for chunk in chunks] == [(24, 13), (40, 16)]
    assert [[segment.handle for segment in chunk.segments] for chunk in chunks] == [[1, 3], [0, 2]]


@pytest.mark.requirement("RPCRDMA-5.1-01")
def test_the_chunk_at_position_zero_is_the_message():
    long_call = header((0, 500), (24, 8), (0, 12), procedure=Procedure.RDMA_NOMSG)
    whole, chunks = read_chunks(long_call, MOST)
    assert whole is not None and whole.octets == 512
    assert [chunk.position for chunk in chunks] == [24]


@pytest.mark.requirement("RPCRDMA-4.2-05")
def test_lists_that_lie_are_answered_with_err_chunk():
    refused(header((41, 4)), "Position 41; allowed: multiples of 4")
    refused(header((24, 13), (36, 4)), "overlap: the first has 13 bytes; allowed: 0 to 12")
    refused(header((24, 600), (1000, 600)), "of 1200 bytes; allowed: 0 to 1000", most=1000)
    refused(header((0, 4)), "RDMA_MSG with a read chunk at position 0")
    nomsg = Procedure.RDMA_NOMSG
    refused(header((24, 4), procedure=nomsg), "RDMA_NOMSG without a read chunk at position 0")
    past = ReadSegment(24, Segment(1, 2, 2**64 - 1))
    refused(Header(XID, 1, lists=ChunkLists(reads=(past,))), "a segment ends at 0x1000")


def test_a_segment_may_end_with_the_tagged_offsets():
    last = ReadSegment(24, Segment(1, 1, 2**64 - 1))
    read_chunks(Header(XID, 1, lists=ChunkLists(reads=(last,))), MOST)


def stream_of(*items: bytes) -> tuple[bytes, list[int]]:
    """XID, then opaques with a word between them; the whole stream and where their octets begin."""
    whole = XID.to_bytes(4)
    positions = []
    for item in items:
        whole += len(item).to_bytes(4)
        positions.append(len(whole))
        whole += item + bytes(roundup(len(item)) - len(item)) + b"next"
    return whole, positions


def reduced(whole: bytes, positions: list[int], items: list[bytes]) -> bytes:
    for position, item in reversed(list(zip(positions, items, strict=True))):
        whole = whole[:position] + whole[position + roundup(len(item)) :]
    return whole


@pytest.mark.requirement("RPCRDMA-3.7-01", "RPCRDMA-3.4-07", "RPCRDMA-3.4-01")
@given(st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=3), st.booleans())
def test_join_inserts_chunks_with_or_without_their_roundup(items: list[bytes], rounded: bool):
    whole, positions = stream_of(*items)
    came = [item + bytes(roundup(len(item)) - len(item)) if rounded else item for item in items]
    each = header(*((at, len(octets)) for at, octets in zip(positions, came, strict=True)))
    _, chunks = read_chunks(each, MOST)
    found = join(each, reduced(whole, positions, items), chunks, list(map(memoryview, came)))
    assert [bytes(bulk.data) for bulk in found.bulks] == items
    assert found.whole() == whole


@given(st.lists(st.binary(min_size=1, max_size=9), max_size=3), st.data())
def test_split_leaves_out_what_is_reduced(items: list[bytes], data):
    whole, positions = stream_of(*items)
    bulks = [Bulk(at, memoryview(item)) for at, item in zip(positions, items, strict=True)]
    message = Message(reduced(whole, positions, items), tuple(bulks))
    kept = [bulk for bulk in bulks if data.draw(st.booleans())]
    left = Message(split(message, kept), tuple(kept))
    assert left.whole() == whole


def test_a_count_that_disagrees_is_left_to_who_knows_the_item():
    whole, (position,) = stream_of(b"x" * 100)
    stream = whole[:position] + whole[position + 100 :]
    for octets in (96, 99, 101, 104):
        each = header((position, octets))
        _, chunks = read_chunks(each, MOST)
        found = join(each, stream, chunks, [memoryview(bytes(octets))])
        assert len(found.bulks[0].data) == octets


@pytest.mark.parametrize(
    ("positions", "stream_octets", "detail"),
    [
        ((8,), 4, "position 8; allowed: 4 to 4"),
        ((1000,), 40, "position 1000; allowed: 4 to 40"),
        ((8, 12, 24), 12, "position 24; allowed: 16 to 20"),
    ],
    ids=["after the end", "far after the end", "after the end with the chunks before"],
)
def test_positions_that_the_stream_does_not_reach_are_refused(
    positions: tuple[int, ...], stream_octets: int, detail: str
):
    each = header(*((position, 4) for position in positions))
    _, chunks = read_chunks(each, MOST)
    stream = XID.to_bytes(4) + bytes(stream_octets - 4)
    with pytest.raises(HeaderError, match=detail):
        join(each, stream, chunks, [memoryview(bytes(4))] * len(chunks))


@pytest.mark.requirement("RPCRDMA-4.1-03", "RPCRDMA-4.1-09")
@pytest.mark.parametrize("stream", [b"", b"\1\2\3", bytes(4), (XID + 1).to_bytes(4), b"\1\2\3\4\5"])
def test_a_stream_that_does_not_begin_with_the_xid_is_refused(stream: bytes):
    with pytest.raises(HeaderError) as caught:
        join(header(), stream, [], [])
    assert caught.value.answer is ErrorCode.ERR_CHUNK
