"""Random traffic of many QPs, of which little is wrong."""

from cocotb.triggers import ClockCycles

from stagecoach.gateware.layouts import SegmentKind, StagStatus
from stagecoach.sim.model.rdmap import SEND_OPCODES
from tests.rdmap.receive.bench import Before
from tests.rdmap.receive.model import CONFIG, AtomicSink, Entry, stag_with
from tests.rdmap.receive.segments import (
    LONGEST_PAYLOAD,
    atomic_request,
    atomic_response,
    elements,
    immediate,
    opcode,
    read_request,
    response,
    send,
    terminate,
    write,
)


def random_send(bench: Before, number: int, octets: int, wrong: bool) -> bytes:
    """A segment of a Send of any kind or Immediate Data, the next of its QP unless it is wrong."""
    rng, qp = bench.rng, bench.model.qps[number]
    entry = qp.entries[0] if qp.entries else Entry([])
    if (entry.opcode is None or wrong) and rng.random() < 0.3:
        fields = {"octets": rng.choice([0, 7, 8, 9])} if wrong else {}
        return immediate(rng, qp.sink.sends.msn, mo=entry.filled, **fields)
    room = entry.room - entry.filled
    if not wrong or rng.random() < 0.5:
        octets = rng.choice([min(octets, room), min(room, LONGEST_PAYLOAD)])
    msn, mo, kind = qp.sink.sends.msn, entry.filled, entry.opcode
    if kind is None or (wrong and rng.random() < 0.3):
        kind = rng.choice(sorted(SEND_OPCODES))
    if wrong and rng.random() < 0.2:
        msn ^= 1 << rng.randrange(32)
    if wrong and rng.random() < 0.2:
        mo ^= 1 << rng.randrange(32)
    statuses = list(StagStatus) if wrong else [StagStatus.OK, StagStatus.WRAP, StagStatus.BOUNDS]
    stag = stag_with(rng, rng.choice(statuses))
    return send(msn, mo, octets, rng.random() < 0.6, rsvd_ulp_word=stag, **opcode(kind))


def random_request(bench: Before, number: int, wrong: bool, status: StagStatus) -> bytes:
    """A Read or Atomic Request, the next of its QP."""
    rng = bench.rng
    msn = bench.model.qps[number].sink.read_requests.msn
    if rng.random() < 0.5:
        return read_request(rng, msn, rng.choice([0, None, None]), status)
    operation = rng.randrange(16 if wrong else 3)
    misaligned = rng.randrange(8) if wrong else 0
    return atomic_request(rng, msn, operation, status, misaligned)


def random_response(bench: Before, number: int, octets: int, wrong: bool) -> bytes:
    """What answers the oldest RDMA Read or atomic of the QP, or if it is wrong, any of them."""
    rng, qp = bench.rng, bench.model.qps[number]
    is_atomic = qp.outstanding[0] in qp.atomics if qp.outstanding else rng.random() < 0.5
    if is_atomic ^ (wrong and rng.random() < 0.3):
        msn = qp.sink.atomic_responses.msn
        return atomic_response(rng, msn ^ (wrong and rng.randrange(2)), msn=msn)
    if not qp.reads:
        return response(8, 0, octets, True)
    read = qp.reads[0]
    left = read.request.size - read.received
    octets = min(octets, left)
    to = read.request.sink_tagged_offset + read.received
    if wrong:
        to += rng.randrange(2)
        octets += rng.randrange(2)
    stag = read.request.sink_stag if octets else rng.getrandbits(32)
    return response(stag, to, octets, octets == left)


def random_segment(bench: Before, number: int) -> bytes:
    """A segment that fits the state of its QP, unless a rare dice says otherwise."""
    rng, qp = bench.rng, bench.model.qps[number]
    octets = rng.choice([0, 1, 7, 8, rng.randrange(200), rng.randrange(LONGEST_PAYLOAD)])
    wrong = rng.random() < 0.03
    status = rng.choice(list(StagStatus)) if wrong else StagStatus.OK
    kind = rng.choice(["write", "send", "send", "request", "response"])
    if wrong and rng.random() < 0.1:
        return terminate(rng.randbytes(rng.choice([4, 20, 24, 52])))
    if kind == "request" and (len(qp.sink.read_requests.waiting) < qp.ird or wrong):
        return random_request(bench, number, wrong, status)
    if kind == "response" and (qp.outstanding or wrong):
        return random_response(bench, number, octets, wrong)
    if kind == "send" and (qp.entries or wrong):
        return random_send(bench, number, octets, wrong)
    return write(rng, octets, status)


async def random_traffic(bench: Before, rounds: int) -> None:
    """Connections come and go, and receive; each round is compared with the model."""
    rng = bench.rng
    for _ in range(rounds):
        for number, qp in enumerate(bench.model.qps):
            if qp.stopped and rng.random() < 0.5:
                bench.set_running(number, False)
            if (not qp.running or qp.stopped) and rng.random() < 0.6:
                await bench.connect(number, ird=rng.randrange(CONFIG.read_queue_depth + 1))
            if rng.random() < 0.5:
                bench.answer_reads(number)
            while len(bench.model.qps[number].entries) < 6 and rng.random() < 0.7:
                lengths = [
                    rng.choice([0, 1, 9, rng.randrange(2**12), rng.randrange(2**17), 2**32 - 1])
                    for _ in range(rng.randrange(5))
                ]
                bad = rng.randrange(4) if rng.random() < 0.03 else None
                bench.post(number, elements(rng, *lengths, bad=bad))
            while len(bench.model.qps[number].outstanding) < 4 and rng.random() < 0.7:
                length = rng.choice([0, 1, rng.randrange(300), rng.randrange(2**18)])
                status = StagStatus.BOUNDS if rng.random() < 0.03 else StagStatus.OK
                stag, to = stag_with(rng, status), rng.getrandbits(64)
                if rng.random() < 0.5:
                    bench.expect_read(number, stag, to, length)
                else:
                    bench.expect_atomic(number, AtomicSink(stag, to, rng.getrandbits(16)))
        await ClockCycles(bench.dut.clk, 4)
        for _ in range(rng.randrange(25)):
            number = rng.randrange(CONFIG.qps)
            if rng.random() < 0.01:
                kind = rng.choice(list(SegmentKind))
                bench.send(number, rng.randbytes(rng.randrange(rounds)), kind)
            else:
                bench.send(number, random_segment(bench, number))
        await bench.settle()
