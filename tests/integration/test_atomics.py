"""Atomics of the whole device, through the verbs and against peers that see every octet."""

import random
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    AccessFlags,
    Cause,
    Context,
    QPCap,
    QPInitAttr,
    QPState,
    SendFlags,
    SendWR,
    WCOpcode,
    WCStatus,
    WROpcode,
)
from stagecoach.host_driver.transport.sockets import SocketStream
from stagecoach.hw.interface.causes import CODES
from stagecoach.sim.cosim.streams import seeded_random
from stagecoach.sim.model import ddp, rdmap
from stagecoach.sim.model.atomics import (
    CMP_SWAP,
    FETCH_ADD,
    SWAP,
    WORD,
    AtomicRequest,
    AtomicResponse,
    result_of,
)
from stagecoach.sim.model.ddp import UntaggedHeader
from stagecoach.sim.model.errors import ErrorCode
from stagecoach.sim.model.rdmap import Opcode, ReadRequest, control_octet
from stagecoach.sim.model.terminate import terminate_for
from tests.integration.rig import READS, End, RawPeer, open_device
from tests.rdmap.atomic.serial_order import Operation, serial_order

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


@pytest.mark.requirement("EXT-5.2.1-10", "EXT-5.2.1-16", "EXT-5.1.1-01", "EXT-5.1.3-01")
@pytest.mark.requirement("EXT-5.2.2-07", "EXT7306-5.1.1-02", "EXT7306-5.1.2-01")
def test_operations_between_two_qps(context: Context):
    rng = seeded_random()
    ends = [End(context, 3 * 4096) for _ in range(2)]
    join(ends[0].qp, ends[1].qp)
    memory = [0] * 4
    page = 2 * 4096 - ends[0].mr.addr % 4096  # a page begins there, with room before it
    for number in range(120):
        word = rng.randrange(4)
        request = random_request(rng, ends[1].mr.rkey, ends[1].mr.addr + 8 * word)
        # The sink may stand anywhere, also in two pages.
        place = page + rng.randrange(-100, 100) if number % 2 else page - rng.randrange(1, 8)
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


@pytest.mark.requirement("EXT-5.1.1-02", "EXT-5.2.2-02")
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


@pytest.mark.requirement("EXT-5-02", "EXT-5.3-01", "EXT7306-5-01", "EXT7306-5.3-01")
def test_many_qps_have_a_serial_order(context: Context):
    rng = seeded_random()
    pd, cq = PD(context), CQ(context)
    buffer = bytearray(64)
    mr = MR(pd, buffer, AccessFlags.REMOTE_ATOMIC)
    count = 64
    qps = [QP(pd, QPInitAttr(cq, cq, QPCap(1, 1), rfc7306=True)) for _ in range(count)]
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


Ask = Callable[[End], AtomicRequest]


def at(offset: int, **fields: int) -> Ask:
    """A FetchAdd of 1 to that octet of the region."""

    def ask(end: End) -> AtomicRequest:
        to = (end.mr.addr + offset) % 2**64
        request = {"operation": FETCH_ADD, "stag": end.mr.rkey, "tagged_offset": to} | fields
        return AtomicRequest(identifier=1, data=1, mask=0, **request)  # type: ignore[arg-type]

    return ask


WRONG: dict[str, tuple[Cause, Ask, AccessFlags]] = {
    "unknown STag": (Cause.ATOMIC_STAG_INVALID, at(0, stag=0), AccessFlags.REMOTE_ATOMIC),
    "after the region": (Cause.ATOMIC_BOUNDS, at(64), AccessFlags.REMOTE_ATOMIC),
    "before the region": (Cause.ATOMIC_BOUNDS, at(-8), AccessFlags.REMOTE_ATOMIC),
    "half in the region": (Cause.ATOMIC_BOUNDS, at(60), AccessFlags.REMOTE_ATOMIC),
    "no read right": (Cause.ATOMIC_NOT_PERMITTED, at(0), AccessFlags.REMOTE_WRITE),
    "no write right": (Cause.ATOMIC_NOT_PERMITTED, at(0), AccessFlags.REMOTE_READ),
    "no right": (Cause.ATOMIC_NOT_PERMITTED, at(0), AccessFlags.LOCAL_WRITE),
    **{
        f"address {offset} mod 8": (Cause.ATOMIC_MISALIGNED, at(offset), AccessFlags.REMOTE_ATOMIC)
        for offset in range(1, 8)
    },
    **{
        f"AOpCode {number}": (
            Cause.ATOMIC_OPERATION_UNSUPPORTED,
            at(0, operation=number),
            AccessFlags.REMOTE_ATOMIC,
        )
        for number in range(3, 16)
    },
}


