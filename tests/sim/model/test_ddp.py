"""DDP headers and segmentation of the reference model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecoach.sim.model import ddp, errors
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader

U8, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (8, 32, 64))
VERSION, RESERVED = st.integers(0, 3), st.integers(0, 15).map(lambda value: value << 2)
TAGGED = st.builds(TaggedHeader, U32, U64, st.booleans(), U8, VERSION, RESERVED)
UNTAGGED = st.builds(UntaggedHeader, U32, U32, U32, st.booleans(), U8, U32, VERSION, RESERVED)


@given(TAGGED | UNTAGGED, st.binary(max_size=20))
def test_headers_are_decoded_as_encoded(header, payload):
    assert ddp.decode(header.encode() + payload) == (header, payload)


def test_header_octets_are_in_place():
    tagged = TaggedHeader(stag=0x01020304, tagged_offset=0x1112131415161718, rsvd_ulp=0x40)
    assert tagged.encode().hex() == "c140" + "01020304" + "1112131415161718"
    untagged = UntaggedHeader(1, 0x0A0B0C0D, 0x10, last=False, rsvd_ulp=0x43, rsvd_ulp_word=0xFEED)
    assert untagged.encode().hex() == "0143" + "0000feed" + "00000001" + "0a0b0c0d" + "00000010"


def test_rfc5041_untagged_example():
    # RFC 5041, 5.2: 2048 octets with MULPDU 1500.
    segments = ddp.segment_untagged(bytes(2048), qn=0, msn=1, mulpdu=1500)
    parts = [
        (header.mo, len(payload), header.last) for header, payload in map(ddp.decode, segments)
    ]
    assert parts == [(0, 1482, False), (1482, 566, True)]


def test_rfc5041_tagged_example():
    # RFC 5041, 5.2: 2048 octets at TO 16384 with MULPDU 1500.
    segments = ddp.segment_tagged(bytes(2048), stag=1, tagged_offset=16384, mulpdu=1500)
    decoded = map(ddp.decode, segments)
    parts = [(header.tagged_offset, len(payload), header.last) for header, payload in decoded]
    assert parts == [(16384, 1486, False), (17870, 562, True)]


@given(st.binary(max_size=2000), st.integers(128, 1500))
def test_segments_join_to_the_message_and_obey_mulpdu(payload, mulpdu):
    for segments in (
        ddp.segment_tagged(payload, stag=5, tagged_offset=77, mulpdu=mulpdu),
        ddp.segment_untagged(payload, qn=0, msn=1, mulpdu=mulpdu),
    ):
        decoded = [ddp.decode(segment) for segment in segments]
        assert b"".join(part for _, part in decoded) == payload
        assert all(len(segment) == mulpdu for segment in segments[:-1])
        assert len(segments[-1]) <= mulpdu
        assert [header.last for header, _ in decoded] == [False] * (len(segments) - 1) + [True]


@pytest.mark.parametrize("segment", [b"", b"\xc1" + bytes(12), b"\x41" + bytes(16)])
def test_segment_shorter_than_its_header_is_an_mpa_error(segment):
    with pytest.raises(errors.StreamError) as caught:
        ddp.decode(segment)
    assert caught.value.error == errors.MPA_MARKER_MISMATCH
