"""Messages with bulk items beside the stream."""

import pytest

from stagecoach.ulp.oncrpc.message import PLACED, Bulk, Message, roundup


def bulk(position: int, data: bytes) -> Bulk:
    return Bulk(position, memoryview(data))


def test_bulk_items_are_inserted_at_their_positions_with_roundup():
    # XID, length word, 5 octets; length word, 4 octets; a last word.
    stream = bytes.fromhex("00000007 00000005 00000004 000000ff")
    message = Message(stream, (bulk(8, b"abcde"), bulk(20, b"wxyz")))
    assert message.whole() == stream[:8] + b"abcde\0\0\0" + stream[8:12] + b"wxyz" + stream[12:]
    assert message.whole_octets == len(message.whole())
    assert message.xid == 7


def test_without_bulk_items_the_stream_is_whole():
    assert Message(b"abcd").whole() == b"abcd"


def test_bulk_item_at_the_end():
    assert Message(b"abcd", (bulk(4, b"x"),)).whole() == b"abcdx\0\0\0"


@pytest.mark.parametrize("positions", [(PLACED,), (6,), (12,), (8, 8), (8, 4)])
def test_position_outside_the_stream_is_an_error(positions):
    message = Message(bytes(8), tuple(bulk(position, b"abcde") for position in positions))
    with pytest.raises(ValueError, match="bulk item at position"):
        message.whole()


@pytest.mark.parametrize(("octets", "rounded"), [(0, 0), (1, 4), (4, 4), (5, 8)])
def test_roundup(octets, rounded):
    assert roundup(octets) == rounded
