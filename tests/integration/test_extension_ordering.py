"""Litmus tests of the ordering tables of RFC 7306, 7 and draft-ietf-storm-rdmap-ext-00, 7.

Both have the same rows. Where they differ (Atomic after Atomic, Atomic after RDMA Write), RFC
7306 asks for more, and that is tested. Where a row lets the second operation overtake the first,
its test says that nothing comes to harm.

| first | second | test at the responder |
|---|---|---|
| Immediate Data | Send | test_completed_in_order |
| Immediate Data | RDMA Write | test_a_write_behind_immediate_data |
| Immediate Data | RDMA Read | test_answered_behind_a_completion |
| Immediate Data | Atomic | test_answered_behind_a_completion |
| Immediate Data or Send | Immediate Data | test_completed_in_order |
| RDMA Write | Immediate Data | test_immediate_data_behind_a_write |
| RDMA Read | Immediate Data | test_overtaking_answers_that_wait |
| Atomic | Immediate Data | test_overtaking_answers_that_wait |
| Atomic | Send | test_overtaking_answers_that_wait, test_placed_on_the_word_of_an_atomic |
| Atomic | RDMA Write | test_placed_on_the_word_of_an_atomic |
| Atomic | RDMA Read | test_a_read_sees_the_atomic_before_it |
| Atomic | Atomic | test_atomics_are_one_behind_the_other |
| Send | Atomic | test_an_atomic_sees_what_was_placed_before_it, test_answered_behind_a_completion |
| RDMA Write | Atomic | test_an_atomic_sees_what_was_placed_before_it |
| RDMA Read | Atomic | test_an_atomic_behind_a_read |

At the requester, test_the_requester_completes_in_order has all of them.
"""

from collections.abc import Callable, Iterator

import pytest

from stagecoach.host_driver import Context, RecvWR, SendWR, WCOpcode, WCStatus, WROpcode
from stagecoach.sim.model import ddp
from stagecoach.sim.model.atomics import CMP_SWAP, FETCH_ADD, WORD, AtomicRequest
from stagecoach.sim.model.rdmap import Opcode, ReadRequest, control_octet, decode_control
from stagecoach.sim.transport import SimulatedDevice
from tests.integration.rig import READS, End, RawPeer, open_device
from tests.integration.test_atomics import request_ulpdu, response_of, response_ulpdu
from tests.integration.test_ordering import (
    MEMORIES,
    MULPDU,
    OCTETS,
    TAIL,
    TAIL_OCTETS,
    answers,
    immediate,
    pattern,
    read,
    send,
    write,
)

pytestmark = pytest.mark.timeout(150)  # the first test may have to build the device

SECONDS = 20.0
ROUNDS = 12
LAST_WORD = OCTETS - 8
"""Of what is placed, the octets that come last: an atomic that is too early finds others."""


@pytest.fixture(scope="module", params=MEMORIES.values(), ids=MEMORIES)
def context(request: pytest.FixtureRequest) -> Iterator[Context]:
    """Reads take no longer than they must, so that they find what is not there yet."""
    with open_device(read_latency=1, **request.param) as opened:
        yield opened


def add(end: End, msn: int, offset: int, data: int = 1) -> bytes:
    """A FetchAdd; its identifier is its MSN."""
    request = AtomicRequest(FETCH_ADD, msn, end.mr.rkey, end.mr.addr + offset, data, 0)
    return request_ulpdu(msn, request)


def look(end: End, msn: int, offset: int) -> bytes:
    """A CmpSwap that changes nothing."""
    request = AtomicRequest(CMP_SWAP, msn, end.mr.rkey, end.mr.addr + offset, 0, 0, 0, WORD)
    return request_ulpdu(msn, request)


def word_of(octets: bytes, offset: int = 0) -> int:
    return int.from_bytes(octets[offset : offset + 8], "little")


def opcode_of(ulpdu: bytes) -> Opcode:
    return Opcode(decode_control(ddp.decode(ulpdu)[0].rsvd_ulp).opcode)


