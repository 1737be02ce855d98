"""Every check of a receiver alone, and the order of any two of them (sim/model/checks.py)."""

from dataclasses import replace
from pathlib import Path

import pytest

from stagecoach.sim.model import checks, errors, mpa, rdmap
from stagecoach.sim.model.checks import Check
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.predict import Prediction, predict
from stagecoach.sim.model.rdmap import Opcode, ReadRequest, Terminate, control_octet
from tests.sim.model.segments import (
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
            (checks.MO, header(mo=65)),
            (checks.MO_NEXT, header(mo=1)),
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
            (checks.MO, header(mo=29)),
            (checks.MO_NEXT, header(mo=28)),
            (checks.MESSAGE_LENGTH, payload(REQUEST.payload + b"\0")),
            (checks.ONE_SEGMENT, header(last=False)),
            (checks.READ_REQUEST_WHOLE, payload(REQUEST.payload[:27])),
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
            (checks.RESPONSE_OFFSET, header(tagged_offset=15)),
            (
                checks.RESPONSE_NEXT,
                lambda segment: header(tagged_offset=17)(payload(b"r" * 63)(segment)),
            ),
            (checks.RESPONSE_LENGTH, payload(b"r" * 63)),
            (checks.TARGET.valid, state(regions=REGIONS[:-1])),
        ],
    ),
    "Terminate": (
        TERMINATE,
        [
            *UNTAGGED_HEADER[:-1],
            (checks.QUEUE_OF_OPCODE, header(qn=0)),
            (checks.MSN, header(msn=2)),
            (checks.MO, header(mo=53)),
            (checks.MO_NEXT, header(mo=1)),
            (checks.ONE_SEGMENT, header(last=False)),
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


def responses(*segments: tuple[int, int, bool]) -> Prediction:
    """What becomes of segments of a Read Response: offset, octets, L."""
    ulpdus = (
        replace(RESPONSE.header, tagged_offset=16 + offset, last=last).encode() + b"r" * octets
        for offset, octets, last in segments
    )
    return predict(STATE, b"".join(map(mpa.frame_fpdu, ulpdus)))


WHOLE = FILL[:16] + b"r" * 64 + FILL[80:]


@pytest.mark.requirement("RDMAP-5.2.2-04", "DDP-5.2-11")
@pytest.mark.parametrize("empty", [0, 1, 2])
def test_a_read_response_may_end_with_an_empty_segment(empty):
    segments = [(0, 32, False), (32, 32, False), *[(64, 0, False)] * empty, (64, 0, True)]
    found = responses(*segments)
    assert found.error is None
    assert found.memory[SINK] == WHOLE
    assert [completion.length for completion in found.completions] == [64]


def test_a_read_response_without_l_is_not_over():
    found = responses((0, 64, False), (0, 0, False))
    assert (found.error, found.memory[SINK], found.completions) == (None, WHOLE, [])


@pytest.mark.parametrize(
    ("segments", "check", "placed"),
    [
        ([(0, 64, False), (64, 1, True)], checks.RESPONSE_OFFSET, 64),
        ([(0, 65, True)], checks.RESPONSE_OFFSET, 0),
        ([(0, 63, False), (63, 0, True)], checks.RESPONSE_LENGTH, 63),
        # Each octet once, in another order: the RFCs allow it.
        ([(32, 32, False), (0, 32, True)], checks.RESPONSE_NEXT, 0),
        # An octet twice.
        ([(0, 32, False), (31, 33, True)], checks.RESPONSE_NEXT, 32),
    ],
)
def test_other_read_responses_are_refused(segments, check, placed):
    found = responses(*segments)
    assert (found.failure.source, found.error) == (check.source, check.error)
    assert found.memory[SINK] == FILL[:16] + b"r" * placed + FILL[16 + placed :]


def test_what_the_rfcs_allow_and_this_receiver_refuses_has_a_decision_page():
    refused = {name for name, check in vars(checks).items() if _source(check) == checks.CHOICE}
    assert refused == {"MO_NEXT", "ONE_SEGMENT", "RESPONSE_NEXT"}
    page = (Path(__file__).parents[3] / checks.CHOICE).read_text()
    for code in ("1/2/04", "0/2/FF", "1/1/01"):
        assert code in page


def _source(check: object) -> str | None:
    return check.source if isinstance(check, Check) else None
