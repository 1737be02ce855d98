"""XDR types against the encodings of RFC 4506, and values and octets that are none of theirs."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecoach.ulp.oncrpc.errors import MisplacedItem, XdrError
from stagecoach.ulp.oncrpc.message import PLACED, Bulk, Message
from stagecoach.ulp.oncrpc.records import Record, Uhyper, Uint, xdr_type
from stagecoach.ulp.oncrpc.xdr import Decoder, Encoder
from stagecoach.ulp.oncrpc.xdr_types import (
    BOOL,
    UHYPER,
    UINT,
    VOID,
    Array,
    BulkOpaque,
    Enumeration,
    FixedOpaque,
    LinkedList,
    Maybe,
    Opaque,
    Union,
)


class FileKind(IntEnum):
    TEXT = 0
    DATA = 1
    EXEC = 2


@dataclass(frozen=True)
class File:
    """The example of RFC 4506, 7."""

    filename: Annotated[bytes, Opaque(255)]
    type: Annotated[
        tuple[FileKind, bytes | None],
        Union(FileKind, {FileKind.TEXT: VOID, FileKind.EXEC: Opaque(255)}, Opaque(255)),
    ]
    owner: Annotated[bytes, Opaque(32)]
    data: Annotated[bytes, Opaque(65535)]


@dataclass(frozen=True)
class Everything:
    number: Uint
    large: Uhyper
    kind: FileKind
    flag: bool
    word: Annotated[bytes, FixedOpaque(5)]
    inner: File | None
    list: Annotated[list[int], LinkedList(UINT)]
    array: Annotated[list[int], Array(UHYPER, 3)]


def packed(item, value) -> bytes:
    encoder = Encoder()
    item.pack(encoder, value)
    return encoder.message().whole()


def unpacked(item, octets: bytes):
    decoder = Decoder(Message(octets))
    value = item.unpack(decoder)
    decoder.done()
    return value


def test_the_example_of_rfc_4506_7():
    file = File(b"sillyprog", (FileKind.EXEC, b"lisp"), b"john", b"(quit)")
    expected = bytes.fromhex(
        "00000009 73696c6c 7970726f 67000000 00000002 00000004 6c697370"
        "00000004 6a6f686e 00000006 28717569 74290000"
    )
    assert packed(Record(File), file) == expected
    assert unpacked(Record(File), expected) == file


FILES = st.builds(
    File,
    st.binary(max_size=255),
    st.one_of(
        st.tuples(st.just(FileKind.TEXT), st.none()),
        st.tuples(st.sampled_from([FileKind.DATA, FileKind.EXEC]), st.binary(max_size=255)),
    ),
    st.binary(max_size=32),
    st.binary(max_size=100),
)
EVERYTHING = st.builds(
    Everything,
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    st.sampled_from(FileKind),
    st.booleans(),
    st.binary(min_size=5, max_size=5),
    st.none() | FILES,
    st.lists(st.integers(0, 2**32 - 1)),
    st.lists(st.integers(0, 2**64 - 1), max_size=3),
)


@given(EVERYTHING)
def test_what_was_packed_is_unpacked(value):
    octets = packed(Record(Everything), value)
    assert len(octets) % 4 == 0
    assert unpacked(Record(Everything), octets) == value


@given(EVERYTHING, st.data())
def test_a_stream_that_ends_early_is_an_error(value, data):
    octets = packed(Record(Everything), value)
    length = data.draw(st.integers(0, len(octets) - 1))
    with pytest.raises(XdrError):
        unpacked(Record(Everything), octets[:length])


@given(st.binary(max_size=300))
def test_any_octets_are_a_value_or_an_xdr_error(octets):
    try:
        value = unpacked(Record(Everything), octets)
    except XdrError:
        return
    assert unpacked(Record(Everything), packed(Record(Everything), value)) == value


@pytest.mark.parametrize(
    ("item", "value"),
    [
        (UINT, -1),
        (UINT, 1 << 32),
        (UHYPER, -1),
        (UHYPER, 1 << 64),
        (Opaque(4), b"12345"),
        (FixedOpaque(4), b"123"),
        (BulkOpaque(4), memoryview(b"12345")),
        (Array(UINT, 2), [1, 2, 3]),
        (Union(FileKind, {FileKind.TEXT: VOID}), (FileKind.DATA, None)),
        (VOID, 0),
        (Record(File), None),
    ],
)
def test_values_that_are_none_of_the_type_are_errors(item, value):
    with pytest.raises(XdrError, match="allowed"):
        packed(item, value)


@pytest.mark.parametrize(
    ("item", "octets"),
    [
        (BOOL, "00000002"),
        (Maybe(UINT), "00000002 00000001"),
        (LinkedList(UINT), "00000001 00000001 00000002"),
        (Enumeration(FileKind), "00000003"),
        (Opaque(4), "00000005 00000000 00000000"),
        (Opaque(), "ffffffff 00000000"),
        (Array(UINT, 1 << 31), "7fffffff 00000000"),
        (BulkOpaque(4), "00000005 00000000 00000000"),
        (UINT, "00000001 00000002"),
        (VOID, "00000001"),
    ],
)
def test_octets_that_are_none_of_the_type_are_errors(item, octets):
    with pytest.raises(XdrError):
        unpacked(item, bytes.fromhex(octets))


def test_limits_of_a_type_hold_for_its_largest_value():
    file = File(bytes(255), (FileKind.EXEC, bytes(255)), bytes(32), bytes(65535))
    assert len(packed(Record(File), file)) == Record(File).octets
    data = BulkOpaque(1000)
    assert len(packed(data, memoryview(bytes(1000)))) == data.octets + data.bulk_octets


def test_annotation_without_a_type_is_an_error():
    with pytest.raises(TypeError, match="says no type of XDR"):
        xdr_type(int)


@dataclass(frozen=True)
class Write:
    offset: Uhyper
    data: Annotated[memoryview, BulkOpaque(64)]
    last: Uint


def reduced(data: bytes) -> Message:
    encoder = Encoder()
    Record(Write).pack(encoder, Write(1, memoryview(data), 2))
    return encoder.message()


def write_of(message: Message, into=()) -> Write:
    decoder = Decoder(message, into)
    write = Record(Write).unpack(decoder)
    decoder.done()
    return write


@pytest.mark.requirement("RPCRDMA-3.4-07")
def test_only_the_count_of_a_bulk_item_stays_in_the_stream():
    message = reduced(b"abcde")
    assert message.stream == bytes.fromhex("00000000 00000001 00000005 00000002")
    (bulk,) = message.bulks
    assert (bulk.position, bytes(bulk.data)) == (12, b"abcde")
    assert message.whole() == bytes.fromhex("00000000 00000001 00000005 6162636465000000 00000002")
    assert write_of(message) == write_of(Message(message.whole())) == Write(1, bulk.data, 2)


def test_positions_count_what_was_taken_out_before():
    encoder = Encoder()
    for data in (b"abcde", b"", b"xyz"):
        BulkOpaque(8).pack(encoder, memoryview(data))
    message = encoder.message()
    assert [bulk.position for bulk in message.bulks] == [4, 20]
    decoder = Decoder(message)
    assert [bytes(BulkOpaque(8).unpack(decoder)) for _ in range(3)] == [b"abcde", b"", b"xyz"]
    decoder.done()


@pytest.mark.requirement("RPCRDMA-3.7-01")
def test_chunk_may_hold_the_roundup():
    message = reduced(b"abcde")
    padded = Message(message.stream, (Bulk(12, memoryview(b"abcde\0\0\0")),))
    assert bytes(write_of(padded).data) == b"abcde"


@pytest.mark.requirement("RPCRDMA-3.4-06")
@pytest.mark.parametrize("octets", [0, 4, 6, 7, 9])
def test_count_that_differs_from_its_chunk_is_an_error(octets):
    stream = reduced(b"abcde").stream
    with pytest.raises(XdrError, match="chunk"):
        write_of(Message(stream, (Bulk(12, memoryview(bytes(octets))),)))


@pytest.mark.parametrize("position", [0, 4, 8, 16, 20, 24])
def test_chunk_where_no_bulk_item_begins_is_an_error(position):
    message = Message(reduced(b"abcde").stream, (Bulk(position, memoryview(bytes(5))),))
    with pytest.raises(XdrError):
        write_of(message)


def test_placed_item_is_the_start_of_its_buffer():
    buffer = memoryview(bytearray(b"abcdefgh"))
    stream = reduced(b"abcde").stream
    write = write_of(Message(stream, (Bulk(PLACED, buffer[:5]),)), [buffer])
    assert (bytes(write.data), write.last) == (b"abcde", 2)
    write.data[0] = ord("X")
    assert buffer[0] == ord("X")


@pytest.mark.requirement("RFC8166-6.1-06")
def test_item_that_came_inline_is_copied_into_its_buffer_unless_it_had_a_chunk():
    buffer = memoryview(bytearray(8))
    whole = reduced(b"abcde").whole()
    write = write_of(Message(whole), [buffer])
    assert bytes(write.data) == b"abcde"
    assert bytes(buffer) == b"abcde\0\0\0"
    unused = (Bulk(PLACED, buffer[:0]),)
    with pytest.raises(
        MisplacedItem, match="of 5 bytes in the stream; allowed: in its write chunk of 8"
    ):
        write_of(Message(whole, unused), [buffer])
    # An empty buffer has an empty chunk, which asks for this.
    assert bytes(write_of(Message(whole, unused), [buffer[:0]]).data) == b"abcde"


def test_item_longer_than_its_buffer_is_an_error():
    with pytest.raises(XdrError, match="allowed: 4, its buffer"):
        write_of(Message(reduced(b"abcde").whole()), [memoryview(bytearray(4))])


def test_placed_octets_that_belong_to_no_item_are_an_error():
    buffer = memoryview(bytearray(8))
    decoder = Decoder(Message(bytes(4), (Bulk(PLACED, buffer[:5]),)), [buffer])
    UINT.unpack(decoder)
    with pytest.raises(XdrError, match="belongs to no item"):
        decoder.done()