@pytest.mark.requirement("EXT-7-01", "EXT-6.3-03")
@pytest.mark.parametrize(
    "kinds",
    [(immediate, send), (immediate, immediate), (send, immediate)],
    ids=lambda kinds: " ".join(kind.__name__ for kind in kinds),
)
def test_completed_in_order(context: Context, kinds: tuple[Callable, Callable]):
    end = End(context, OCTETS)
    peer = RawPeer(end.qp)
    for number in range(ROUNDS):
        end.qp.post_recv(*(RecvWR(n, [end.element()]) for n in range(2)))
        ulpdus = []
        for msn, kind in enumerate(kinds, start=2 * number + 1):
            ulpdus += send(msn, pattern(number)) if kind is send else immediate(msn)
        peer.send(*ulpdus)
        found = end.cq.wait(2, SECONDS)
        if send in kinds:
            assert end.buffer == pattern(number), f"round {number}"
        assert [(wc.wr_id, wc.status) for wc in found] == [(n, WCStatus.SUCCESS) for n in range(2)]
        opcodes = {send: WCOpcode.RECV, immediate: WCOpcode.RECV_RDMA_WITH_IMM}
        assert [wc.opcode for wc in found] == [opcodes[kind] for kind in kinds]
    end.close()
    peer.close()


@pytest.mark.requirement("EXT-7-01")
def test_a_write_behind_immediate_data(context: Context):
    """Its octets may be there first; the Immediate Data are what they were."""
    end = End(context, OCTETS)
    peer = RawPeer(end.qp)
    for number in range(ROUNDS):
        msn = number + 1
        end.qp.post_recv(RecvWR(msn, [end.element()]))
        peer.send(*immediate(msn), *write(end, pattern(number)), *read(end, msn, *TAIL))
        (found,) = end.cq.wait(1, SECONDS)
        assert (found.wr_id, found.status) == (msn, WCStatus.SUCCESS)
        assert found.imm_data == msn.to_bytes(8)
        peer.pump_until(lambda count=msn: len(answers(peer)) == count, SECONDS)
        assert answers(peer)[-1] == pattern(number)[-TAIL_OCTETS:]
        assert end.buffer == pattern(number)
    end.close()
    peer.close()


@pytest.mark.requirement("EXT-7-01", "EXT-6-01")
def test_immediate_data_behind_a_write(context: Context):
    end = End(context, OCTETS)
    peer = RawPeer(end.qp)
    for number in range(ROUNDS):
        msn = number + 1
        end.qp.post_recv(RecvWR(msn))
        peer.send(*write(end, pattern(number)), *immediate(msn))
        (found,) = end.cq.wait(1, SECONDS)
        assert end.buffer == pattern(number), f"round {number}"
        assert (found.wr_id, found.imm_data) == (msn, msn.to_bytes(8))
    end.close()
    peer.close()


@pytest.mark.requirement("EXT-7-01", "RDMAP-B-01")
@pytest.mark.parametrize("second", ["read", "atomic"])
@pytest.mark.parametrize("first", [immediate, send])
def test_answered_behind_a_completion(context: Context, first: Callable, second: str):
    """With the answer, the completion of the first is there, and what it placed."""
    end = End(context, OCTETS)
    peer = RawPeer(end.qp)
    for number in range(ROUNDS):
        msn = number + 1
        end.qp.post_recv(RecvWR(msn, [end.element()]))
        before = send(msn, pattern(number)) if first is send else immediate(msn)
        behind = read(end, msn, 8, LAST_WORD) if second == "read" else [look(end, msn, LAST_WORD)]
        peer.send(*before, *behind)
        peer.pump_until(lambda count=msn: len(peer.ulpdus) == count, SECONDS)
        found = end.cq.poll()
        assert [(wc.wr_id, wc.status) for wc in found] == [(msn, WCStatus.SUCCESS)]
        value = word_of(pattern(number)) if first is send else 0
        if second == "read":
            assert word_of(answers(peer)[-1]) == value
        else:
            assert response_of(peer.ulpdus[-1], msn).original == value
    end.close()
    peer.close()


