"""Every check of a receiver alone, and the order of any two of them (sim/model/checks.py)."""

from dataclasses import replace

import pytest

from sim.model import checks, errors, mpa, rdmap
from sim.model.ddp import TaggedHeader, UntaggedHeader
from sim.model.predict import predict
from sim.model.rdmap import Opcode, ReadRequest, Terminate, control_octet
from tests.model.segments import (
    BASE,
    FILL,
    GOOD,
    HIGH,
    OTHER_PD,
    OTHER_STREAM,
    READ_ONLY,
    REGIONS,
    SHARED,
    SINK,
    SIZE,
    STATE,
    TAGGED_HEADER,
    UNKNOWN,
    UNTAGGED_HEADER,
    WRITE,
    WRITE_ONLY,
    Breaks,
    Segment,
    alone,
    assert_fails,
    header,
    pairs,
    payload,
    send,
    source,
    state,
)

RESPONSE = Segment(
    TaggedHeader(SINK, 16, rsvd_ulp=control_octet(Opcode.RDMA_READ_RESPONSE)), b"r" * 64
)
SEND = Segment(send(), b"sent")
INVALIDATE = Segment(send(Opcode.SEND_WITH_INVALIDATE, GOOD), b"sent")
REQUEST = Segment(
    UntaggedHeader(1, 1, rsvd_ulp=control_octet(Opcode.RDMA_READ_REQUEST)),
    ReadRequest(5, 6, 32, GOOD, BASE).encode(),
)
TERMINATE = Segment(
    UntaggedHeader(2, 1, rsvd_ulp=control_octet(Opcode.TERMINATE)),
    Terminate(errors.RDMAP_INVALID_STAG).encode(),
)


NO_ROOM = state(receives=(3,))
# What breaks each check, in their order. Later changes of the same field undo earlier ones:
# `test_the_first_of_two_failing_checks_wins` applies the earlier one last.
BREAKS: Breaks = {
    "Send": (
        INVALIDATE,
        [
            *UNTAGGED_HEADER,
            (checks.MSN, header(msn=2)),
            (checks.RECEIVE_BUFFER, state(receives=())),
            (checks.MO, header(mo=1)),
            (checks.MESSAGE_LENGTH, NO_ROOM),
            (checks.INVALIDATE_VALID, header(rsvd_ulp_word=UNKNOWN)),
            (checks.INVALIDATE_ASSOCIATED, header(rsvd_ulp_word=OTHER_PD)),
            (checks.INVALIDATE_UNSHARED, header(rsvd_ulp_word=SHARED)),
        ],
    ),
    "Read Request": (
        REQUEST,
        [
            *UNTAGGED_HEADER,
            (checks.MSN, header(msn=0)),
            (checks.READ_REQUEST_BUFFER, state(ird=0)),
            (checks.MO, header(mo=28)),
            (checks.MESSAGE_LENGTH, payload(REQUEST.payload + b"\0")),
            (checks.READ_REQUEST_WHOLE, header(last=False)),
            (checks.SOURCE.valid, source(source_stag=UNKNOWN)),
            (checks.SOURCE.associated, source(source_stag=OTHER_STREAM)),
            (checks.SOURCE.rights, source(source_stag=WRITE_ONLY)),
            (checks.SOURCE.wrap, source(source_tagged_offset=2**64 - 4)),
            (checks.SOURCE.bounds, source(source_tagged_offset=BASE + SIZE - 31)),
        ],
    ),
    "Write": (
        WRITE,
        [
            *TAGGED_HEADER,
            (checks.TARGET.valid, header(stag=UNKNOWN)),
            (checks.TARGET.associated, header(stag=OTHER_STREAM)),
            (checks.TARGET.rights, header(stag=READ_ONLY)),
            (checks.TARGET.wrap, header(tagged_offset=2**64 - 4)),
            (checks.TARGET.bounds, header(tagged_offset=BASE + SIZE - 6)),
        ],
    ),
    "Read Response": (
        RESPONSE,
        [
            *TAGGED_HEADER,
            (checks.READ_OUTSTANDING, state(reads=())),
            (checks.RESPONSE_STAG, header(stag=GOOD)),
            (checks.RESPONSE_OFFSET, header(tagged_offset=17)),
            (checks.RESPONSE_LENGTH, payload(b"r" * 65)),
            (checks.TARGET.valid, state(regions=REGIONS[:-1])),
        ],
    ),
    "Terminate": (
        TERMINATE,
        [
            *UNTAGGED_HEADER[:-1],
            (checks.QUEUE_OF_OPCODE, header(qn=0)),
            (checks.MSN, header(msn=2)),
            (checks.MO, header(mo=1)),
            (checks.TERMINATE_WHOLE, payload(TERMINATE.payload[:3])),
        ],
    ),
}


@pytest.mark.parametrize("message", BREAKS)
def test_the_unbroken_segment_is_accepted(message):
    segment, _ = BREAKS[message]
    found = predict(segment.state, mpa.frame_fpdu(segment.ulpdu))
    assert found.error is None, found.failure


@pytest.mark.parametrize(("segment", "check", "change"), alone(BREAKS))
def test_a_check_fails_alone(segment, check, change):
    assert_fails(change(segment), check)


