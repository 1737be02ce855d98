"""MPA startup frames of the reference model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecoach.sim.model.mpa import EnhancedData, MpaError, StartupFrame, negotiate

DEPTH = st.integers(0, 0x3FFF)
ENHANCED = st.builds(
    EnhancedData, DEPTH, DEPTH, st.booleans(), st.booleans(), st.booleans(), st.booleans()
)
FRAMES = st.builds(
    StartupFrame,
    reply=st.booleans(),
    markers=st.booleans(),
    crc=st.booleans(),
    reject=st.booleans(),
    revision=st.just(2),
    private_data=st.binary(max_size=508),
    enhanced=st.none() | ENHANCED,
)


def test_request_of_the_wireshark_wiki():
    # The octets of frame 4 of the Wireshark wiki page iWARP-MPA.
    octets = bytes.fromhex("4d504120494420526571204672616d65 00 01 0007 61637469766500")
    frame = StartupFrame(reply=False, crc=False, revision=1, private_data=b"active\0")
    assert frame.encode() == octets
    assert StartupFrame.decode(octets) == frame


def test_enhanced_data_bits_are_those_of_rfc6581():
    enhanced = EnhancedData(ird=1, ord=0x3FFF, peer_to_peer=True, rtr_read=True)
    assert enhanced.encode() == bytes.fromhex("8001 7fff")
    frame = StartupFrame(reply=True, markers=True, reject=True, enhanced=enhanced)
    assert frame.encode() == b"MPA ID Rep Frame" + bytes.fromhex("f0 02 0004 8001 7fff")


@given(FRAMES, st.binary(max_size=8))
def test_what_is_encoded_is_decoded(frame, behind):
    octets = frame.encode()
    assert StartupFrame.parse(octets + behind) == (frame, len(octets))
    for end in range(len(octets)):
        assert StartupFrame.parse(octets[:end]) is None


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (b"GET / HTTP/1.1\r\n", "key"),
        (b"MPA ID Rex", "key"),
        (b"MPA ID Req Frame\x00\x00\x00\x00", "revision 0"),
        (b"MPA ID Req Frame\x00\x03\x00\x00", "revision 3"),
        (b"MPA ID Req Frame\x00\x01\x02\x01", "PD_Length 513"),
        (b"MPA ID Req Frame\x10\x02\x00\x03", "PD_Length 3"),
    ],
)
def test_invalid_frames_are_code_4(octets, reason):
    with pytest.raises(MpaError, match=reason) as caught:
        StartupFrame.parse(octets)
    assert caught.value.code == 4


def test_s_bit_of_revision_1_is_reserved():
    frame = StartupFrame.decode(b"MPA ID Req Frame\x10\x01\x00\x04abcd")
    assert frame.enhanced is None
    assert frame.private_data == b"abcd"


@pytest.mark.parametrize("request_crc", [False, True])
@pytest.mark.parametrize("reply_crc", [False, True])
def test_one_side_turns_crc_on_and_markers_are_per_direction(request_crc, reply_crc):
    request = StartupFrame(reply=False, markers=True, crc=request_crc)
    settled = negotiate(request, StartupFrame(reply=True, markers=False, crc=reply_crc))
    assert settled.crc == (request_crc or reply_crc)
    assert settled.responder_sends_markers
    assert not settled.initiator_sends_markers