@pytest.mark.requirement("EXT-5.1.1-03", "EXT-5.1.3-02", "EXT-5.2.1-07", "EXT-5.2.1-12")
@pytest.mark.requirement("EXT-8.2-04", "EXT7306-5.1.1-01", "EXT7306-5.1.2-02", "EXT7306-5.2.1-02")
@pytest.mark.requirement("EXT7306-8.2-01")
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_request_ends_its_stream_and_changes_nothing(context: Context, name: str):
    cause, ask, access = WRONG[name]
    code, _ = CODES[cause]
    assert code is not None
    end, other = End(context, 64, access), End(context, 64)
    end.buffer[:] = bytes(range(64))
    peer, good = RawPeer(end.qp), RawPeer(other.qp)
    wrong = request_ulpdu(1, ask(end))
    # What comes after it, however right, is not done.
    peer.send(wrong, request_ulpdu(2, at(0)(end)))
    good.send(request_ulpdu(1, at(8)(other)))
    peer.pump_until(lambda: peer.ended, SECONDS)
    good.pump_until(lambda: len(good.ulpdus) == 1, SECONDS)
    (answer,) = peer.ulpdus
    expected = terminate_for(ErrorCode(*code), wrong).encode()
    assert answer == UntaggedHeader(2, 1, rsvd_ulp=0x47).encode() + expected
    context.process_events()
    assert (end.qp.state, end.qp.cause) == (QPState.ERR, cause)
    assert end.buffer == bytes(range(64))
    assert response_of(good.ulpdus[0], 1).original == 0
    assert other.qp.state == QPState.RTS
    for each in (end, other, peer, good):
        each.close()


@pytest.mark.requirement("EXT-5.2.1-03", "EXT7306-5.2.1-01")
def test_the_address_is_aligned_whatever_the_tagged_offset_is(context: Context):
    end = End(context, 64)
    memory = memoryview(end.buffer)[1:]
    with MR(end.pd, memory, AccessFlags.REMOTE_ATOMIC) as mr:
        # Octet 7 of this region is octet 8 of the buffer, which begins at a page.
        peer = RawPeer(end.qp)
        request = AtomicRequest(FETCH_ADD, 1, mr.rkey, mr.addr + 7, 5, 0)
        peer.send(request_ulpdu(1, request))
        peer.pump_until(lambda: len(peer.ulpdus) == 1, SECONDS)
        assert response_of(peer.ulpdus[0], 1).original == 0
        assert end.buffer[8] == 5
        end.qp.close()
        peer.close()
    end.close()


@pytest.mark.requirement("EXT7306-5-03")
@pytest.mark.parametrize("strict", [True, False], ids=["strict", "with Swap"])
def test_fetch_add_and_cmp_swap_change_memory(strict: bool):
    with open_device(strict_rfc7306=strict) as context:
        end = End(context, 64)
        peer = RawPeer(end.qp)
        stag, to = end.mr.rkey, end.mr.addr + 8
        other = 0x1122334455667788
        # What the word is before and after each, in order.
        for msn, (request, before, behind) in enumerate(
            (
                (AtomicRequest(FETCH_ADD, 1, stag, to, 5, 0, 0, WORD), 0, 5),
                (AtomicRequest(FETCH_ADD, 2, stag, to, WORD, 0, 0, WORD), 5, 4),
                (AtomicRequest(CMP_SWAP, 3, stag, to, other, WORD, 5, WORD), 4, 4),
                (AtomicRequest(CMP_SWAP, 4, stag, to, other, WORD, 4, WORD), 4, other),
                (AtomicRequest(CMP_SWAP, 5, stag, to, 0, 0xFF, 0, 0), other, other & ~0xFF),
                (AtomicRequest(FETCH_ADD, 6, stag, to, 1, 0, 0, WORD), other & ~0xFF, None),
            ),
            start=1,
        ):
            peer.send(request_ulpdu(msn, request))
            peer.pump_until(lambda msn=msn: len(peer.ulpdus) == msn, SECONDS)  # type: ignore[misc]
            answer = response_of(peer.ulpdus[-1], msn)
            assert (answer.identifier, answer.original) == (msn, before)
            if behind is not None:
                assert int.from_bytes(end.buffer[8:16], "little") == behind
        # Nothing else has changed.
        assert end.buffer[:8] + end.buffer[16:] == bytes(56)
        end.close()
        peer.close()