@pytest.mark.parametrize(("segment", "first", "second"), pairs(BREAKS))
def test_the_first_of_two_failing_checks_wins(segment, first, second):
    assert_fails(first[1](second[1](segment)), first[0])


@pytest.mark.parametrize(
    "order",
    [
        checks.HEADER_ORDER,
        checks.SEND_ORDER,
        checks.READ_REQUEST_ORDER,
        checks.TERMINATE_ORDER,
        checks.WRITE_ORDER,
        checks.READ_RESPONSE_ORDER,
    ],
)
def test_every_check_of_an_order_has_a_test(order):
    tested = {check for _, breaks in BREAKS.values() for check, _ in breaks}
    # Tested below.
    tested |= {checks.ULPDU_HAS_HEADER, checks.SEND_OPCODE}
    assert set(order) <= tested


def test_mpa_comes_before_ddp():
    bad = replace(WRITE, header=replace(WRITE.header, version=0))
    fpdu = bytearray(mpa.frame_fpdu(bad.ulpdu))
    fpdu[-1] ^= 1
    found = predict(STATE, fpdu)
    assert found.failure.source == checks.CRC.source
    assert found.terminate == Terminate(errors.MPA_CRC)


@pytest.mark.parametrize("octets", [1, 2, 13])
def test_a_ulpdu_shorter_than_its_header(octets):
    for segment in (WRITE, SEND):
        found = predict(STATE, mpa.frame_fpdu(segment.ulpdu[:octets]))
        assert found.failure.source == checks.ULPDU_HAS_HEADER.source
        assert found.terminate == Terminate(errors.MPA_MARKER_MISMATCH)
    # T tells how long the header has to be.
    assert predict(STATE, mpa.frame_fpdu(WRITE.ulpdu[:14])).error is None
    assert predict(STATE, mpa.frame_fpdu(SEND.ulpdu[:17])).error == errors.MPA_MARKER_MISMATCH


def test_an_empty_ulpdu_is_too_short():
    covered = bytes(4)
    found = predict(STATE, covered + mpa.crc32c_octets(covered))
    assert found.error == errors.MPA_MARKER_MISMATCH


def test_the_opcode_of_a_send_must_not_change():
    first = replace(SEND.header, last=False)
    second = send(Opcode.SEND_WITH_SE, mo=4)
    stream = mpa.frame_fpdu(first.encode() + b"sent") + mpa.frame_fpdu(second.encode() + b"more")
    found = predict(STATE, stream)
    assert found.failure.source == checks.SEND_OPCODE.source
    assert found.receives[0] == b"sent" + bytes(60)


def test_a_range_that_ends_at_the_last_tagged_offset_wraps():
    # The 64-bit sum of TO and length is 0.
    for offset, error in ((2**64 - 8, None), (2**64 - 7, errors.DDP_TO_WRAP)):
        ulpdu = replace(WRITE.header, stag=HIGH, tagged_offset=offset).encode() + b"written"
        assert predict(STATE, mpa.frame_fpdu(ulpdu)).error == error


@pytest.mark.parametrize("segment", [WRITE, RESPONSE], ids=["Write", "Read Response"])
def test_an_empty_tagged_segment_is_not_checked(segment):
    empty = replace(segment.header, stag=UNKNOWN, tagged_offset=2**64 - 1, last=segment is WRITE)
    found = predict(STATE, mpa.frame_fpdu(empty.encode()))
    assert found.error is None
    assert found.effects == []


@pytest.mark.parametrize("segment", [WRITE, SEND, REQUEST, TERMINATE])
def test_reserved_bits_are_ignored(segment):
    control = segment.header.rsvd_ulp | rdmap.MASK_RESERVED
    odd = replace(segment.header, rsvd_ulp=control, reserved=0x3C)
    if isinstance(odd, UntaggedHeader):
        odd = replace(odd, rsvd_ulp_word=UNKNOWN)
    assert predict(STATE, mpa.frame_fpdu(odd.encode() + segment.payload)).error is None


@pytest.mark.parametrize(
    "change",
    [header(qn=0), header(qn=7), header(msn=9), header(mo=4), header(last=False), payload(b"")],
)
def test_a_terminate_in_error_is_not_answered(change):
    found = predict(STATE, mpa.frame_fpdu(change(TERMINATE).ulpdu))
    assert found.error is not None
    assert (found.terminate, found.ulpdus, found.closed) == (None, [], True)


def test_a_terminate_of_another_version_is_answered():
    # What the version does not know cannot be called a Terminate.
    found = predict(STATE, mpa.frame_fpdu(header(version=3)(TERMINATE).ulpdu))
    assert found.terminate.error == errors.DDP_UNTAGGED_INVALID_VERSION


def test_the_whole_read_response_ends_with_l():
    header = RESPONSE.header
    first = replace(header, last=False).encode() + b"r" * 32
    second = replace(header, tagged_offset=48, last=False).encode() + b"r" * 32
    found = predict(STATE, mpa.frame_fpdu(first) + mpa.frame_fpdu(second))
    assert found.failure.source == checks.RESPONSE_LENGTH.source
    assert found.memory[SINK] == FILL[:16] + b"r" * 32 + FILL[48:]