@pytest.mark.requirement("EXT-5.4-02", "EXT-5.4-04", "EXT-7-01")
@pytest.mark.requirement("EXT7306-5.4-03")
@pytest.mark.parametrize("first", ["write", "send"])
def test_an_atomic_sees_what_was_placed_before_it(context: Context, first: str):
    end = End(context, OCTETS)
    peer = RawPeer(end.qp)
    for number in range(ROUNDS):
        msn = number + 1
        end.qp.post_recv(RecvWR(msn, [end.element()]))
        placed = pattern(number)
        before = write(end, placed) if first == "write" else send(msn, placed)
        peer.send(*before, add(end, msn, LAST_WORD, data=7))
        peer.pump_until(lambda count=msn: len(peer.ulpdus) == count, SECONDS)
        assert response_of(peer.ulpdus[-1], msn).original == word_of(placed), f"round {number}"
        # All of the first is there, and the change on top of it.
        assert end.buffer[:LAST_WORD] == placed[:LAST_WORD]
        assert word_of(end.buffer, LAST_WORD) == (word_of(placed) + 7) & WORD
    end.close()
    peer.close()


@pytest.mark.requirement("EXT-5.4-03", "EXT-5.4-05", "EXT-7-01")
@pytest.mark.parametrize("last", [immediate, send])
@pytest.mark.parametrize("first", ["read", "atomic"])
def test_overtaking_answers_that_wait(context: Context, first: str, last: Callable):
    """The peer takes no octet of the answers until the message after the requests is there."""
    end = End(context, OCTETS)
    start = bytes(n % 251 for n in range(OCTETS))
    end.buffer[:] = start
    peer = RawPeer(end.qp)
    receive = bytearray(64)
    for number in range(4):
        msns = range(READS * number + 1, READS * (number + 1) + 1)
        requests = [
            ulpdu
            for msn in msns
            for ulpdu in (read(end, msn) if first == "read" else [add(end, msn, 0)])
        ]
        end.qp.post_recv(RecvWR(number, [end.element(100, 64)]))
        payload = bytes([number]) * 64
        behind = send(number + 1, payload) if last is send else immediate(number + 1)
        before = bytes(end.buffer)
        peer.ulpdus.clear()
        peer.send_octets(b"".join(map(peer.framer.frame, [*requests, *behind])))
        (found,) = end.cq.wait(1, SECONDS)
        assert (found.wr_id, found.status) == (number, WCStatus.SUCCESS)
        if last is send:
            receive[:] = payload
            assert end.buffer[100:164] == receive
        if first == "atomic":
            peer.pump_until(lambda: len(peer.ulpdus) == READS, SECONDS)
            for msn, ulpdu in zip(msns, peer.ulpdus, strict=True):
                answer = response_of(ulpdu, msn)
                assert (answer.identifier, answer.original) == (msn, word_of(start) + msn - 1)
            assert word_of(end.buffer) == word_of(start) + msns[-1]
            continue
        peer.pump_until(lambda: len(answers(peer)) == READS, SECONDS)
        for octets in answers(peer):
            # The Send may be placed between the reading of any two octets.
            pairs = zip(octets, before, end.buffer, strict=True)
            assert all(octet in (old, new) for octet, old, new in pairs)
    end.close()
    peer.close()


@pytest.mark.requirement("EXT-5.4-03", "EXT-7-01")
@pytest.mark.parametrize("second", ["write", "send"])
def test_placed_on_the_word_of_an_atomic(context: Context, second: str):
    """Which of them comes first is open; nothing but one after the other is allowed."""
    end = End(context, OCTETS)
    peer = RawPeer(end.qp)
    for number in range(ROUNDS):
        msn = number + 1
        old, new = word_of(end.buffer), word_of(pattern(number))
        end.qp.post_recv(RecvWR(msn, [end.element()]))
        behind = write(end, pattern(number)) if second == "write" else send(msn, pattern(number))
        peer.ulpdus.clear()
        peer.send(add(end, 2 * msn - 1, 0, data=9), *behind, *read(end, 2 * msn, *TAIL))
        peer.pump_until(lambda: len(peer.ulpdus) == 2, SECONDS)
        original = response_of(peer.ulpdus[0], msn).original
        assert ddp.decode(peer.ulpdus[1])[1] == pattern(number)[-TAIL_OCTETS:]
        # An atomic is one step only to other atomics: its write may stand over the payload.
        allowed = {(old, new), (old, (old + 9) & WORD), (new, (new + 9) & WORD)}
        assert (original, word_of(end.buffer)) in allowed, f"round {number}"
        assert end.buffer[8:] == pattern(number)[8:]
    end.close()
    peer.close()


