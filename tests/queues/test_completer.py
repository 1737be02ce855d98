"""Completions come in posting order per QP, Reads when they are done, and nothing is lost."""

import cocotb
import pytest

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpCommandKind
from stagecoach.gateware.queues.completer import SendCompleter, read_done_layout
from stagecoach.hw.interface.queue_entries import ANSWERED_OPERATIONS, SendOpcode
from stagecoach.sim.cosim.signals import cycles
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.queues.ports import Pulses
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig(qps=4, cqs=4, pending_sends=8, read_queue_depth=4)
LAYOUTS = Layouts(CONFIG)
READ_DONE = read_done_layout(CONFIG)


@pytest.mark.requirement("RDMAP-5.5-12", "RDMAP-5.5-16", "EXT-5.4-06")
@pytest.mark.parametrize("pattern", ["always", "random", "slow"])
def test_completer(pattern):
    run_cocotb(SendCompleter(CONFIG), __name__, parameters={"PATTERN": pattern})


class Bench:
    def __init__(self, dut, rng):
        pattern = parameter("PATTERN")
        self.dut = dut
        self.sent = StreamSource(dut, "sent", LAYOUTS.sent_item, rng=rng, pattern=pattern)
        self.read_done = StreamSource(dut, "read_done", READ_DONE, rng=rng, pattern=pattern)
        self.commands = StreamSource(dut, "qp_command", LAYOUTS.qp_command)
        self.completions = StreamSink(
            dut, "completion", LAYOUTS.completion, rng=rng, pattern=pattern
        )
        StreamMonitor(dut, "completion")
        dut.failed.value = 0
        dut.failed.value = 0
        self.retired = Pulses(dut, dut.retired__valid, dut.retired__qp)

    async def command(self, kind, qp, **fields):
        await self.commands.send({"kind": QpCommandKind[kind].value, "qp": qp, **fields})


def item_of(rng, qp, index, opcode=None, signaled=None):
    return {
        "qp": qp,
        "index": index,
        "opcode": (opcode if opcode is not None else rng.choice(list(SendOpcode))).value,
        "signaled": rng.getrandbits(1) if signaled is None else signaled,
        "length": rng.getrandbits(32),
    }


