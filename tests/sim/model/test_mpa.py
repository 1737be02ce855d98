"""FPDUs, Markers and sizes of the reference model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecoach.sim.model import errors, mpa
from stagecoach.sim.model.mpa import Deframer, Framer, MpaError, frame_fpdu
from tests.sim.model.vectors import vector, vectors

ULPDUS = st.lists(st.binary(min_size=1, max_size=1600), min_size=1, max_size=6)


# Figure 6 stands in the middle of a stream whose start is not printed: it has its own test.
WHOLE_STREAMS = [entry for entry in vectors("fpdu") if entry.values[0]["ulpdus_hex"] is not None]


@pytest.mark.parametrize("entry", WHOLE_STREAMS)
def test_vectors_are_sent_and_received(entry):
    ulpdus = [bytes.fromhex(ulpdu) for ulpdu in entry["ulpdus_hex"]]
    stream = bytes.fromhex(entry["stream_hex"])
    framer = Framer(entry["markers"], entry["crc_on"])
    assert b"".join(map(framer.frame, ulpdus)) == stream
    assert list(Deframer(entry["markers"], entry["crc_on"]).feed(stream)) == ulpdus


@pytest.mark.parametrize("entry", vectors("mulpdu"))
def test_mulpdu(entry):
    assert mpa.mulpdu(entry["emss"], markers=True) == entry["markers"]
    assert mpa.mulpdu(entry["emss"], markers=False) == entry["no_markers"]


def test_rfc5044_figure_5_first_fpdu_starts_with_marker():
    printed = bytes.fromhex(
        "00000000 002a4143 00000000 00000000 00000001 00000000"
        "00000000 00000000 00000000 00000000 00000000 00000000 52239983"
    )
    ulpdu = bytes.fromhex("4143 00000000 00000000 00000001 00000000") + bytes(24)
    assert Framer(markers=True).frame(ulpdu) == printed
    assert list(Deframer(markers=True).feed(printed)) == [ulpdu]


def test_rfc5044_figure_6_marker_inside_second_fpdu():
    # The figure: stream octets 0x1EC to 0x21F, Marker at 0x200 with FPDUPTR 0x14.
    ulpdu = bytes.fromhex("4143 00000000 00000000 00000002 00000000") + bytes(24)
    printed = bytes.fromhex(vector("fpdu", "RFC 5044 Figure 6")["stream_hex"])
    framer = Framer(markers=True)
    first = framer.frame(bytes(482))
    assert len(first) == framer.position == 0x1EC
    second = framer.frame(ulpdu)
    assert second == printed
    assert second[0x14:0x18] == bytes.fromhex("0000 0014")
    assert list(Deframer(markers=True).feed(first + second)) == [bytes(482), ulpdu]


@given(ULPDUS, st.booleans(), st.booleans(), st.data())
def test_any_chunks_give_the_ulpdus_back(ulpdus, markers, crc, data):
    framer = Framer(markers, crc)
    stream = b"".join(map(framer.frame, ulpdus))
    deframer = Deframer(markers, crc)
    received = []
    while stream:
        count = data.draw(st.integers(1, len(stream)))
        received += deframer.feed(stream[:count])
        stream = stream[count:]
    assert received == ulpdus
    assert deframer.pending == 0
    assert deframer.position == framer.position


@given(ULPDUS)
def test_markers_stand_every_512_octets_and_point_to_their_fpdu(ulpdus):
    framer = Framer(markers=True)
    fpdus = [framer.frame(ulpdu) for ulpdu in ulpdus]
    starts, position = [], 0
    for ulpdu, fpdu in zip(ulpdus, fpdus, strict=True):
        assert len(fpdu) == mpa.fpdu_length(len(ulpdu), markers=True, position=position)
        starts.append(position + (4 if position % 512 == 0 else 0))
        position += len(fpdu)
    stream = b"".join(fpdus)
    for marker in range(0, len(stream), 512):
        owner = [start for start in starts if start <= marker]
        # A Marker in front of an FPDU belongs to it and points to itself.
        expected = 0 if marker + 4 in starts else marker - owner[-1]
        assert stream[marker : marker + 4] == b"\0\0" + expected.to_bytes(2, "big")


@given(ULPDUS, st.booleans(), st.data())
def test_a_flipped_bit_ends_the_stream_before_its_fpdu(ulpdus, markers, data):
    framer = Framer(markers)
    fpdus = [framer.frame(ulpdu) for ulpdu in ulpdus]
    # Flips in a length field may ask for octets that never come: those are tested below.
    victim = data.draw(st.integers(0, len(fpdus) - 1))
    bit = data.draw(st.integers(8 * 6, 8 * len(fpdus[victim]) - 1))
    broken = bytearray(fpdus[victim])
    broken[bit // 8] ^= 1 << bit % 8
    fpdus[victim] = bytes(broken)
    deframer = Deframer(markers)
    received = []
    with pytest.raises(MpaError) as caught:
        for ulpdu in deframer.feed(b"".join(fpdus)):
            received.append(ulpdu)
    assert caught.value.code == 2
    assert received == ulpdus[:victim]
    assert list(deframer.feed(b"more")) == []


def test_wrong_length_field_never_delivers():
    fpdu = bytearray(frame_fpdu(bytes(range(40))))
    fpdu[1] ^= 0x04
    deframer = Deframer()
    with pytest.raises(MpaError):
        list(deframer.feed(bytes(fpdu) + frame_fpdu(bytes(40))))


def with_marker(pointer: int) -> bytes:
    """The first FPDU of a stream, its CRC right for the given FPDUPTR."""
    covered = b"\0\0" + pointer.to_bytes(2, "big") + b"\0\x0e" + bytes(14)
    return covered + mpa.crc32c_octets(covered)


def test_wrong_fpduptr_with_good_crc_is_code_3():
    with pytest.raises(MpaError) as caught:
        list(Deframer(markers=True).feed(with_marker(8)))
    assert caught.value.error == errors.MPA_MARKER_MISMATCH


def test_low_bits_of_fpduptr_count_as_zero():
    # RFC 5044, 4.2, erratum 1427: they are zero for the pointer, but as received for the CRC.
    assert list(Deframer(markers=True).feed(with_marker(3))) == [bytes(14)]


def test_crc_field_is_not_looked_at_when_crc_is_off():
    fpdu = frame_fpdu(b"abcd", crc=False)
    assert fpdu[-4:] == bytes(4)
    assert list(Deframer(crc=False).feed(fpdu[:-4] + b"\xff" * 4)) == [b"abcd"]


@pytest.mark.parametrize("length", [0, 65536])
def test_impossible_ulpdu_length_is_refused(length):
    with pytest.raises(ValueError, match=f"ULPDU of {length} bytes; 1 to 65535"):
        frame_fpdu(bytes(length))