@pytest.mark.requirement("EXT-5.1.2-01", "EXT7306-1.1-01")
def test_a_strict_device_has_no_swap():
    with open_device(strict_rfc7306=True) as context:
        assert context.attr.atomics == (
            WROpcode.ATOMIC_FETCH_AND_ADD,
            WROpcode.ATOMIC_CMP_AND_SWP,
        )
        for operation in (FETCH_ADD, CMP_SWAP, SWAP):
            end = End(context, 64)
            peer = RawPeer(end.qp)
            peer.send(request_ulpdu(1, at(0, operation=operation)(end)))
            if operation != SWAP:
                peer.pump_until(lambda peer=peer: len(peer.ulpdus) == 1, SECONDS)
                assert response_of(peer.ulpdus[0], 1).original == 0
            else:
                peer.pump_until(lambda peer=peer: peer.ended, SECONDS)
                context.process_events()
                assert end.qp.cause == Cause.ATOMIC_OPERATION_UNSUPPORTED
            end.close()
            peer.close()
        end = End(context, 64)
        peer = RawPeer(end.qp)
        swap = SendWR(opcode=WROpcode.ATOMIC_SWAP, sg=[end.element(0, 8)])
        with pytest.raises(ValueError, match="ATOMIC_SWAP; this device has: ATOMIC_FETCH_AND_ADD"):
            end.qp.post_send(swap)
        end.close()
        peer.close()


def response_ulpdu(msn: int, identifier: int, original: int = 0, **fields: object) -> bytes:
    header = {"rsvd_ulp": control_octet(Opcode.ATOMIC_RESPONSE), "qn": 3, "msn": msn} | fields
    return (
        UntaggedHeader(**header).encode()  # type: ignore[arg-type]
        + AtomicResponse(identifier, original).encode()
    )


@pytest.mark.requirement("EXT-5.2.2-07", "EXT-5.2.1-13", "EXT7306-5.2-01", "EXT-5.2.2-01")
@pytest.mark.requirement("EXT-5.2.1-04", "EXT-5.2.1-05", "EXT-5.2.1-06", "EXT-5.2.1-02")
@pytest.mark.requirement("EXT7306-5.4-02")
def test_what_the_requester_sends_and_takes(context: Context):
    rng = seeded_random()
    end = End(context, 256)
    peer = RawPeer(end.qp)
    wanted = []
    for number in range(READS):
        request = random_request(rng, rng.getrandbits(32), rng.getrandbits(64))
        place = rng.randrange(24) + 32 * number
        wanted.append((request, place, rng.getrandbits(64)))
        end.qp.post_send(atomic_wr(request, end.element(place, 8), wr_id=number))
    peer.pump_until(lambda: len(peer.ulpdus) == READS, SECONDS)
    for msn, ((request, _, _), ulpdu) in enumerate(zip(wanted, peer.ulpdus, strict=True), start=1):
        sent = AtomicRequest.decode(ulpdu[18:])
        assert ulpdu == request_ulpdu(msn, replace(request, identifier=sent.identifier))
    identifiers = [AtomicRequest.decode(ulpdu[18:]).identifier for ulpdu in peer.ulpdus]
    assert len(set(identifiers)) == READS
    # One more waits for an answer: ORD is reached.
    end.qp.post_send(atomic_wr(wanted[0][0], end.element(0, 8), wr_id=READS))
    peer.pump(0.3)
    assert len(peer.ulpdus) == READS and not end.cq.poll()
    for number, (_, _, original) in enumerate(wanted):
        peer.send(response_ulpdu(number + 1, identifiers[number], original))
    found = wait_for(end, READS)
    assert [wc.wr_id for wc in found] == list(range(READS))
    for _, place, original in wanted:
        assert end.buffer[place : place + 8] == original.to_bytes(8, "little")
    peer.pump_until(lambda: len(peer.ulpdus) == READS + 1, SECONDS)
    end.close()
    peer.close()


ANSWERS: dict[str, tuple[Cause, Callable[[int], bytes]]] = {
    "another identifier": (
        Cause.ATOMIC_RESPONSE_IDENTIFIER,
        lambda identifier: response_ulpdu(1, identifier ^ 1),
    ),
    "another MSN": (Cause.UNTAGGED_MSN, lambda identifier: response_ulpdu(2, identifier)),
    "MO": (Cause.UNTAGGED_MO, lambda identifier: response_ulpdu(1, identifier, mo=8)),
    "too long": (
        Cause.ATOMIC_RESPONSE_TOO_LONG,
        lambda identifier: response_ulpdu(1, identifier) + b"\0",
    ),
    "too short": (
        Cause.ATOMIC_RESPONSE_TOO_SHORT,
        lambda identifier: response_ulpdu(1, identifier)[:-1],
    ),
    "not the last segment": (
        Cause.ATOMIC_RESPONSE_TOO_SHORT,
        lambda identifier: response_ulpdu(1, identifier, last=False),
    ),
    "queue 1": (Cause.UNEXPECTED_OPCODE, lambda identifier: response_ulpdu(1, identifier, qn=1)),
}