@pytest.mark.requirement("EXT-5.4-08", "EXT-7-01")
def test_a_read_sees_the_atomic_before_it(context: Context):
    end = End(context, OCTETS)
    peer = RawPeer(end.qp)
    for number in range(ROUNDS):
        msn = 2 * number + 1
        peer.ulpdus.clear()
        peer.send(add(end, msn, 16, data=3), *read(end, msn + 1, 8, 16))
        peer.pump_until(lambda: len(peer.ulpdus) == 2, SECONDS)
        assert response_of(peer.ulpdus[0], number + 1).original == 3 * number
        assert word_of(ddp.decode(peer.ulpdus[1])[1]) == 3 * (number + 1), f"round {number}"
    end.close()
    peer.close()


@pytest.mark.requirement("EXT-5.4-08", "EXT-7-01")
def test_an_atomic_behind_a_read(context: Context):
    """It is answered after all of the Read Response, which has its word as it was before."""
    end = End(context, OCTETS)
    peer = RawPeer(end.qp)
    for number in range(ROUNDS):
        msn = 2 * number + 1
        before = bytes(end.buffer)
        peer.ulpdus.clear()
        peer.send(*read(end, msn), add(end, msn + 1, LAST_WORD))
        peer.pump_until(
            lambda: bool(peer.ulpdus) and opcode_of(peer.ulpdus[-1]) == Opcode.ATOMIC_RESPONSE,
            SECONDS,
        )
        assert {opcode_of(ulpdu) for ulpdu in peer.ulpdus[:-1]} == {Opcode.RDMA_READ_RESPONSE}
        assert answers(peer)[0] == before  # the other is the Atomic Response
        assert response_of(peer.ulpdus[-1], number + 1).original == number
    end.close()
    peer.close()


@pytest.mark.requirement("EXT-5.4-07", "EXT-5.4-08", "EXT-7-01", "EXT7306-7-01")
def test_atomics_are_one_behind_the_other(context: Context):
    """On one word, and on different ones, each finds what the one before it left."""
    end = End(context, OCTETS)
    peer = RawPeer(end.qp)
    values = [0, 0, 0]
    for number in range(ROUNDS):
        ulpdus, expected = [], []
        for msn in range(READS * number + 1, READS * (number + 1) + 1):
            word = (0, 0, 1, 0, 2, 2, 1, 0)[msn % 8]
            expected.append((msn, values[word]))
            values[word] += msn
            ulpdus.append(add(end, msn, 8 * word, data=msn))
        peer.ulpdus.clear()
        peer.send(*ulpdus)
        peer.pump_until(lambda: len(peer.ulpdus) == READS, SECONDS)
        found = [
            response_of(ulpdu, msn) for (msn, _), ulpdu in zip(expected, peer.ulpdus, strict=True)
        ]
        assert [(answer.identifier, answer.original) for answer in found] == expected
        assert [word_of(end.buffer, 8 * word) for word in range(3)] == values
    end.close()
    peer.close()


ROWS = [
    (WROpcode.IMM_DATA, WROpcode.SEND),
    (WROpcode.IMM_DATA, WROpcode.RDMA_WRITE),
    (WROpcode.IMM_DATA, WROpcode.RDMA_READ),
    (WROpcode.IMM_DATA, WROpcode.ATOMIC_FETCH_AND_ADD),
    (WROpcode.IMM_DATA, WROpcode.IMM_DATA),
    (WROpcode.SEND, WROpcode.IMM_DATA),
    (WROpcode.RDMA_WRITE, WROpcode.IMM_DATA),
    (WROpcode.RDMA_READ, WROpcode.IMM_DATA),
    (WROpcode.ATOMIC_FETCH_AND_ADD, WROpcode.IMM_DATA),
    (WROpcode.ATOMIC_FETCH_AND_ADD, WROpcode.SEND),
    (WROpcode.ATOMIC_FETCH_AND_ADD, WROpcode.RDMA_WRITE),
    (WROpcode.ATOMIC_FETCH_AND_ADD, WROpcode.RDMA_READ),
    (WROpcode.ATOMIC_FETCH_AND_ADD, WROpcode.ATOMIC_CMP_AND_SWP),
    (WROpcode.SEND, WROpcode.ATOMIC_CMP_AND_SWP),
    (WROpcode.RDMA_WRITE, WROpcode.ATOMIC_CMP_AND_SWP),
    (WROpcode.RDMA_READ, WROpcode.ATOMIC_CMP_AND_SWP),
]

