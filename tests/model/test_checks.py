"""Every check of a receiver alone, and the order of any two of them (sim/model/checks.py)."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from sim.model import checks, errors, mpa, rdmap
from sim.model.checks import Check
from sim.model.ddp import TaggedHeader, UntaggedHeader
from sim.model.memory import Rights
from sim.model.predict import Prediction, Region, Scope, State, predict
from sim.model.rdmap import Opcode, ReadRequest, Terminate, control_octet

SIZE = 256
BASE = 0x2000
GOOD, READ_ONLY, WRITE_ONLY, OTHER_PD, OTHER_STREAM, SHARED, HIGH, SINK = range(0x100, 0x108)
UNKNOWN = 0x999
FILL = bytes([0xA5]) * SIZE
REGIONS = (
    Region(GOOD, FILL, BASE),
    Region(READ_ONLY, FILL, BASE, Rights.REMOTE_READ),
    Region(WRITE_ONLY, FILL, BASE, Rights.REMOTE_WRITE),
    Region(OTHER_PD, FILL, BASE, pd=1),
    Region(OTHER_STREAM, FILL, BASE, scope=Scope.OTHER),
    Region(SHARED, FILL, BASE, shared=True),
    Region(HIGH, FILL, 2**64 - SIZE),
    Region(SINK, FILL, 0, Rights.LOCAL_WRITE),
)
READ = ReadRequest(SINK, 16, 64, 1, 2)
STATE = State(REGIONS, receives=(64, 64), reads=(READ,), ird=2)


@dataclass(frozen=True)
class Segment:
    """A DDP Segment in parts, and the state of the end that receives it."""

    header: TaggedHeader | UntaggedHeader
    payload: bytes
    state: State = STATE

    @property
    def ulpdu(self) -> bytes:
        return self.header.encode() + self.payload


def send(opcode: Opcode = Opcode.SEND, stag: int = 0, **fields: object) -> UntaggedHeader:
    return UntaggedHeader(0, 1, rsvd_ulp=control_octet(opcode), rsvd_ulp_word=stag, **fields)


def header(**fields: object) -> Callable[[Segment], Segment]:
    return lambda segment: replace(segment, header=replace(segment.header, **fields))


def state(**fields: object) -> Callable[[Segment], Segment]:
    return lambda segment: replace(segment, state=replace(segment.state, **fields))


def payload(octets: bytes) -> Callable[[Segment], Segment]:
    return lambda segment: replace(segment, payload=octets)


def source(**fields: object) -> Callable[[Segment], Segment]:
    def change(segment: Segment) -> Segment:
        request = ReadRequest.decode(segment.payload[:28].ljust(28, b"\0"))
        octets = replace(request, **fields).encode()
        return replace(segment, payload=octets[: len(segment.payload)].ljust(len(segment.payload)))

    return change


def opcode(value: int) -> Callable[[Segment], Segment]:
    """Another opcode, with the RV that is there."""

    def change(segment: Segment) -> Segment:
        control = segment.header.rsvd_ulp & ~rdmap.MASK_OPCODE | value
        return replace(segment, header=replace(segment.header, rsvd_ulp=control))

    return change


def version(value: int) -> Callable[[Segment], Segment]:
    """Another RV, with the opcode that is there."""

    def change(segment: Segment) -> Segment:
        control = segment.header.rsvd_ulp & rdmap.MASK_OPCODE | value << rdmap.VERSION_SHIFT
        return replace(segment, header=replace(segment.header, rsvd_ulp=control))

    return change


WRITE = Segment(TaggedHeader(GOOD, BASE, rsvd_ulp=control_octet(Opcode.RDMA_WRITE)), b"written")
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

Break = tuple[Check, Callable[[Segment], Segment]]
UNTAGGED_HEADER: list[Break] = [
    (checks.UNTAGGED_VERSION, header(version=2)),
    (checks.RDMAP_VERSION, version(0)),
    (checks.OPCODE, opcode(0xC)),
    (checks.BUFFER_MODEL, opcode(Opcode.RDMA_WRITE)),
    (checks.QUEUE, header(qn=3)),
    (checks.QUEUE_OF_OPCODE, header(qn=2)),
]
TAGGED_HEADER: list[Break] = [
    (checks.TAGGED_VERSION, header(version=0)),
    (checks.RDMAP_VERSION, version(2)),
    (checks.OPCODE, opcode(0xF)),
    (checks.BUFFER_MODEL, opcode(Opcode.SEND)),
]
NO_ROOM = state(receives=(3,))
# What breaks each check, in their order. Later changes of the same field undo earlier ones:
# `test_the_first_of_two_failing_checks_wins` applies the earlier one last.
BREAKS: dict[str, tuple[Segment, list[Break]]] = {
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
ALONE = [
    pytest.param(segment, check, change, id=f"{message}: {check.demand}")
    for message, (segment, breaks) in BREAKS.items()
    for check, change in breaks
]
PAIRS = [
    pytest.param(segment, first, second, id=f"{message}: {first[0].demand} | {second[0].demand}")
    for message, (segment, breaks) in BREAKS.items()
    for first, second in itertools.combinations(breaks, 2)
]


def outcome(segment: Segment) -> Prediction:
    # A second, good FPDU must find a stream that takes nothing any more.
    stream = mpa.frame_fpdu(segment.ulpdu) + mpa.frame_fpdu(WRITE.ulpdu)
    return predict(segment.state, stream)


def assert_fails(segment: Segment, check: Check) -> None:
    found = outcome(segment)
    assert found.failure is not None, "no check failed"
    assert (found.failure.source, found.error) == (check.source, check.error), found.failure
    assert found.memory == {region.stag: region.octets for region in segment.state.regions}
    assert found.receives == [bytes(size) for size in segment.state.receives]
    assert not found.invalidated
    assert all(completion.status.name == "FLUSHED" for completion in found.completions)
    assert len(found.completions) == len(segment.state.receives) + len(segment.state.reads)
    assert len(found.ulpdus) == (found.terminate is not None)


@pytest.mark.parametrize("message", BREAKS)
def test_the_unbroken_segment_is_accepted(message):
    segment, _ = BREAKS[message]
    found = predict(segment.state, mpa.frame_fpdu(segment.ulpdu))
    assert found.error is None, found.failure


@pytest.mark.parametrize(("segment", "check", "change"), ALONE)
def test_a_check_fails_alone(segment, check, change):
    assert_fails(change(segment), check)


@pytest.mark.parametrize(("segment", "first", "second"), PAIRS)
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