@pytest.mark.requirement("EXT-5.2.2-08", "EXT7306-5-05", "EXT-5.2.2-06")
@pytest.mark.parametrize("name", ANSWERS)
def test_a_wrong_response_is_an_error(context: Context, name: str):
    cause, answer = ANSWERS[name]
    code, _ = CODES[cause]
    assert code is not None
    end = End(context, 64)
    peer = RawPeer(end.qp)
    request = random_request(random.Random(1), 5, 8)
    end.qp.post_send(atomic_wr(request, end.element(0, 8), wr_id=7))
    peer.pump_until(lambda: len(peer.ulpdus) == 1, SECONDS)
    wrong = answer(AtomicRequest.decode(peer.ulpdus[0][18:]).identifier)
    peer.send(wrong)
    peer.pump_until(lambda: peer.ended, SECONDS)
    expected = terminate_for(ErrorCode(*code), wrong).encode()
    assert peer.ulpdus[1][18:] == expected
    (completion,) = wait_for(end, 1)
    assert (completion.wr_id, completion.status) == (7, WCStatus.WR_FLUSH_ERR)
    assert end.qp.cause == cause and end.buffer == bytes(64)
    end.close()
    peer.close()


def test_an_unasked_response_is_an_error(context: Context):
    end = End(context, 64)
    peer = RawPeer(end.qp)
    # An older RDMA Read is not answered by it.
    end.qp.post_send(SendWR(1, WROpcode.RDMA_READ, [end.element(0, 8)], rkey=5))
    end.qp.post_send(atomic_wr(at(0)(end), end.element(8, 8)))
    peer.pump_until(lambda: len(peer.ulpdus) == 2, SECONDS)
    peer.send(response_ulpdu(1, 1))
    peer.pump_until(lambda: peer.ended, SECONDS)
    assert [wc.status for wc in wait_for(end, 2)] == [WCStatus.WR_FLUSH_ERR] * 2
    assert end.qp.cause == Cause.UNSOLICITED_ATOMIC_RESPONSE
    end.close()
    peer.close()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"sg": []}, "elements of \\[\\] bytes; allowed: one of 8"),
        ({"octets": 4}, "elements of \\[4\\] bytes; allowed: one of 8"),
        ({"send_flags": SendFlags.SOLICITED}, "with SOLICITED; allowed"),
        ({"compare_add": 2**64}, "SendWR.compare_add is 18446744073709551616; allowed"),
        ({"swap_mask": -1}, "SendWR.swap_mask is -1; allowed"),
        ({"swap_mask": 1}, "ADD with swap_mask 0x1; allowed: compare_add, add_mask"),
    ],
)
def test_work_requests_that_no_device_takes(context: Context, fields: dict, text: str):
    end = End(context, 64)
    peer = RawPeer(end.qp)
    request = {"sg": [end.element(0, fields.pop("octets", 8))]} | fields
    with pytest.raises(ValueError, match=text):
        end.qp.post_send(SendWR(opcode=WROpcode.ATOMIC_FETCH_AND_ADD, **request))
    end.close()
    peer.close()


def test_a_read_before_an_atomic_finds_what_was_there_before_it(context: Context):
    end = End(context, 1 << 14)
    peer = RawPeer(end.qp)
    word = end.mr.addr + len(end.buffer) - 8
    for number in range(10):
        first = 3 * number + 1
        peer.ulpdus.clear()
        control = control_octet(Opcode.RDMA_READ_REQUEST)
        reads = [
            UntaggedHeader(1, first + place, rsvd_ulp=control).encode() + request.encode()
            for place, request in enumerate(
                # A long one, which fills the way to the LLP; then the word itself.
                (
                    ReadRequest(7, 0, len(end.buffer) - 8, end.mr.rkey, end.mr.addr),
                    ReadRequest(7, 0, 8, end.mr.rkey, word),
                )
            )
        ]
        add = AtomicRequest(FETCH_ADD, number, end.mr.rkey, word, 1, 0)
        peer.send(*reads, request_ulpdu(first + 2, add))
        peer.pump_until(lambda: bool(peer.ulpdus) and peer.ulpdus[-1][1] == 0x4B, SECONDS)
        assert response_of(peer.ulpdus[-1], number + 1).original == number
        _, found = ddp.decode(peer.ulpdus[-2])
        assert found == number.to_bytes(8, "little")
    end.close()
    peer.close()
