"""The oracle of the malformer: effects of whole streams, in order, and what it leaves open."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagecoach.sim.model import checks, effects, errors, mpa
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.predict import Region, Scope, State, predict
from stagecoach.sim.model.rdmap import Opcode, ReadRequest, Terminate, control_octet
from stagecoach.sim.model.terminate import terminate_for
from stagecoach.sim.model.work import Completion, Operation, Status

A, B = 0x1111_0000, 0x2222_0000
CONTENT = bytes(range(200))
REGIONS = (Region(A, CONTENT, 100), Region(B, bytes(64), 0, scope=Scope.THIS))


def write(stag: int, to: int, octets: bytes) -> bytes:
    return TaggedHeader(stag, to, rsvd_ulp=control_octet(Opcode.RDMA_WRITE)).encode() + octets


def send(octets: bytes, msn: int = 1, opcode: Opcode = Opcode.SEND, **fields: int) -> bytes:
    return UntaggedHeader(0, msn, rsvd_ulp=control_octet(opcode), **fields).encode() + octets


def read(to: int, size: int, msn: int = 1) -> tuple[bytes, ReadRequest]:
    request = ReadRequest(7, 0, size, A, to)
    header = UntaggedHeader(1, msn, rsvd_ulp=control_octet(Opcode.RDMA_READ_REQUEST))
    return header.encode() + request.encode(), request


def stream(*ulpdus: bytes, **options: object) -> bytes:
    framer = mpa.Framer(**options)
    return b"".join(map(framer.frame, ulpdus))


def test_it_is_known_how_far_fpdus_were_good():
    good, bad = stream(write(B, 3, b"wrote")), bytearray(stream(write(B, 3, b"wrote")))
    bad[-1] ^= 1
    for tail in (b"", b"\0", bytes(bad)):
        assert predict(State(REGIONS), good + tail).accepted == len(good)
    refused = stream(write(B, 64, b"wrote"))
    assert predict(State(REGIONS), good + refused + good).accepted == len(good + refused)
    assert predict(State(REGIONS, position=512), good).accepted == len(good)


def test_effects_come_in_the_order_of_the_stream():
    asked, request = read(100, 4)
    bad = write(B, 60, b"12345")
    found = predict(
        State(REGIONS, receives=(10, 10)),
        stream(
            write(B, 3, b"wrote"),
            send(b"hel", last=False),
            asked,
            send(b"lo", mo=3, opcode=Opcode.SEND, last=True),
            bad,
            write(B, 0, b"never"),
        ),
    )
    terminate = terminate_for(errors.DDP_BASE_OR_BOUNDS, bad)
    hello = Completion(Operation.RECEIVE, 0, length=5, payload=b"hello")
    flushed = Completion(Operation.RECEIVE, 1, Status.FLUSHED)
    assert found.effects == [
        effects.TaggedPlacement(B, 3, b"wrote"),
        effects.UntaggedPlacement(0, 0, b"hel"),
        effects.ReadAccepted(request),
        effects.Response(request, 0, CONTENT[:4], True),
        effects.UntaggedPlacement(0, 3, b"lo"),
        effects.Delivery(hello),
        effects.Failure(
            errors.DDP_BASE_OR_BOUNDS,
            "TO 0x3c to 0x41 of STag 0x22220000; 0x0 to 0x40 is registered",
            "RFC 5041, 7.1 (4)",
            terminate,
        ),
        effects.Delivery(flushed),
    ]
    assert found.memory == {A: CONTENT, B: b"\0\0\0wrote" + bytes(56)}
    assert found.receives == [b"hello" + bytes(5), bytes(10)]
    assert found.completions == [hello, flushed]
    assert (found.error, found.terminate) == (errors.DDP_BASE_OR_BOUNDS, terminate)
    header = UntaggedHeader(2, 1, rsvd_ulp=control_octet(Opcode.TERMINATE)).encode()
    response = TaggedHeader(7, 0, rsvd_ulp=control_octet(Opcode.RDMA_READ_RESPONSE)).encode()
    assert found.ulpdus == [response + CONTENT[:4], header + terminate.encode()]
    assert found.late is None
    assert not found.closed


def test_an_invalidation_is_between_placement_and_delivery():
    last = send(b"", opcode=Opcode.SEND_WITH_SE_AND_INVALIDATE, rsvd_ulp_word=B)
    found = predict(State(REGIONS, receives=(0,)), stream(last, write(B, 0, b"x")))
    kinds = [type(effect).__name__ for effect in found.effects]
    assert kinds == ["Invalidation", "Delivery", "Failure"]
    assert found.invalidated == {B}
    assert found.completions[0].invalidated_stag == B
    assert found.completions[0].solicited
    assert found.error == errors.DDP_INVALID_STAG


@pytest.mark.parametrize(
    "later",
    [
        pytest.param([write(A, 100, b"changed")], id="source written"),
        pytest.param(
            [send(b"", opcode=Opcode.SEND_WITH_INVALIDATE, rsvd_ulp_word=A)], id="invalidated"
        ),
        pytest.param([read(100, 1, msn)[0] for msn in (2, 3)], id="IRD"),
    ],
)
def test_what_depends_on_the_time_of_an_answer_is_told(later):
    state = State(REGIONS, receives=(0,), ird=2)
    found = predict(state, stream(read(100, 20)[0], *later))
    assert found.error is None
    assert found.late is not None
    assert found.late.ulpdus != found.ulpdus
    # What follows is not about the answer: the same at any time.
    assert predict(state, stream(read(100, 20)[0], write(A, 120, b"x"))).late is None


def test_octets_of_an_incomplete_fpdu_are_kept():
    octets = stream(write(B, 0, b"whole"), write(B, 0, b"other"))
    for cut in (1, 2, 20):
        found = predict(State(REGIONS), octets[:-cut])
        assert found.pending == len(octets) // 2 - cut
        assert found.memory[B][:5] == b"whole"
        assert found.error is None


def test_a_responder_that_has_not_started_closes_without_a_terminate():
    octets = bytearray(stream(write(B, 0, b"x")))
    octets[-1] ^= 1
    found = predict(State(REGIONS, started=False), octets)
    assert (found.error, found.terminate, found.closed) == (errors.MPA_CRC, None, True)
    assert found.ulpdus == []
    # After the first good FPDU it may send.
    found = predict(State(REGIONS, started=False), stream(write(B, 0, b"")) + octets)
    assert found.terminate == Terminate(errors.MPA_CRC)
    found = predict(State(REGIONS, started=False, responder=False), octets)
    assert found.terminate == Terminate(errors.MPA_CRC)


def test_a_stream_goes_on_where_the_state_says():
    state = State(REGIONS, (4,), markers=True, position=4096 - 8, send_msn=9, read_request_msn=5)
    asked, _ = read(100, 3, msn=5)
    octets = stream(send(b"four", msn=9), asked, markers=True, position=4096 - 8)
    found = predict(state, octets)
    assert found.error is None
    assert found.receives == [b"four"]
    assert len(found.ulpdus) == 1
    assert predict(State(REGIONS, (4,), markers=True, send_msn=9), octets).error is not None


def test_outstanding_reads_complete_in_order():
    reads = (ReadRequest(B, 0, 3, 1, 1), ReadRequest(B, 3, 0, 1, 1), ReadRequest(B, 5, 2, 1, 1))
    control = control_octet(Opcode.RDMA_READ_RESPONSE)
    answers = [
        TaggedHeader(B, 0, rsvd_ulp=control).encode() + b"abc",
        TaggedHeader(99, 99, rsvd_ulp=control).encode(),
        TaggedHeader(B, 5, rsvd_ulp=control).encode() + b"de",
    ]
    found = predict(State(REGIONS, reads=reads), stream(*answers))
    assert found.memory[B] == b"abc\0\0de" + bytes(57)
    assert [(c.work_id, c.length) for c in found.completions] == [(0, 3), (1, 0), (2, 2)]
    found = predict(State(REGIONS, reads=reads), stream(answers[0], answers[2]))
    assert found.error == errors.DDP_BASE_OR_BOUNDS
    assert [c.status for c in found.completions] == [Status.SUCCESS, *[Status.FLUSHED] * 2]


VALID = [
    write(A, 150, b"w" * 40),
    write(B, 0, b"W" * 30),
    send(b"s" * 20, last=False),
    send(b"s" * 20, mo=20),
    read(100, 50)[0],
    send(b"i", msn=2, opcode=Opcode.SEND_WITH_INVALIDATE, rsvd_ulp_word=B),
    read(120, 50, msn=2)[0],
]
STATE = State(REGIONS, receives=(40, 8, 8))


def mutated(rng: random.Random, markers: bool) -> bytes:
    """A valid stream with some of its octets, or of its FPDUs, changed."""
    ulpdus = [bytearray(ulpdu) for ulpdu in VALID]
    for _ in range(rng.randint(0, 3)):
        victim = rng.choice(ulpdus)
        victim[rng.randrange(min(len(victim), 24))] ^= 1 << rng.randrange(8)
    if rng.random() < 0.3:
        rng.shuffle(ulpdus)
    octets = bytearray(stream(*ulpdus, markers=markers))
    if rng.random() < 0.3:
        octets[rng.randrange(len(octets))] ^= 1 << rng.randrange(8)
    return bytes(octets[: rng.randint(0, len(octets))] if rng.random() < 0.2 else octets)


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 2**32), st.booleans())
def test_any_mutation_has_one_outcome_of_whole_effects(seed, markers):
    state = replace(STATE, markers=markers)
    octets = mutated(random.Random(seed), markers)
    found = predict(state, octets)
    assert predict(state, octets) == found
    memory = {region.stag: bytearray(region.octets) for region in REGIONS}
    base = {region.stag: region.base for region in REGIONS}
    receives = [bytearray(size) for size in STATE.receives]
    completions = []
    failed = False
    for effect in found.effects:
        match effect:
            case effects.TaggedPlacement(stag, to, placed):
                assert not failed
                start = to - base[stag]
                memory[stag][start : start + len(placed)] = placed
            case effects.UntaggedPlacement(work_id, offset, placed):
                assert not failed
                receives[work_id][offset : offset + len(placed)] = placed
            case effects.Delivery(completion):
                assert failed == (completion.status is Status.FLUSHED)
                completions.append(completion)
            case effects.Failure() | effects.TerminateReceived():
                assert not failed
                failed = True
    assert found.memory == memory
    assert found.receives == receives
    assert found.completions == completions
    if found.error is not None:
        assert found.error in errors.NAMES
        assert found.failure.source.startswith(("RFC 50", checks.CHOICE))
    if found.terminate is not None:
        assert found.ulpdus[-1][18:] == found.terminate.encode()