ANSWERED = (WROpcode.RDMA_READ, WROpcode.ATOMIC_FETCH_AND_ADD, WROpcode.ATOMIC_CMP_AND_SWP)

SENT = {
    WROpcode.IMM_DATA: Opcode.IMMEDIATE_DATA,
    WROpcode.SEND: Opcode.SEND,
    WROpcode.RDMA_WRITE: Opcode.RDMA_WRITE,
    WROpcode.RDMA_READ: Opcode.RDMA_READ_REQUEST,
    WROpcode.ATOMIC_FETCH_AND_ADD: Opcode.ATOMIC_REQUEST,
    WROpcode.ATOMIC_CMP_AND_SWP: Opcode.ATOMIC_REQUEST,
}


def run_cycles(context: Context, cycles: int) -> None:
    transport = context.transport
    assert isinstance(transport, SimulatedDevice)
    transport.run_cycles(cycles)


def answer(request: bytes, value: int, msn: int) -> bytes:
    """The answer to a request of the device, the MSN of which is used only of an atomic."""
    _, payload = ddp.decode(request)
    if opcode_of(request) == Opcode.ATOMIC_REQUEST:
        return response_ulpdu(msn, AtomicRequest.decode(payload).identifier, value)
    asked = ReadRequest.decode(payload)
    (segment,) = ddp.segment_tagged(
        value.to_bytes(asked.size, "little"),
        stag=asked.sink_stag,
        tagged_offset=asked.sink_tagged_offset,
        mulpdu=MULPDU,
        rsvd_ulp=control_octet(Opcode.RDMA_READ_RESPONSE),
    )
    return segment


@pytest.mark.requirement("EXT-5.4-06", "EXT-7-01", "EXT-6.3-06")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0].name}, {row[1].name}")
def test_the_requester_completes_in_order(context: Context, row: tuple[WROpcode, WROpcode]):
    """Nothing completes before the answer to it and to all before it; then its sink is filled."""
    end = End(context, 64)
    peer = RawPeer(end.qp)
    atomics = 0
    for number in range(4):
        peer.ulpdus.clear()
        requests = []
        for place, opcode in enumerate(row):
            remote = {} if opcode in (WROpcode.SEND, WROpcode.IMM_DATA) else {"rkey": 5}
            if opcode == WROpcode.IMM_DATA:
                remote["imm_data"] = bytes(8)
            elements = [] if opcode == WROpcode.IMM_DATA else [end.element(8 * place, 8)]
            requests.append(SendWR(2 * number + place, opcode, elements, **remote))
        end.qp.post_send(*requests)
        peer.pump_until(lambda: len(peer.ulpdus) == 2, SECONDS)
        # Sent in the order in which they were posted.
        assert [opcode_of(ulpdu) for ulpdu in peer.ulpdus] == [SENT[opcode] for opcode in row]
        done = 0
        for place, opcode in enumerate(row):
            value = 1000 * number + place + 1
            if opcode in ANSWERED:
                run_cycles(context, 1000)
                assert not end.cq.poll(), "after what has no answer"
                assert not peer.ended and word_of(end.buffer, 8 * place) != value
                atomics += opcode != WROpcode.RDMA_READ
                peer.send(answer(peer.ulpdus[place], value, atomics))
            done += 1
            # All up to the next one that waits for its answer complete.
            if place == 0 and row[1] not in ANSWERED:
                continue
            found = end.cq.wait(done, SECONDS)
            if opcode in ANSWERED:
                assert word_of(end.buffer, 8 * place) == value
            first = 2 * number + place + 1 - done
            assert [(wc.wr_id, wc.status) for wc in found] == [
                (first + n, WCStatus.SUCCESS) for n in range(done)
            ]
            done = 0
    end.close()
    peer.close()
