"""Every check of a receiver that Atomic Operations and Immediate Data bring (RFC 7306)."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from stagecoach.sim.model import checks, errors, mpa, rdmap
from stagecoach.sim.model.atomics import CMP_SWAP, FETCH_ADD, SWAP, AtomicRequest, AtomicResponse
from stagecoach.sim.model.ddp import UntaggedHeader
from stagecoach.sim.model.extensions import Extensions
from stagecoach.sim.model.predict import Region, predict
from stagecoach.sim.model.rdmap import Opcode, Terminate, control_octet
from stagecoach.sim.model.work import Operation
from tests.sim.model.segments import (
    BASE,
    FILL,
    GOOD,
    OTHER_STREAM,
    READ_ONLY,
    REGIONS,
    SIZE,
    STATE,
    UNKNOWN,
    UNTAGGED_HEADER,
    WRITE_ONLY,
    Breaks,
    Segment,
    alone,
    assert_fails,
    header,
    pairs,
    payload,
    send,
    state,
)

# The target of the first is not aligned, though its TOs are; of the second it is the other way.
SHIFTED, UNALIGNED_BASE = 0x200, 0x201
EXTENDED = replace(
    STATE,
    regions=(
        *REGIONS,
        Region(SHIFTED, FILL, BASE, address=0x1004),
        Region(UNALIGNED_BASE, FILL, BASE + 3, address=0x1000),
    ),
    reads=(AtomicRequest(FETCH_ADD, 0x55, 1, 2, 3, 4),),
    extensions=Extensions(),
)
WORD_AT_BASE = int.from_bytes(FILL[:8], "little")


def untagged(opcode: Opcode, octets: bytes) -> Segment:
    head = UntaggedHeader(rdmap.QUEUE_OF[opcode], 1, rsvd_ulp=control_octet(opcode))
    return Segment(head, octets, EXTENDED)


FETCH = AtomicRequest(FETCH_ADD, 0x77, GOOD, BASE, 1, 0)
REQUEST = untagged(Opcode.ATOMIC_REQUEST, FETCH.encode())
RESPONSE = untagged(Opcode.ATOMIC_RESPONSE, AtomicResponse(0x55, 0x1234).encode())
IMMEDIATE = untagged(Opcode.IMMEDIATE_DATA, b"IMMEDIAT")
SOLICITED = untagged(Opcode.IMMEDIATE_DATA_WITH_SE, b"IMMEDIAT")


def target(**fields: int) -> Callable[[Segment], Segment]:
    """Other fields of an Atomic Request, which may be too long."""

    def change(segment: Segment) -> Segment:
        request = replace(AtomicRequest.decode(segment.payload[:52]), **fields)
        return replace(segment, payload=request.encode() + segment.payload[52:])

    return change


HEADER = [break_ for break_ in UNTAGGED_HEADER if break_[0] is not checks.QUEUE]
HEADER.insert(-1, (checks.QUEUE, header(qn=4)))
IMMEDIATE_BREAKS = [
    *HEADER,
    (checks.MSN, header(msn=2)),
    (checks.RECEIVE_BUFFER, state(receives=())),
    (checks.MO, header(mo=65)),
    (checks.MO_NEXT, header(mo=1)),
    (checks.MESSAGE_LENGTH, payload(bytes(9))),
    (checks.ONE_SEGMENT, header(last=False)),
    (checks.IMMEDIATE_WHOLE, payload(bytes(7))),
]
BREAKS: Breaks = {
    "Immediate Data": (IMMEDIATE, IMMEDIATE_BREAKS),
    "Immediate Data with SE": (SOLICITED, IMMEDIATE_BREAKS),
    "Atomic Request": (
        REQUEST,
        [
            *HEADER,
            (checks.MSN, header(msn=0)),
            (checks.READ_REQUEST_BUFFER, state(ird=0)),
            (checks.MO, header(mo=53)),
            (checks.MO_NEXT, header(mo=52)),
            (checks.MESSAGE_LENGTH, payload(REQUEST.payload + b"\0")),
            (checks.ONE_SEGMENT, header(last=False)),
            (checks.ATOMIC_REQUEST_WHOLE, payload(REQUEST.payload[:51])),
            (checks.ATOMIC_OPERATION, target(operation=3)),
            (checks.ATOMIC_TARGET.valid, target(stag=UNKNOWN)),
            (checks.ATOMIC_TARGET.associated, target(stag=OTHER_STREAM)),
            (checks.ATOMIC_TARGET.rights, target(stag=READ_ONLY)),
            (checks.ATOMIC_TARGET.wrap, target(tagged_offset=2**64 - 4)),
            (checks.ATOMIC_TARGET.bounds, target(tagged_offset=BASE + SIZE - 4)),
            (checks.ATOMIC_ALIGNMENT, target(tagged_offset=BASE + 4)),
        ],
    ),
    "Atomic Response": (
        RESPONSE,
        [
            *HEADER,
            (checks.MSN, header(msn=0)),
            (checks.ATOMIC_OUTSTANDING, state(reads=())),
            (checks.MO, header(mo=13)),
            (checks.MO_NEXT, header(mo=12)),
            (checks.MESSAGE_LENGTH, payload(RESPONSE.payload + b"\0")),
            (checks.ONE_SEGMENT, header(last=False)),
            (checks.ATOMIC_RESPONSE_WHOLE, payload(RESPONSE.payload[:11])),
            (checks.ATOMIC_IDENTIFIER, payload(AtomicResponse(0x54, 0x1234).encode())),
        ],
    ),
}


def outcome(segment: Segment):
    return predict(segment.state, mpa.frame_fpdu(segment.ulpdu))


@pytest.mark.parametrize("message", BREAKS)
def test_the_unbroken_segment_is_accepted(message):
    found = outcome(BREAKS[message][0])
    assert found.error is None, found.failure


@pytest.mark.parametrize(("segment", "check", "change"), alone(BREAKS))
def test_a_check_fails_alone(segment, check, change):
    assert_fails(change(segment), check)


@pytest.mark.parametrize(("segment", "first", "second"), pairs(BREAKS))
def test_the_first_of_two_failing_checks_wins(segment, first, second):
    assert_fails(first[1](second[1](segment)), first[0])


@pytest.mark.parametrize(("segment", "check", "change"), alone(BREAKS))
def test_the_ddp_header_is_sent_back_and_no_other(segment, check, change):
    ulpdu = change(segment).ulpdu
    found = outcome(change(segment))
    assert found.terminate == Terminate(check.error, len(ulpdu), ulpdu[:18], b"")
    # M and D, not R.
    assert found.ulpdus[-1][18 + 2] == 0xC0


@pytest.mark.parametrize(
    "order", [checks.IMMEDIATE_ORDER, checks.ATOMIC_REQUEST_ORDER, checks.ATOMIC_RESPONSE_ORDER]
)
def test_every_check_of_an_order_has_a_test(order):
    tested = {check for _, breaks in BREAKS.values() for check, _ in breaks}
    # Tested below.
    assert set(order) <= tested | {checks.SEND_OPCODE}


@pytest.mark.parametrize("segment", [IMMEDIATE, SOLICITED, REQUEST, RESPONSE])
def test_without_extensions_the_opcode_is_unexpected(segment):
    plain = state(extensions=None, reads=())(segment)
    assert_fails(plain, checks.OPCODE)
    on_queue_3 = header(qn=3, rsvd_ulp=control_octet(Opcode.SEND))(plain)
    assert_fails(on_queue_3, checks.QUEUE)
    assert (checks.OPCODE.error, checks.QUEUE.error) == (
        errors.RDMAP_UNEXPECTED_OPCODE,
        errors.DDP_INVALID_QN,
    )


@pytest.mark.parametrize(
    ("segment", "queues"),
    [(IMMEDIATE, (1, 2, 3)), (SOLICITED, (1, 2, 3)), (REQUEST, (0, 2, 3)), (RESPONSE, (0, 1, 2))],
)
def test_another_known_queue_is_an_unexpected_opcode(segment, queues):
    for qn in queues:
        assert_fails(header(qn=qn)(segment), checks.QUEUE_OF_OPCODE)


def test_other_messages_are_unexpected_on_queue_3():
    assert_fails(header(qn=3)(Segment(send(), b"sent", EXTENDED)), checks.QUEUE_OF_OPCODE)


@pytest.mark.parametrize("segment", [IMMEDIATE, SOLICITED, REQUEST, RESPONSE])
def test_what_is_reserved_is_ignored(segment):
    control = segment.header.rsvd_ulp | rdmap.MASK_RESERVED
    odd = header(rsvd_ulp=control, reserved=0x3C, rsvd_ulp_word=UNKNOWN)(segment)
    assert outcome(odd).error is None


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("operation", range(16))
def test_aopcodes_that_are_not_supported_are_unexpected(operation, strict):
    segment = state(extensions=Extensions(strict_rfc7306=strict))(REQUEST)
    segment = target(operation=operation)(segment)
    if operation in ((FETCH_ADD, CMP_SWAP) if strict else (FETCH_ADD, SWAP, CMP_SWAP)):
        assert outcome(segment).error is None
    else:
        assert_fails(segment, checks.ATOMIC_OPERATION)
        assert checks.ATOMIC_OPERATION.error == errors.RDMAP_UNEXPECTED_OPCODE


@pytest.mark.parametrize("operation", [FETCH_ADD, SWAP, CMP_SWAP])
@pytest.mark.parametrize("offset", range(1, 8))
def test_the_address_has_to_be_aligned_not_the_tagged_offset(operation, offset):
    request = target(operation=operation)(REQUEST)
    assert_fails(target(tagged_offset=BASE + offset)(request), checks.ATOMIC_ALIGNMENT)
    shifted = target(stag=SHIFTED, tagged_offset=BASE + offset)(request)
    if offset == 4:
        assert outcome(shifted).error is None
    else:
        assert_fails(shifted, checks.ATOMIC_ALIGNMENT)
    unaligned_base = target(stag=UNALIGNED_BASE, tagged_offset=BASE + offset)(request)
    if offset == 3:
        assert outcome(unaligned_base).error is None
    elif offset > 3:
        assert_fails(unaligned_base, checks.ATOMIC_ALIGNMENT)
    assert checks.ATOMIC_ALIGNMENT.error == errors.RDMAP_CATASTROPHIC_STREAM


def test_both_remote_rights_are_needed():
    for stag in (READ_ONLY, WRITE_ONLY):
        assert_fails(target(stag=stag)(REQUEST), checks.ATOMIC_TARGET.rights)


@pytest.mark.parametrize(
    ("segment", "needed", "short"),
    [
        (IMMEDIATE, 8, checks.IMMEDIATE_WHOLE),
        (REQUEST, 52, checks.ATOMIC_REQUEST_WHOLE),
        (RESPONSE, 12, checks.ATOMIC_RESPONSE_WHOLE),
    ],
)
def test_any_other_length_is_an_error(segment, needed, short):
    for octets in (0, 1, needed - 1):
        assert_fails(payload(segment.payload[:octets])(segment), short)
        part = header(last=False)(payload(segment.payload[:octets])(segment))
        assert_fails(part, checks.ONE_SEGMENT)
    assert_fails(header(last=False)(segment), checks.ONE_SEGMENT)
    for octets in (needed + 1, needed + 60):
        assert_fails(payload(segment.payload.ljust(octets, b"\0"))(segment), checks.MESSAGE_LENGTH)
    assert (short.error, checks.MESSAGE_LENGTH.error) == (
        errors.RDMAP_OPERATION_UNSPECIFIED,
        errors.DDP_MESSAGE_TOO_LONG,
    )


@pytest.mark.parametrize("size", [0, 7, 8, 64])
def test_immediate_data_takes_a_receive_of_any_size_and_leaves_it_as_it_is(size):
    found = outcome(state(receives=(size, 5))(SOLICITED))
    (completion,) = found.completions
    assert (completion.operation, completion.work_id) == (Operation.RECEIVE, 0)
    assert (completion.immediate, completion.length, completion.payload) == (b"IMMEDIAT", 0, b"")
    assert completion.solicited
    assert found.receives == [bytes(size), bytes(5)]


@pytest.mark.parametrize(
    ("mo", "check"),
    [(0, checks.MO_NEXT), (4, checks.SEND_OPCODE), (5, checks.MO_NEXT), (65, checks.MO)],
)
def test_immediate_data_does_not_go_on_with_a_send(mo, check):
    begun = replace(send(), last=False).encode() + b"sent"
    stream = mpa.frame_fpdu(begun) + mpa.frame_fpdu(header(mo=mo)(IMMEDIATE).ulpdu)
    found = predict(EXTENDED, stream)
    assert (found.failure.source, found.error) == (check.source, check.error)
    assert found.receives[0] == b"sent" + bytes(60)


def test_requests_of_both_kinds_share_the_ird():
    read = UntaggedHeader(1, 2, rsvd_ulp=control_octet(Opcode.RDMA_READ_REQUEST)).encode()
    read += rdmap.ReadRequest(5, 6, 8, GOOD, BASE).encode()
    stream = [REQUEST.ulpdu, read, header(msn=3)(REQUEST).ulpdu]
    found = predict(replace(EXTENDED, ird=2), b"".join(map(mpa.frame_fpdu, stream)))
    # With prompt answers there is always room.
    assert found.error is None
    assert found.late.error == errors.DDP_NO_BUFFER
    assert found.late.failure.source == checks.READ_REQUEST_BUFFER.source
    # The first two are answered before the Terminate.
    assert [ulpdu[1] & 0xF for ulpdu in found.late.ulpdus] == [0xB, 0x2, 0x7]


def test_an_atomic_response_completes_its_request():
    found = outcome(RESPONSE)
    (completion,) = found.completions
    assert (completion.operation, completion.work_id) == (Operation.FETCH_ADD, 0)
    assert (completion.original, completion.length) == (0x1234, 8)


def test_atomic_responses_go_on_where_the_state_says():
    found = outcome(header(msn=9)(state(atomic_response_msn=9)(RESPONSE)))
    assert found.error is None
    assert_fails(state(atomic_response_msn=9)(RESPONSE), checks.MSN)


def test_an_accepted_request_is_performed_and_answered():
    found = outcome(REQUEST)
    expected = (WORD_AT_BASE + 1).to_bytes(8, "little") + FILL[8:]
    assert found.memory == {r.stag: r.octets for r in EXTENDED.regions} | {GOOD: expected}
    (ulpdu,) = found.ulpdus
    head = UntaggedHeader(3, 1, rsvd_ulp=control_octet(Opcode.ATOMIC_RESPONSE)).encode()
    assert ulpdu == head + AtomicResponse(0x77, WORD_AT_BASE).encode()
    assert found.completions == []
    assert found.late is None
