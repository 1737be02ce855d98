"""Atomics of the whole device, through the verbs and against peers that see every octet."""

import random
import socket
import time
from collections import deque
from collections.abc import Iterator

import pytest

from host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    AccessFlags,
    Context,
    QPCap,
    QPInitAttr,
    SendWR,
    WCOpcode,
    WCStatus,
    WROpcode,
)
from host_driver.transport.sockets import SocketStream
from sim.model import ddp, rdmap
from sim.model.atomics import (
    CMP_SWAP,
    FETCH_ADD,
    SWAP,
    WORD,
    AtomicRequest,
    AtomicResponse,
    result_of,
)
from sim.model.ddp import UntaggedHeader
from sim.model.rdmap import Opcode, ReadRequest, control_octet
from tests.integration.rig import READS, End, RawPeer, open_device
from tests.rdmap.serial_order import Operation, serial_order
from tests.support.streams import seeded_random

pytestmark = pytest.mark.timeout(300)  # the first test may have to build the device

SECONDS = 20.0


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    with open_device() as opened:
        yield opened


def join(one: QP, other: QP) -> None:
    """Connects two QPs, of one device or of two."""
    ends = socket.socketpair()
    one.connect(SocketStream(ends[0]), initiator=True, crc=True, ord=READS, ird=READS, emss=1460)
    other.connect(SocketStream(ends[1]), initiator=False, crc=True, ord=READS, ird=READS, emss=1460)


def atomic_wr(request: AtomicRequest, sink: SGE, **fields: object) -> SendWR:
    """The work request that asks for what `request` says."""
    opcodes = {
        FETCH_ADD: WROpcode.ATOMIC_FETCH_AND_ADD,
        SWAP: WROpcode.ATOMIC_SWAP,
        CMP_SWAP: WROpcode.ATOMIC_CMP_AND_SWP,
    }
    adds = request.operation == FETCH_ADD
    return SendWR(
        opcode=opcodes[request.operation],  # type: ignore[index]
        sg=[sink],
        rkey=request.stag,
        remote_addr=request.tagged_offset,
        compare_add=request.data if adds else request.compare,
        swap=0 if adds else request.data,
        add_mask=request.mask if adds else 0,
        swap_mask=WORD if adds else request.mask,
        compare_mask=request.compare_mask,
        **fields,  # type: ignore[arg-type]
    )


def random_request(rng: random.Random, stag: int, to: int, **fields: int) -> AtomicRequest:
    operation = rng.choice((FETCH_ADD, SWAP, CMP_SWAP))
    # Few bits are compared, so that CmpSwap often matches.
    compare_mask = rng.choice((0, 1 << rng.randrange(64), WORD)) if operation == CMP_SWAP else WORD
    words = [rng.choice((rng.getrandbits(64), rng.getrandbits(3))) for _ in range(3)]
    return AtomicRequest(
        operation,
        fields.get("identifier", 0),
        stag,
        to,
        words[0],
        WORD if operation == SWAP else words[1],
        words[2] if operation == CMP_SWAP else 0,
        compare_mask,
    )


def request_ulpdu(msn: int, request: AtomicRequest, **fields: object) -> bytes:
    header = {"rsvd_ulp": control_octet(Opcode.ATOMIC_REQUEST)} | fields
    return (
        UntaggedHeader(rdmap.QN_READ_REQUEST, msn, **header).encode()  # type: ignore[arg-type]
        + request.encode()
    )


def response_of(ulpdu: bytes, msn: int) -> AtomicResponse:
    """The Atomic Response, which is the one with that MSN."""
    header, payload = ddp.decode(ulpdu)
    expected = UntaggedHeader(
        rdmap.QN_ATOMIC_RESPONSE, msn, rsvd_ulp=control_octet(Opcode.ATOMIC_RESPONSE)
    )
    assert header == expected, ulpdu.hex()
    return AtomicResponse.decode(payload)


def wait_for(end: End, count: int) -> list:
    found: list = []
    until = time.monotonic() + SECONDS
    while len(found) < count:
        found += end.cq.poll()
        assert time.monotonic() < until, f"{len(found)} of {count} completions"
    return found


def test_operations_between_two_qps(context: Context):
    rng = seeded_random()
    ends = [End(context, 256) for _ in range(2)]
    join(ends[0].qp, ends[1].qp)
    memory = [0] * 4
    for number in range(120):
        word = rng.randrange(4)
        request = random_request(rng, ends[1].mr.rkey, ends[1].mr.addr + 8 * word)
        # The sink may stand anywhere.
        place = rng.randrange(100)
        ends[0].qp.post_send(atomic_wr(request, ends[0].element(place, 8), wr_id=number))
        (completion,) = wait_for(ends[0], 1)
        assert (completion.wr_id, completion.status) == (number, WCStatus.SUCCESS)
        assert completion.byte_len == 8
        kinds = {FETCH_ADD: WCOpcode.FETCH_ADD, SWAP: WCOpcode.SWAP, CMP_SWAP: WCOpcode.COMP_SWAP}
        assert completion.opcode == kinds[request.operation]  # type: ignore[index]
        original = int.from_bytes(ends[0].buffer[place : place + 8], "little")
        assert original == memory[word]
        memory[word] = result_of(request, original)
        found = int.from_bytes(ends[1].buffer[8 * word : 8 * word + 8], "little")
        assert found == memory[word]
    for end in ends:
        end.close()


