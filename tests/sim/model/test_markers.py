"""Markers (RFC 5044, 4.2 and 4.3): where they stand, what they say, how they are checked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecoach.sim.model import errors, mpa
from stagecoach.sim.model.crc32c import crc32c_octets
from stagecoach.sim.model.endpoint import Endpoint
from stagecoach.sim.model.markers import insert_markers, remove_markers
from stagecoach.sim.model.mpa import (
    Deframer,
    Framer,
    MpaError,
    frame_fpdu,
    needed_octets,
    parse_fpdu,
)

ZEROS = bytes(18)


def with_good_crc(fpdu: bytes | bytearray) -> bytes:
    return bytes(fpdu[:-4]) + crc32c_octets(fpdu[:-4])


def error_of(stream: bytes, position: int = 0, crc: bool = True) -> errors.ErrorCode:
    with pytest.raises(MpaError) as caught:
        list(Deframer(markers=True, crc=crc, position=position).feed(stream))
    return caught.value.error


def test_rfc5044_figure_4_marker_behind_octet_9_of_the_ulpdu():
    ulpdu = bytes(range(16))
    # The Marker is 12 octets after the ULPDU_Length field; two octets of PAD.
    printed = b"\0\x10" + ulpdu[:10] + b"\0\0\0\x0c" + ulpdu[10:] + bytes(2)
    fpdu = frame_fpdu(ulpdu, markers=True, position=512 - 12)
    assert fpdu == printed + crc32c_octets(printed)
    parsed = parse_fpdu(fpdu, markers=True, position=512 - 12)
    assert (parsed.ulpdu, parsed.pad) == (ulpdu, bytes(2))
    assert [(m.offset, m.fpduptr, m.distance) for m in parsed.markers] == [(12, 12, 12)]


def test_rfc5044_example_of_sequence_numbers():
    # 4.3: MPA started at sequence number 11 has Markers at 11, 523 and 1035.
    framer = Framer(markers=True)
    stream = b"".join(framer.frame(bytes([0xFF]) * 100) for _ in range(10))
    found = []
    position = 0
    while position < len(stream):
        octets = needed_octets(stream[position:], markers=True, position=position)
        fpdu = parse_fpdu(stream[position : position + octets], markers=True, position=position)
        found += [11 + position + marker.offset for marker in fpdu.markers]
        position += octets
    assert found == [11, 523, 1035]


@pytest.mark.parametrize(
    ("ulpdu_octets", "position", "offsets", "pointers"),
    [
        pytest.param(18, 0, [0], [0], id="before the first FPDU"),
        pytest.param(18, 1024, [0], [0], id="between two FPDUs"),
        pytest.param(18, 4, [], [], id="none due"),
        pytest.param(18, 512 - 4, [4], [4], id="in the DDP header"),
        pytest.param(100, 512 - 52, [52], [52], id="in the payload"),
        pytest.param(18, 512 - 20, [20], [20], id="between PAD and CRC"),
        pytest.param(18, 512 - 24, [], [], id="after the CRC belongs to the next FPDU"),
        pytest.param(1418, 0, [0, 512, 1024], [0, 508, 1020], id="three, the first leading"),
        pytest.param(1418, 8, [504, 1016], [504, 1016], id="two, none leading"),
        pytest.param(1430, 100, [412, 924, 1436], [412, 924, 1436], id="three inside"),
        pytest.param(64768, 4, [*range(508, 65276, 512)], [*range(508, 65276, 512)], id="127"),
    ],
)
def test_markers_of_one_fpdu(ulpdu_octets, position, offsets, pointers):
    ulpdu = bytes(i * 7 % 256 for i in range(ulpdu_octets))
    fpdu = frame_fpdu(ulpdu, markers=True, position=position)
    assert len(fpdu) % 4 == 0
    assert len(fpdu) == mpa.fpdu_length(ulpdu_octets, markers=True, position=position)
    assert needed_octets(fpdu, markers=True, position=position) == len(fpdu)
    parsed = parse_fpdu(fpdu, markers=True, position=position)
    assert parsed.ulpdu == ulpdu
    assert [marker.offset for marker in parsed.markers] == offsets
    assert [marker.fpduptr for marker in parsed.markers] == pointers
    assert list(parsed.failures(crc=True)) == []
    # Every Marker is covered by the CRC: all of the FPDU in front of it is.
    assert parsed.crc == crc32c_octets(fpdu[:-4])


@given(st.binary(max_size=2000), st.integers(0, 2000))
def test_removal_undoes_insertion(octets, words):
    # What stands in front of a CRC is a multiple of four octets long and starts at one.
    body = octets[: len(octets) // 4 * 4]
    covered = insert_markers(body, 4 * words)
    found, markers = remove_markers(covered, 4 * words)
    assert found == body
    assert len(covered) == len(body) + 4 * len(markers)
    assert all(marker.matches and marker.reserved == 0 for marker in markers)


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("wrong", [4, 1024, 0xFFFC])
def test_any_wrong_fpduptr_with_good_crc_is_code_3(number, wrong):
    fpdu = bytearray(frame_fpdu(bytes(1418), markers=True))
    offset = 512 * number
    assert fpdu[offset + 2 : offset + 4] != wrong.to_bytes(2, "big")
    fpdu[offset + 2 : offset + 4] = wrong.to_bytes(2, "big")
    # Without the CRC it is the CRC which is wrong: checked first (RFC 5044, 8).
    assert error_of(fpdu) == errors.MPA_CRC
    assert error_of(with_good_crc(fpdu)) == errors.MPA_MARKER_MISMATCH
    assert error_of(fpdu, crc=False) == errors.MPA_MARKER_MISMATCH


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_reserved_octets_and_low_bits_are_ignored_but_for_the_crc(bits):
    fpdu = bytearray(frame_fpdu(bytes(600), markers=True))
    for offset in (0, 512):
        fpdu[offset : offset + 2] = b"\xa5\x5a"
        fpdu[offset + 3] |= bits
    assert error_of(fpdu) == errors.MPA_CRC
    assert list(Deframer(markers=True).feed(with_good_crc(fpdu))) == [bytes(600)]


def test_markers_that_are_not_there_are_an_error():
    # A sender that puts none in: the first four octets of its FPDU are taken for a Marker.
    stream = frame_fpdu(bytes(18)) * 30
    assert error_of(stream).layer == 2


def test_markers_that_nobody_asked_for_are_an_error():
    framer = Framer(markers=True)
    stream = b"".join(framer.frame(bytes(18)) for _ in range(30))
    deframer = Deframer(markers=False)
    with pytest.raises(MpaError):
        list(deframer.feed(stream))


@pytest.mark.parametrize("crc", [False, True])
def test_ulpdu_length_above_64768_is_an_error_at_once(crc):
    for length in (64769, 65535):
        assert error_of(b"\0\0\0\0" + length.to_bytes(2, "big"), crc=crc) == errors.MPA_CRC
    longest = frame_fpdu(bytes(64768), markers=True)
    assert list(Deframer(markers=True).feed(longest)) == [bytes(64768)]


@pytest.mark.parametrize("to_responder", [False, True])
@pytest.mark.parametrize("to_initiator", [False, True])
def test_each_direction_has_markers_of_its_own(to_responder, to_initiator):
    initiator = Endpoint(markers_out=to_responder, markers_in=to_initiator)
    responder = Endpoint(markers_out=to_initiator, markers_in=to_responder, responder=True)
    streams = [bytearray(), bytearray()]
    for number in range(4):
        for end, other, stream in (
            (initiator, responder, streams[0]),
            (responder, initiator, streams[1]),
        ):
            other.post_receive(700)
            end.post_send(bytes([number]) * 700)
            stream += (octets := b"".join(end.take_output()))
            other.receive(octets)
    for end, stream, marked in (
        (responder, streams[0], to_responder),
        (initiator, streams[1], to_initiator),
    ):
        assert end.error is None, end.error_detail
        assert [c.payload[:1] for c in end.poll() if c.payload] == [b"\0", b"\1", b"\2", b"\3"]
        plain = 4 * len(frame_fpdu(ZEROS + bytes(700)))
        assert len(stream) == plain + (4 * -(-plain // 508) if marked else 0)


@given(st.integers(100, 65600))
def test_an_fpdu_of_mulpdu_octets_fits_the_emss(emss):
    for markers in (False, True):
        size = mpa.mulpdu(emss, markers)
        assert 128 <= size <= 64768
        if emss < 160:
            continue
        for position in (0, 4, 508):
            length = mpa.fpdu_length(size, markers=markers, position=position)
            assert length <= emss
