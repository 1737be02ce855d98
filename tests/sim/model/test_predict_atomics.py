"""What a stream with Atomic Operations does to an end: effects, memory, and what is left open."""

from stagecoach.sim.model import ddp, errors, mpa
from stagecoach.sim.model.atomics import FETCH_ADD, SWAP, WORD, AtomicRequest, AtomicResponse
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.effects import AtomicAccepted, AtomicPerformed
from stagecoach.sim.model.endpoint import Operation
from stagecoach.sim.model.extensions import Extensions
from stagecoach.sim.model.predict import Region, State, predict
from stagecoach.sim.model.rdmap import Opcode, ReadRequest, Terminate, control_octet

STAG, BASE = 0x1234_5678, 0x1000_0000


def stream(*ulpdus: bytes) -> bytes:
    return b"".join(map(mpa.frame_fpdu, ulpdus))


def add_ulpdu(msn: int, offset: int = 0, add: int = 1, identifier: int = 9) -> bytes:
    header = UntaggedHeader(1, msn, rsvd_ulp=control_octet(Opcode.ATOMIC_REQUEST))
    request = AtomicRequest(FETCH_ADD, identifier, STAG, BASE + offset, add, 0)
    return header.encode() + request.encode()


def write_ulpdu(octets: bytes) -> bytes:
    control = control_octet(Opcode.RDMA_WRITE)
    return TaggedHeader(STAG, BASE, rsvd_ulp=control).encode() + octets


ORIGINAL = (5).to_bytes(8, "little") + bytes(8)
STATE = State((Region(STAG, ORIGINAL, BASE),), receives=(0,), extensions=Extensions())


def test_effects_of_an_atomic_operation_come_in_order():
    found = predict(STATE, stream(add_ulpdu(1), add_ulpdu(2)))
    request = AtomicRequest(FETCH_ADD, 9, STAG, BASE, 1, 0)
    assert found.effects == [
        AtomicAccepted(request),
        AtomicPerformed(request, 5, 6),
        AtomicAccepted(request),
        AtomicPerformed(request, 6, 7),
    ]
    assert found.late is None


def test_a_write_behind_an_atomic_request_may_come_before_its_operation():
    found = predict(STATE, stream(add_ulpdu(1), write_ulpdu(b"\x64")))
    assert found.memory[STAG][0] == 100
    assert found.late.memory[STAG][0] == 101
    originals = [
        AtomicResponse.decode(ddp.decode(p.ulpdus[0])[1]).original for p in (found, found.late)
    ]
    assert originals == [5, 100]


def test_a_target_that_is_invalid_when_its_turn_comes_ends_the_stream():
    header = UntaggedHeader(
        0, 1, rsvd_ulp=control_octet(Opcode.SEND_WITH_INVALIDATE), rsvd_ulp_word=STAG
    )
    found = predict(STATE, stream(add_ulpdu(1), header.encode()))
    assert found.error is None
    late = found.late
    assert late.error == errors.RDMAP_INVALID_STAG
    # The header of the Atomic Request, and no RDMAP header.
    asked = add_ulpdu(1)
    assert late.terminate == Terminate(errors.RDMAP_INVALID_STAG, len(asked), asked[:18], b"")
    assert late.memory == {STAG: ORIGINAL}
    assert len(late.ulpdus) == 1


def test_operations_before_a_failure_are_performed():
    bad = write_ulpdu(bytes(17))
    found = predict(STATE, stream(add_ulpdu(1), bad, add_ulpdu(2)))
    assert found.error == errors.DDP_BASE_OR_BOUNDS
    assert found.memory[STAG][0] == 6
    assert [ulpdu[1] & 0xF for ulpdu in found.ulpdus] == [Opcode.ATOMIC_RESPONSE, Opcode.TERMINATE]


def test_reads_and_atomics_that_are_outstanding_complete_in_order():
    asked = [AtomicRequest(SWAP, n, 1, 2, 3, WORD) for n in (70, 71)]
    reads = (asked[0], ReadRequest(STAG, BASE, 2, 1, 1), asked[1])
    control = control_octet(Opcode.ATOMIC_RESPONSE)
    answers = [
        UntaggedHeader(3, n, rsvd_ulp=control).encode() + AtomicResponse(69 + n, n).encode()
        for n in (1, 2)
    ]
    data = TaggedHeader(STAG, BASE, rsvd_ulp=control_octet(Opcode.RDMA_READ_RESPONSE))
    state = State(STATE.regions, reads=reads, extensions=Extensions())
    found = predict(state, stream(answers[0], data.encode() + b"ab", answers[1]))
    assert [(c.work_id, c.operation, c.original) for c in found.completions] == [
        (0, Operation.SWAP, 1),
        (1, Operation.RDMA_READ, None),
        (2, Operation.SWAP, 2),
    ]
    swapped = predict(state, stream(answers[1]))
    assert swapped.error == errors.DDP_INVALID_MSN
