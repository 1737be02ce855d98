"""Atomic Operations and Immediate Data between two endpoints (RFC 7306)."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagecoach.sim.model import ddp, errors, mpa
from stagecoach.sim.model.atomics import (
    CMP_SWAP,
    FETCH_ADD,
    SWAP,
    WORD,
    AtomicRequest,
    AtomicResponse,
    cmp_swap,
    fetch_add,
)
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.endpoint import Completion, Endpoint, Operation, Status
from stagecoach.sim.model.extensions import Extensions
from stagecoach.sim.model.memory import MemoryTable
from stagecoach.sim.model.rdmap import Opcode

STAG, BASE, WORDS = 0x1234_5678, 0x1000_0000, 8
DATA, MASK = 0x0102_0304_0506_0708, 0xF0F0_F0F0_0F0F_0F0F


def ends(**options) -> tuple[Endpoint, Endpoint, bytearray]:
    """Initiator, responder, and registered memory of the responder."""
    options = {"extensions": Extensions(), **options}
    left, right = Endpoint(**options), Endpoint(responder=True, **options)
    memory = bytearray(8 * WORDS)
    right.register(memory, stag=STAG, base=BASE)
    return left, right, memory


def exchange(left: Endpoint, right: Endpoint) -> list[tuple[UntaggedHeader | TaggedHeader, bytes]]:
    """Moves octets both ways until both are silent; gives what was sent."""
    deframers = {left: mpa.Deframer(), right: mpa.Deframer()}
    sent = []
    while True:
        moved = False
        for source, destination in ((left, right), (right, left)):
            for fpdu in source.take_output():
                moved = True
                sent += map(ddp.decode, deframers[source].feed(fpdu))
                destination.receive(fpdu)
        if not moved:
            return sent


def opcodes(sent) -> list[Opcode]:
    return [Opcode(header.rsvd_ulp & 0xF) for header, _ in sent]


@pytest.mark.parametrize("order", ["little", "big"])
def test_the_three_operations_count_in_the_byte_order_of_the_memory(order):
    left, right, memory = ends(extensions=Extensions(byte_order=order))
    value = 0x00FF_00FF_00FF_00FF
    for word in range(3):
        memory[8 * word : 8 * word + 8] = value.to_bytes(8, order)
    left.fetch_add(STAG, BASE, DATA, "add", mask=MASK)
    left.swap(STAG, BASE + 8, DATA, "swap")
    left.cmp_swap(STAG, BASE + 16, value & 0xFF, DATA, "cmp", compare_mask=0xFF, swap_mask=MASK)
    left.cmp_swap(STAG, BASE + 16, value, 0, "not")
    sent = exchange(left, right)
    expected = [fetch_add(value, DATA, MASK), DATA, cmp_swap(value, DATA, MASK, value, 0xFF), 0, 0]
    assert memory == b"".join(word.to_bytes(8, order) for word in (*expected, 0, 0, 0))
    changed = expected[2]
    assert left.poll() == [
        Completion(Operation.FETCH_ADD, "add", length=8, original=value),
        Completion(Operation.SWAP, "swap", length=8, original=value),
        Completion(Operation.CMP_SWAP, "cmp", length=8, original=value),
        Completion(Operation.CMP_SWAP, "not", length=8, original=changed),
    ]
    assert right.poll() == []
    # On the wire everything is big endian.
    requests, responses = sent[:4], sent[4:]
    assert [(h.qn, h.msn, h.last, h.rsvd_ulp) for h, _ in requests] == [
        (1, msn, True, 0x4A) for msn in (1, 2, 3, 4)
    ]
    assert [AtomicRequest.decode(octets) for _, octets in requests] == [
        AtomicRequest(FETCH_ADD, 1, STAG, BASE, DATA, MASK, 0, WORD),
        AtomicRequest(SWAP, 2, STAG, BASE + 8, DATA, WORD, 0, WORD),
        AtomicRequest(CMP_SWAP, 3, STAG, BASE + 16, DATA, MASK, 0xFF, 0xFF),
        AtomicRequest(CMP_SWAP, 4, STAG, BASE + 16, 0, WORD, value, WORD),
    ]
    assert [(h.qn, h.msn, h.last, h.rsvd_ulp) for h, _ in responses] == [
        (3, msn, True, 0x4B) for msn in (1, 2, 3, 4)
    ]
    assert [AtomicResponse.decode(octets) for _, octets in responses] == [
        AtomicResponse(identifier, original)
        for identifier, original in ((1, value), (2, value), (3, value), (4, changed))
    ]


def test_reads_and_atomics_are_answered_in_the_order_of_the_requests():
    left, right, memory = ends()
    back = bytearray(8 * 4)
    left.register(back, stag=1)
    for number in range(4):
        left.rdma_read(1, 8 * number, 8, STAG, BASE, f"read {number}")
        left.fetch_add(STAG, BASE, 1, f"add {number}")
    sent = exchange(left, right)
    assert opcodes(sent) == [
        *[Opcode.RDMA_READ_REQUEST, Opcode.ATOMIC_REQUEST] * 4,
        *[Opcode.RDMA_READ_RESPONSE, Opcode.ATOMIC_RESPONSE] * 4,
    ]
    assert [header.msn for header, _ in sent[:8]] == list(range(1, 9)), "one queue"
    # Every read sees the additions before it, and no other.
    assert back == b"".join(number.to_bytes(8, "little") for number in range(4))
    completions = left.poll()
    assert [c.work_id for c in completions] == [
        f"{k} {n}" for n in range(4) for k in ("read", "add")
    ]
    assert [c.original for c in completions[1::2]] == [0, 1, 2, 3]
    assert memory[0] == 4


@pytest.mark.parametrize("order", [1, 2, 5])
def test_reads_and_atomics_share_the_ord(order):
    left, right, _ = ends(ord=order)
    left.register(bytearray(8), stag=1)
    for number in range(6):
        if number % 2:
            left.rdma_read(1, 0, 8, STAG, BASE, number)
        else:
            left.fetch_add(STAG, BASE, 1, number)
    left.post_send(b"", "behind")
    right.post_receive(0)
    assert len(left.take_output()) == order
    left.tcp_closed()
    completions = left.poll()
    assert [c.work_id for c in completions] == [*range(6), "behind"]
    assert all(c.status is Status.FLUSHED for c in completions)


def test_streams_that_share_a_word_count_every_addition_once():
    memory = bytearray(8)
    table = MemoryTable()
    extensions = Extensions()
    pairs = []
    for _ in range(4):
        left = Endpoint(extensions=extensions)
        pairs.append((left, Endpoint(responder=True, memory=table, extensions=extensions)))
    pairs[0][1].register(memory, stag=STAG, base=BASE)
    rng = random.Random(7306)
    for left, _ in pairs:
        for _ in range(25):
            left.fetch_add(STAG, BASE, 1)
    while any(not left.idle for left, _ in pairs):
        left, right = rng.choice(pairs)
        for fpdu in left.take_output(rng.randint(0, 3)):
            right.receive(fpdu)
        for fpdu in right.take_output(rng.randint(0, 3)):
            left.receive(fpdu)
    originals = [[c.original for c in left.poll()] for left, _ in pairs]
    assert sorted(itertools.chain(*originals)) == list(range(100))
    assert all(first < second for one in originals for first, second in itertools.pairwise(one))
    assert int.from_bytes(memory, "little") == 100


def test_immediate_data_shares_queue_0_with_sends():
    left, right, memory = ends()
    for number in range(5):
        right.post_receive(8, number)
    left.post_send(b"send", "a")
    left.post_immediate(b"IMMEDIAT", "b")
    left.post_immediate(b"SOLICITE", "c", solicited=True)
    left.rdma_write_with_immediate(b"written", b"WITH IMM", STAG, BASE + 1, "d")
    left.post_send(b"", "e")
    sent = exchange(left, right)
    assert opcodes(sent) == [
        Opcode.SEND,
        Opcode.IMMEDIATE_DATA,
        Opcode.IMMEDIATE_DATA_WITH_SE,
        Opcode.RDMA_WRITE,
        Opcode.IMMEDIATE_DATA,
        Opcode.SEND,
    ]
    untagged = [header for header, _ in sent if isinstance(header, UntaggedHeader)]
    assert [(h.qn, h.msn, h.rsvd_ulp_word) for h in untagged] == [(0, n, 0) for n in range(1, 6)]
    assert [len(octets) for _, octets in sent[1:3]] == [8, 8]
    assert right.poll() == [
        Completion(Operation.RECEIVE, 0, length=4, payload=b"send"),
        Completion(Operation.RECEIVE, 1, immediate=b"IMMEDIAT"),
        Completion(Operation.RECEIVE, 2, immediate=b"SOLICITE", solicited=True),
        Completion(Operation.RECEIVE, 3, immediate=b"WITH IMM"),
        Completion(Operation.RECEIVE, 4),
    ]
    assert left.poll() == [
        Completion(Operation.SEND, "a", length=4),
        Completion(Operation.IMMEDIATE_DATA, "b", length=8),
        Completion(Operation.IMMEDIATE_DATA, "c", length=8),
        Completion(Operation.RDMA_WRITE_WITH_IMMEDIATE, "d", length=7),
        Completion(Operation.SEND, "e"),
    ]
    assert memory[:9] == b"\0written\0"


def test_write_with_immediate_has_one_completion_when_flushed():
    for fpdus in range(3):
        left, _, _ = ends(mulpdu=128)
        left.rdma_write_with_immediate(bytes(100), bytes(8), STAG, BASE, "cut")
        left.take_output(fpdus)
        left.tcp_closed()
        left.rdma_write_with_immediate(b"", bytes(8), STAG, BASE, "late")
        flushed = [("cut", Status.SUCCESS if fpdus == 2 else Status.FLUSHED)]
        found = [(c.work_id, c.status) for c in left.poll()]
        assert found == [*flushed, ("late", Status.FLUSHED)]


def test_an_atomic_operation_completes_with_its_response_alone():
    left, right, _ = ends()
    left.fetch_add(STAG, BASE, 1, "add")
    left.post_send(b"", "send")
    right.post_receive(0)
    for fpdu in left.take_output():
        right.receive(fpdu)
    assert left.poll() == [], "the Send waits for the work before it"
    for fpdu in right.take_output():
        left.receive(fpdu)
    assert [c.work_id for c in left.poll()] == ["add", "send"]


def test_a_peer_without_extensions_terminates():
    left = Endpoint(extensions=Extensions())
    right = Endpoint(responder=True)
    left.fetch_add(STAG, BASE, 0, "probe")
    exchange(left, right)
    assert left.terminate_received.error == errors.RDMAP_UNEXPECTED_OPCODE
    assert left.poll() == [Completion(Operation.FETCH_ADD, "probe", Status.FLUSHED)]


def test_what_cannot_be_posted_is_refused():
    left, _, _ = ends(extensions=Extensions(strict_rfc7306=True))
    with pytest.raises(ValueError, match="SWAP is not in RFC 7306"):
        left.swap(STAG, BASE, 1)
    with pytest.raises(ValueError, match="7 bytes; 8 are required"):
        left.post_immediate(bytes(7))
    with pytest.raises(ValueError, match="9 bytes; 8 are required"):
        left.rdma_write_with_immediate(b"", bytes(9), STAG, BASE)
    with pytest.raises(ValueError, match="64 bits are possible"):
        left.fetch_add(STAG, BASE, -1)
    plain = Endpoint()
    for post in (
        lambda: plain.fetch_add(STAG, BASE, 1),
        lambda: plain.cmp_swap(STAG, BASE, 1, 2),
        lambda: plain.post_immediate(bytes(8)),
    ):
        with pytest.raises(ValueError, match="without extensions"):
            post()
    assert left.idle and plain.idle


def test_msns_and_identifiers_wrap():
    left, right, memory = ends()
    left._sink.atomic_responses.msn = right._transmitter.msn[3] = 2**32 - 1
    for _ in range(3):
        left.fetch_add(STAG, BASE, 1)
    sent = exchange(left, right)
    assert left.error is None
    assert [header.msn for header, _ in sent[3:]] == [2**32 - 1, 0, 1]
    assert memory[0] == 3


OPERATIONS = st.tuples(
    st.sampled_from(["add", "swap", "compare", "read", "write", "send", "immediate", "both"]),
    st.integers(0, WORDS - 1),
    st.integers(0, WORD),
    st.sampled_from([0, 0xFF, WORD, MASK]),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.booleans(), OPERATIONS), max_size=20), st.integers(1, 3))
def test_any_mixture_is_as_if_done_one_after_the_other(work, depth):
    pair = [
        Endpoint(extensions=Extensions(), ord=depth, ird=depth, responder=side) for side in (0, 1)
    ]
    memories = [bytearray(8 * WORDS) for _ in pair]
    # Each side works in the memory of the other one.
    for end, memory in zip(pair, memories, strict=True):
        end.register(memory, stag=STAG, base=BASE)
        end.register(bytearray(8), stag=1)
    model = [[0] * WORDS for _ in pair]
    originals: list[list[int]] = [[], []]
    received: list[list[bytes | None]] = [[], []]
    pair[1].post_receive(0)
    pair[0].post_send(b"")
    for side, (kind, word, value, mask) in work:
        end, other, words = pair[side], pair[1 - side], model[1 - side]
        to, old = BASE + 8 * word, words[word]
        octets = value.to_bytes(8, "little")
        if kind == "add":
            end.fetch_add(STAG, to, value, mask=mask)
            words[word] = fetch_add(old, value, mask)
        elif kind == "swap":
            end.swap(STAG, to, value)
            words[word] = value
        elif kind == "compare":
            end.cmp_swap(STAG, to, old ^ mask, value, compare_mask=0xFF00, swap_mask=mask)
            words[word] = cmp_swap(old, value, mask, old ^ mask, 0xFF00)
        elif kind == "read":
            end.rdma_read(1, 0, 8, STAG, to)
        elif kind in ("write", "both"):
            # Of what is under way a Write knows nothing: so wait for it.
            exchange(*pair)
            words[word] = value
            if kind == "write":
                end.rdma_write(octets, STAG, to)
            else:
                end.rdma_write_with_immediate(octets, octets[::-1], STAG, to)
        else:
            send = end.post_immediate if kind == "immediate" else end.post_send
            send(octets)
        if kind in ("add", "swap", "compare"):
            originals[side].append(old)
        if kind in ("send", "immediate", "both"):
            other.post_receive(8)
            immediate = {"send": None, "immediate": octets, "both": octets[::-1]}[kind]
            received[1 - side].append(immediate)
    exchange(*pair)
    for side, end in enumerate(pair):
        assert end.error is None, end.error_detail
        completions = end.poll()
        assert [c.original for c in completions if c.original is not None] == originals[side]
        receives = [c for c in completions if c.operation is Operation.RECEIVE]
        assert [c.immediate for c in receives][side:] == received[side]
        expected = b"".join(word.to_bytes(8, "little") for word in model[side])
        assert memories[side] == expected
