"""The header codec: vectors, all procedures, and whatever octets a peer may send."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecoach.sim.model import rpcrdma
from stagecoach.ulp.rpcrdma.chunks import ChunkLists, ReadSegment, Segment
from stagecoach.ulp.rpcrdma.errors import ErrorCode, HeaderError
from stagecoach.ulp.rpcrdma.header import VERSION, Fault, Header, Padding, Procedure, decode_header
from tests.ulp.rpcrdma.strategies import headers

XID, CREDITS = 0x11223344, 32
RPC = bytes.fromhex("11223344 00000000")
"""The start of an RPC call; the header does not look past the XID."""

SEGMENT = Segment(0xAABBCCDD, 4096, 0x10000)
SECOND = Segment(0x01020304, 8, 2**40)
H_L_OO = "aabbccdd 00001000 00000000 00010000"
H_L_OO_2 = "01020304 00000008 00000100 00000000"

LARGEST = Segment(2**32 - 1, 2**32 - 1, 2**64 - 1)
ONES = "ffffffff ffffffff ffffffff ffffffff"


def header(procedure: Procedure = Procedure.RDMA_MSG, lists=None, **fields) -> Header:
    return Header(XID, CREDITS, procedure, lists or ChunkLists(), **fields)


VECTORS = [
    ("no chunks", header(), "00000000 00000000 00000000"),
    (
        "read segment",
        header(lists=ChunkLists(reads=(ReadSegment(0x74, SEGMENT),))),
        f"00000001 00000074 {H_L_OO} 00000000 00000000 00000000",
    ),
    (
        "read chunk of three segments (RFC 8166, 4.7)",
        header(lists=ChunkLists(reads=(ReadSegment(0x74, SEGMENT),) * 3)),
        f"{f'00000001 00000074 {H_L_OO} ' * 3} 00000000 00000000 00000000",
    ),
    (
        "write chunk of two segments",
        header(lists=ChunkLists(writes=((SEGMENT, SECOND),))),
        f"00000000 00000001 00000002 {H_L_OO} {H_L_OO_2} 00000000 00000000",
    ),
    (
        "write chunks of three and two segments (RFC 8166, 4.7)",
        header(lists=ChunkLists(writes=((SEGMENT,) * 3, (SECOND,) * 2))),
        f"00000000 00000001 00000003 {H_L_OO * 3} 00000001 00000002 {H_L_OO_2 * 2} 00000000"
        " 00000000",
    ),
    (
        "empty write chunk (RFC 8166, 3.4.6)",
        header(lists=ChunkLists(writes=((),))),
        "00000000 00000001 00000000 00000000 00000000",
    ),
    (
        "reply chunk",
        header(Procedure.RDMA_NOMSG, ChunkLists(reply=(SEGMENT,))),
        f"00000000 00000000 00000001 00000001 {H_L_OO}",
    ),
    (
        "reply chunk of two segments (RFC 8166, 4.7)",
        header(Procedure.RDMA_NOMSG, ChunkLists(reply=(SEGMENT, SECOND))),
        f"00000000 00000000 00000001 00000002 {H_L_OO} {H_L_OO_2}",
    ),
    (
        "padding",
        header(Procedure.RDMA_MSGP, padding=Padding(4096, 512)),
        "00001000 00000200 00000000 00000000 00000000",
    ),
    (
        "all bits of all fields",
        Header(
            2**32 - 1,
            2**32 - 1,
            lists=ChunkLists(
                reads=(ReadSegment(2**32 - 1, LARGEST),), writes=((LARGEST,),), reply=(LARGEST,)
            ),
        ),
        f"{f'00000001 ffffffff {ONES}'} 00000000 00000001 00000001 {ONES} 00000000"
        f" 00000001 00000001 {ONES}",
    ),
    ("done", header(Procedure.RDMA_DONE), ""),
    (
        "ERR_VERS",
        header(Procedure.RDMA_ERROR, fault=Fault(ErrorCode.ERR_VERS, 1, 1)),
        "00000001 00000001 00000001",
    ),
    ("ERR_CHUNK", header(Procedure.RDMA_ERROR, fault=Fault(ErrorCode.ERR_CHUNK)), "00000002"),
]


def message(of: Header) -> bytes:
    """What the header is followed by."""
    return RPC if of.procedure in (Procedure.RDMA_MSG, Procedure.RDMA_MSGP) else b""


PROCEDURES = {"RDMA_MSG": 0, "RDMA_NOMSG": 1, "RDMA_MSGP": 2, "RDMA_DONE": 3, "RDMA_ERROR": 4}
"""rdma_proc (RFC 8166, 4.1.2)."""

OF_THE_RFC = pytest.mark.requirement(
    *("RFC8166-4-01", "RFC8166-4.1.2-01", "RFC8166-4.2.2-01", "RFC8166-2.3.2-01"),
)


def octets_of(vector: Header, rest: str) -> bytes:
    """The octets of a vector: the fixed words, and what it has after them."""
    fixed = f"{vector.xid:08x} 00000001 {vector.credits:08x}"
    return bytes.fromhex(f"{fixed} {PROCEDURES[vector.procedure.name]:08x} {rest}")


@OF_THE_RFC
@pytest.mark.requirement("RPCRDMA-4.1-05", "RPCRDMA-4.1-07", "RPCRDMA-4.1-08", "RPCRDMA-4.1-01")
@pytest.mark.parametrize(("_", "expected", "rest"), VECTORS, ids=[each[0] for each in VECTORS])
def test_vectors(_: str, expected: Header, rest: str):
    octets = octets_of(expected, rest)
    assert expected.encode() == octets
    assert decode_header(octets + message(expected)) == (expected, len(octets))


@OF_THE_RFC
@pytest.mark.parametrize(("_", "expected", "rest"), VECTORS, ids=[each[0] for each in VECTORS])
def test_the_decoder_of_captures_reads_the_vectors(_: str, expected: Header, rest: str):
    found = rpcrdma.parse(octets_of(expected, rest) + message(expected))
    assert (found.xid, found.version, found.credits) == (expected.xid, 1, expected.credits)
    assert (found.procedure.name, found.message) == (expected.procedure.name, message(expected))
    reads = [(each.position, each.handle, each.length, each.offset) for each in found.reads]
    lists = expected.lists
    assert reads == [
        (each.position, each.target.handle, each.target.length, each.target.offset)
        for each in lists.reads
    ]
    chunks = [*found.writes, *([] if found.reply is None else [found.reply])]
    assert [[(each.handle, each.length, each.offset) for each in chunk] for chunk in chunks] == [
        [(each.handle, each.length, each.offset) for each in chunk]
        for chunk in (*lists.writes, *([] if lists.reply is None else [lists.reply]))
    ]
    fault, padding = expected.fault, expected.padding
    versions = (fault.low, fault.high) if fault and fault.code is ErrorCode.ERR_VERS else None
    assert (found.error, found.versions) == (fault and fault.code, versions)
    assert (found.align, found.threshold) == (
        (padding.align, padding.threshold) if padding else (None, None)
    )


@OF_THE_RFC
def test_codes_are_those_of_the_rfc():
    errors = {"ERR_VERS": 1, "ERR_CHUNK": 2}
    assert {each.name: each.value for each in Procedure} == PROCEDURES
    assert {each.name: each.value for each in rpcrdma.Procedure} == PROCEDURES
    assert {each.name: each.value for each in ErrorCode} == errors
    assert {name: code for code, name in rpcrdma.ERROR_NAMES.items()} == errors
    assert VERSION == rpcrdma.VERSION == 1


@pytest.mark.requirement("RFC8166-2.3.2-01")
@pytest.mark.parametrize(
    "segment", [Segment(2**32, 1, 0), Segment(1, 2**32, 0), Segment(1, 1, 2**64)]
)
def test_more_bits_than_a_segment_has_are_not_encoded(segment: Segment):
    with pytest.raises(OverflowError):
        segment.encode()


@given(headers)
def test_encoded_headers_decode_to_themselves(each: Header):
    octets = each.encode()
    assert len(octets) == len(octets) // 4 * 4
    assert decode_header(octets + message(each)) == (each, len(octets))
    if each.procedure is Procedure.RDMA_MSG:
        assert each.lists.octets == len(octets) - 16


@pytest.mark.requirement("RPCRDMA-4.1-01", "RPCRDMA-4.2-01")
@given(headers, st.data())
def test_headers_cut_anywhere_are_refused(each: Header, data):
    octets = each.encode()
    cut = data.draw(st.integers(0, len(octets) - 1))
    with pytest.raises(HeaderError) as caught:
        decode_header(octets[:cut])
    # Of a short one not even the XID is trusted (RFC 8166, 4.5).
    assert caught.value.answer is (ErrorCode.ERR_CHUNK if cut >= 28 else None)
    assert caught.value.xid == (each.xid if cut >= 28 else None)


@pytest.mark.requirement("RPCRDMA-4.2-01")
@given(st.binary(max_size=256))
def test_any_octets_decode_or_raise_the_one_exception(octets: bytes):
    try:
        found, end = decode_header(octets)
    except HeaderError:
        return
    assert found.encode() == octets[:end]


@pytest.mark.requirement("RPCRDMA-4.2-01")
@given(
    st.sampled_from([0, 1, 2, 3, 4]),
    st.lists(st.sampled_from([0, 1, 2, 3, 2**31, 2**32 - 1]), max_size=60),
)
def test_any_list_words_decode_or_raise_the_one_exception(procedure: int, rest: list[int]):
    octets = b"".join(word.to_bytes(4) for word in (XID, 1, CREDITS, procedure, *rest))
    try:
        found, end = decode_header(octets)
    except HeaderError as error:
        # RDMA_DONE and RDMA_ERROR are not answered (RFC 8166, 4.2.4, 4.5 and 4.6.2).
        answered = len(octets) >= 28 and procedure < 3
        assert error.answer is (ErrorCode.ERR_CHUNK if answered else None)
        return
    assert found.encode() == octets[:end]


@pytest.mark.requirement("RPCRDMA-4.1-02")
@pytest.mark.parametrize(
    "each",
    [each for _, each, _ in VECTORS if not message(each)],
    ids=lambda each: each.procedure.name,
)
def test_nothing_follows_what_has_no_rpc_message(each: Header):
    octets = each.encode() + bytes(4)
    with pytest.raises(HeaderError, match="4 bytes after RDMA_"):
        decode_header(octets)


@pytest.mark.requirement("RPCRDMA-4.1-09")
@pytest.mark.parametrize("octets", [b"", b"\x11", RPC[:3], RPC + b"\x00"])
def test_an_rpc_message_follows_in_whole_words(octets: bytes):
    with pytest.raises(HeaderError, match="RPC message of"):
        decode_header(header().encode() + octets)


@pytest.mark.requirement("RPCRDMA-4.2-05")
@pytest.mark.parametrize(
    ("rest", "detail"),
    [
        ("00000002 00000000 00000000", "read list begins with 2; allowed: 0, 1"),
        ("00000000 ffffffff 00000000", "write list begins with 4294967295"),
        ("00000000 00000000 00000003", "reply chunk begins with 3"),
        ("00000000 00000001 00000002 00000000", "a chunk of 2 segments; allowed: 0 to 0"),
        ("00000000 00000001 ffffffff 00000000", "a chunk of 4294967295 segments"),
        ("00000001 00000074 aabbccdd", "0 bytes from"),
    ],
)
def test_bad_lists_are_answered_with_err_chunk(rest: str, detail: str):
    octets = bytes.fromhex(f"11223344 00000001 00000020 00000000 {rest}")
    with pytest.raises(HeaderError, match=detail) as caught:
        decode_header(octets)
    assert (caught.value.xid, caught.value.answer) == (XID, ErrorCode.ERR_CHUNK)


@pytest.mark.requirement("RPCRDMA-4.2-05")
@pytest.mark.parametrize("procedure", [5, 6, 2**31, 2**32 - 1])
def test_an_unknown_procedure_is_answered_with_err_chunk(procedure: int):
    octets = bytes.fromhex(f"11223344 00000001 00000020 {procedure:08x}") + bytes(12)
    with pytest.raises(HeaderError, match=f"rdma_proc {procedure}; allowed: 0 to 4") as caught:
        decode_header(octets)
    assert caught.value.answer is ErrorCode.ERR_CHUNK


@pytest.mark.requirement("RPCRDMA-4.1-05", "RPCRDMA-4.2-03")
@pytest.mark.parametrize("version", [0, 2, 2**32 - 1])
def test_another_version_is_answered_with_err_vers(version: int):
    octets = bytes.fromhex(f"11223344 {version:08x} 00000020 00000000") + bytes(12)
    with pytest.raises(HeaderError, match=f"version {version}; allowed: 1") as caught:
        decode_header(octets)
    assert (caught.value.xid, caught.value.version) == (XID, version)
    assert caught.value.answer is ErrorCode.ERR_VERS


@pytest.mark.requirement("RPCRDMA-4.2-03")
def test_err_vers_is_read_whatever_its_version():
    octets = bytes.fromhex("11223344 00000002 00000020 00000004 00000001 00000002 00000003")
    found, _ = decode_header(octets)
    assert (found.version, found.fault) == (2, Fault(ErrorCode.ERR_VERS, 2, 3))


def test_an_unknown_error_code_is_refused():
    octets = bytes.fromhex("11223344 00000001 00000020 00000004 00000003") + bytes(32)
    with pytest.raises(HeaderError, match="rdma_err 3; allowed: 1, 2"):
        decode_header(octets)


def test_nomsg_without_a_chunk_is_refused():
    octets = bytes.fromhex("11223344 00000001 00000020 00000001") + bytes(12)
    with pytest.raises(HeaderError, match="RDMA_NOMSG without any chunk"):
        decode_header(octets)


def test_fields_that_the_procedure_has_not_are_not_encoded():
    with pytest.raises(ValueError, match="RDMA_MSGP alone"):
        header(padding=Padding(4, 4)).encode()
    with pytest.raises(ValueError, match="RDMA_ERROR alone"):
        header(Procedure.RDMA_ERROR).encode()