def completion_of(item, cq=0):
    fields = {name: item[name] for name in ("qp", "index", "opcode", "length")}
    return {"cq": cq, "flags": 0, "detail": 0, **fields}


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_completions_come_in_posting_order(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    sent = [[] for _ in range(CONFIG.qps)]
    answered = [0] * CONFIG.qps  # Reads of which read_done was given
    seen = [[] for _ in range(CONFIG.qps)]
    for _ in range(1500):
        qp = rng.randrange(CONFIG.qps)
        for item in bench.completions.take_all():
            seen[item["qp"]].append(item)
        inside = len(sent[qp]) - bench.retired.qps.count(qp)
        reads = sum(item["opcode"] in ANSWERED_OPERATIONS for item in sent[qp])
        if inside < CONFIG.pending_sends and rng.random() < 0.6:
            item = item_of(rng, qp, len(sent[qp]) & 0xFFFF)
            is_read = item["opcode"] in ANSWERED_OPERATIONS
            if is_read and reads - answered[qp] >= CONFIG.read_queue_depth:
                continue
            sent[qp].append(item)
            bench.sent.put(item)
            # The answer may overtake the report that the request left.
            if is_read and reads == answered[qp] and rng.random() < 0.3:
                answered[qp] += 1
                bench.read_done.put({"qp": qp, "length": item["length"]})
        elif answered[qp] < reads:
            answered[qp] += 1
            await bench.read_done.send({"qp": qp, "length": 1})
        await cycles(dut, rng.randint(0, 12))
    for qp in range(CONFIG.qps):
        reads = sum(item["opcode"] in ANSWERED_OPERATIONS for item in sent[qp])
        bench.read_done.put_all([{"qp": qp, "length": 1}] * (reads - answered[qp]))
    await cycles(dut, 3000)
    for item in bench.completions.take_all():
        seen[item["qp"]].append(item)
    for qp in range(CONFIG.qps):
        assert seen[qp] == [completion_of(item) for item in sent[qp] if item["signaled"]]
        assert bench.retired.qps.count(qp) == len(sent[qp])
    assert sum(map(len, sent)) > 400


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_items_behind_a_read_or_atomic_wait_and_other_qps_do_not(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    for answered in ANSWERED_OPERATIONS:
        held = [item_of(rng, 1, 0, answered, 1)]
        held += [item_of(rng, 1, i, SendOpcode.SEND, 1) for i in range(1, 8)]
        other = [item_of(rng, 2, i, SendOpcode.RDMA_WRITE, 1) for i in range(20)]
        bench.sent.put_all(held)
        bench.sent.put_all(other)
        assert await bench.completions.get_many(20) == [completion_of(item) for item in other]
        await cycles(dut, 200)
        assert not len(bench.completions)
        bench.read_done.put({"qp": 2, "length": 0})  # of another QP
        await cycles(dut, 200)
        assert not len(bench.completions)
        bench.read_done.put({"qp": 1, "length": 0})
        assert await bench.completions.get_many(8) == [completion_of(item) for item in held]
        await bench.command("CREATE", 2)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_completion_goes_to_the_send_cq_of_its_qp(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    for _ in range(5):
        cqs = [rng.randrange(CONFIG.cqs) for _ in range(CONFIG.qps)]
        for qp, cq in enumerate(cqs):
            await bench.command("CREATE", qp, send_cq=cq, receive_cq=cq ^ 1)
            await bench.command("CONNECT", qp, send_cq=cq ^ 2)
        items = [item_of(rng, rng.randrange(CONFIG.qps), i, SendOpcode.SEND, 1) for i in range(10)]
        bench.sent.put_all(items)
        got = await bench.completions.get_many(len(items))
        assert got == [completion_of(item, cqs[item["qp"]]) for item in items]
    # The memory outlasts the reset before the next test.
    for qp in range(CONFIG.qps):
        await bench.command("CREATE", qp)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_each_answer_completes_one_read_or_atomic(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    atomic, read = SendOpcode.ATOMIC, SendOpcode.RDMA_READ
    opcodes = [atomic, read, atomic, atomic, read]
    items = [item_of(rng, 1, index, opcode, 1) for index, opcode in enumerate(opcodes)]
    bench.sent.put_all(items)
    for item in items:
        await cycles(dut, 200)
        assert not len(bench.completions)
        bench.read_done.put({"qp": 1, "length": 8})
        assert await bench.completions.get() == completion_of(item)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_failed_qp_completes_nothing_and_others_do(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    dut.failed.value = 1 << 1
    for index in range(5):
        bench.sent.put(item_of(rng, 1, index, SendOpcode.SEND, 1))
        other = item_of(rng, 2, index, SendOpcode.RDMA_WRITE, 1)
        bench.sent.put(other)
        assert await bench.completions.get() == completion_of(other)
    await cycles(dut, 200)
    assert not len(bench.completions)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_create_and_destroy_forget(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    read = item_of(rng, 3, 0, SendOpcode.RDMA_READ, 1)
    for kind in ("CREATE", "DESTROY"):
        await bench.sent.send(read)
        await bench.sent.send(item_of(rng, 3, 1, SendOpcode.SEND, 1))
        await bench.read_done.send({"qp": 2, "length": 0})
        await cycles(dut, 100)
        await bench.command("CONNECT", 3)
        await bench.command(kind, 3)
        await bench.command(kind, 2)
        await bench.read_done.send({"qp": 3, "length": 0})
        await cycles(dut, 100)
        await bench.command("CREATE", 3)
        await bench.sent.send(read)
        await bench.sent.send(read | {"qp": 2})
        await cycles(dut, 200)
        assert not len(bench.completions)
        for qp in (2, 3):
            await bench.command("CREATE", qp)
    assert bench.retired.count == 0


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_throughput(dut):
    if parameter("PATTERN") != "always":
        return
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    for opcode, most in ((SendOpcode.SEND, 7.5), (SendOpcode.RDMA_READ, 13)):
        items = [item_of(rng, index % CONFIG.qps, index, opcode, 1) for index in range(48)]
        if opcode in ANSWERED_OPERATIONS:
            # Each QP has one outstanding: its answer comes after the items of the other QPs.
            bench.sent.put_all(items[: CONFIG.qps - 1])
            await cycles(dut, 60)
            bench.sent.put_all(items[CONFIG.qps - 1 :])
            bench.read_done.put_all([{"qp": item["qp"], "length": 0} for item in items])
        else:
            bench.sent.put_all(items)
        start = cocotb.utils.get_sim_time("ns")
        assert await bench.completions.get_many(len(items)) == [
            completion_of(item) for item in items
        ]
        cycles_per_item = (cocotb.utils.get_sim_time("ns") - start) / 10 / len(items)
        dut._log.info(f"{opcode.name}: {cycles_per_item} cycles per item")
        assert cycles_per_item <= most
        for qp in range(CONFIG.qps):
            await bench.command("CREATE", qp)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_failed_qp_completes_nothing_and_others_go_on(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    dut.failed.value = 1 << 2
    items = [item_of(rng, 2 + i % 2, i, SendOpcode.SEND, 1) for i in range(10)]
    bench.sent.put_all(items)
    others = [completion_of(item) for item in items if item["qp"] == 3]
    assert await bench.completions.get_many(5) == others
    await cycles(dut, 200)
    assert not len(bench.completions) and 2 not in bench.retired.qps