def test_the_number_is_big_endian_on_the_wire_and_the_hosts_in_memory(context: Context):
    end = End(context, 64)
    end.buffer[:8] = (1).to_bytes(8, "little")
    peer = RawPeer(end.qp)
    request = AtomicRequest(FETCH_ADD, 0xABCDEF01, end.mr.rkey, end.mr.addr, 2, 0)
    peer.send(request_ulpdu(1, request))
    peer.pump_until(lambda: len(peer.ulpdus) == 1, SECONDS)
    assert peer.ulpdus[0][18:] == bytes.fromhex("abcdef01 0000000000000001")
    assert end.buffer[:8] == bytes.fromhex("0300000000000000")
    end.close()
    peer.close()


def test_requests_are_answered_in_the_order_in_which_they_came(context: Context):
    rng = seeded_random()
    end = End(context, 4096)
    peer = RawPeer(end.qp)
    values = [0] * 4
    msn = atomic_msn = 1
    for _ in range(25):
        expected: list[tuple] = []
        ulpdus = []
        for _ in range(rng.randrange(1, READS + 1)):
            if rng.random() < 0.5:
                word = rng.randrange(4)
                identifier = rng.getrandbits(32)
                to = end.mr.addr + 8 * word
                request = random_request(rng, end.mr.rkey, to, identifier=identifier)
                expected.append(("atomic", identifier, values[word]))
                values[word] = result_of(request, values[word])
                ulpdus.append(request_ulpdu(msn, request))
            else:
                size = rng.choice((0, 32, 2000))
                read = ReadRequest(7, 0, size, end.mr.rkey, end.mr.addr)
                octets = b"".join(value.to_bytes(8, "little") for value in values)[:size]
                expected.append(("read", size, octets))
                header = UntaggedHeader(1, msn, rsvd_ulp=control_octet(Opcode.RDMA_READ_REQUEST))
                ulpdus.append(header.encode() + read.encode())
            msn += 1
        peer.ulpdus.clear()
        peer.send(*ulpdus)
        wanted = sum(2 if one[:2] == ("read", 2000) else 1 for one in expected)
        peer.pump_until(lambda count=wanted: len(peer.ulpdus) == count, SECONDS)
        answers = deque(peer.ulpdus)
        for kind, number, content in expected:
            if kind == "atomic":
                answer = response_of(answers.popleft(), atomic_msn)
                assert (answer.identifier, answer.original) == (number, content)
                atomic_msn += 1
            else:
                header, payload = ddp.decode(answers.popleft())
                if not header.last:
                    payload += ddp.decode(answers.popleft())[1]
                assert isinstance(header, ddp.TaggedHeader) and len(payload) == number
                assert payload[:32] == content[:32]
    end.close()
    peer.close()


def test_many_qps_have_a_serial_order(context: Context):
    rng = seeded_random()
    pd, cq = PD(context), CQ(context)
    buffer = bytearray(64)
    mr = MR(pd, buffer, AccessFlags.REMOTE_ATOMIC)
    count = 64
    qps = [QP(pd, QPInitAttr(cq, cq, QPCap(1, 1))) for _ in range(count)]
    peers = [RawPeer(qp) for qp in qps]
    words, initial = 3, [rng.getrandbits(64) for _ in range(3)]
    for word in range(words):
        buffer[8 * word : 8 * word + 8] = initial[word].to_bytes(8, "little")
    per_qp, clock = 6, 0
    asked: list[deque] = [deque() for _ in range(count)]
    sent, answered = [0] * count, [0] * count
    history: list[list[Operation]] = [[] for _ in range(words)]
    until = time.monotonic() + 3 * SECONDS
    while sum(answered) < count * per_qp:
        assert time.monotonic() < until, f"{sum(answered)} answers"
        for number in rng.sample(range(count), count):
            peer = peers[number]
            clock += 1
            if sent[number] < per_qp and len(asked[number]) < rng.choice((1, 1, 3)):
                sent[number] += 1
                word = rng.randrange(words)
                request = random_request(rng, mr.rkey, mr.addr + 8 * word, identifier=clock)
                asked[number].append((request, word, clock))
                peer.send(request_ulpdu(sent[number], request))
            peer.pump(0)
            while peer.ulpdus:
                clock += 1
                answered[number] += 1
                answer = response_of(peer.ulpdus.pop(0), answered[number])
                request, word, when = asked[number].popleft()
                assert answer.identifier == request.identifier
                history[word].append(
                    Operation(
                        request.operation,
                        request.data,
                        request.mask,
                        request.compare,
                        request.compare_mask,
                        when,
                        clock,
                        answer.original,
                    )
                )
    for word in range(words):
        final = int.from_bytes(buffer[8 * word : 8 * word + 8], "little")
        assert serial_order(history[word], initial[word], final) is not None
    assert sum(map(len, history)) == count * per_qp
    for qp, peer in zip(qps, peers, strict=True):
        qp.close()
        peer.close()
    mr.close()
    cq.close()
    pd.close()
