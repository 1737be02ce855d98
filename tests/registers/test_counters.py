"""Every event is in its counters, or in `lost`; nothing waits."""

from collections import Counter
from dataclasses import replace

import cocotb
import pytest
from cocotb.triggers import FallingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.rdmap.headers import Opcode
from stagecoach.gateware.registers.counters import (
    LOST_MOST,
    Counters,
    CounterWord,
    counter_rows,
    fpdu_layout,
)
from stagecoach.hw.interface.causes import Cause
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig(qps=int(parameter("QPS", "4")), cqs=4, stags=16)
FPDU = fpdu_layout(CONFIG)
REQUESTS = (Opcode.RDMA_READ_REQUEST, Opcode.ATOMIC_REQUEST)
RESPONSES = (Opcode.RDMA_READ_RESPONSE, Opcode.ATOMIC_RESPONSE)
SWEEP = counter_rows(CONFIG) * 8 + 8


@pytest.mark.parametrize("qps", [2, 4])
def test_counters(qps):
    config = replace(CONFIG, qps=qps)
    run_cocotb(Counters(config), __name__, parameters={"QPS": str(qps)})


@pytest.mark.parametrize(("qps", "rows"), [(2, 64), (64, 64), (256, 256)])
def test_there_is_a_row_for_each_qp_and_each_cause(qps, rows):
    assert counter_rows(RnicConfig(qps=qps)) == rows


class Bench:
    def __init__(self, dut):
        self.dut = dut
        self.expected = Counter()
        for name in ("sent", "received", "dropped", "stopped", "connect__valid", "connect__qp"):
            getattr(dut, name).value = 0
        dut.query__valid.value = 0
        dut.query__payload.value = 0

    async def start(self):
        await start_clock_and_reset(self.dut)
        await self.cycles(SWEEP)

    async def cycles(self, count):
        for _ in range(count):
            await FallingEdge(self.dut.clk)

    def fpdu(self, name, qp, octets, last, opcode):
        const = FPDU.const(
            {"valid": 1, "qp": qp, "ulpdu_length": octets, "last": last, "opcode": opcode.value}
        )
        getattr(self.dut, name).value = const.as_value().value
        self.expected[qp, f"FPDUS_{name.upper()}"] += 1
        self.expected[qp, f"OCTETS_{name.upper()}"] += octets
        self.expected[qp, f"MESSAGES_{name.upper()}"] += last
        if last and name == "sent" and opcode in REQUESTS:
            self.expected[qp, "OUTSTANDING_READS"] += 1
        if last and name == "received" and opcode in RESPONSES:
            self.expected[qp, "OUTSTANDING_READS"] -= 1

    def drop(self):
        self.dut.dropped.value = 1
        self.expected[0, "STOPPED"] += 1

    def stop(self, cause):
        self.dut.stopped.value = cause << 1 | 1
        self.expected[cause, "STOPPED"] += 1

    def connect(self, qp):
        self.dut.connect__qp.value = qp
        self.dut.connect__valid.value = 1
        self.expected[qp, "OUTSTANDING_READS"] = 0

    async def cycle(self):
        """Ends the cycle of the events; there is none in the next one."""
        await FallingEdge(self.dut.clk)
        for name in ("sent", "received", "dropped", "stopped", "connect__valid"):
            getattr(self.dut, name).value = 0

    async def read(self, row, name):
        """A counter, as a signed number."""
        self.dut.query__payload.value = row << 3 | CounterWord[name].value
        self.dut.query__valid.value = 1
        for _ in range(16):
            await FallingEdge(self.dut.clk)
            if self.dut.query__ready.value:
                self.dut.query__valid.value = 0
                # What is read is there when it is taken.
                value = int(self.dut.value.value)
                await FallingEdge(self.dut.clk)
                return value - (value >> 35 << 36)
        raise AssertionError("a query is not answered within 16 cycles")

    async def check(self):
        await self.cycles(32)
        for row in range(counter_rows(CONFIG)):
            for word in CounterWord:
                if row >= CONFIG.qps and word != CounterWord.STOPPED:
                    continue
                want = self.expected[row, word.name]
                assert await self.read(row, word.name) == want, (row, word.name)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_every_event_is_counted(dut):
    rng = seeded_random()
    bench = Bench(dut)
    await bench.start()
    # An FPDU of each direction every 10 to 14 cycles, whatever the other does, and rare events.
    due = {"sent": 0, "received": 3, "rare": 7}
    for cycle in range(6000):
        for name in ("sent", "received"):
            if due[name] <= cycle:
                bench.fpdu(
                    name,
                    rng.randrange(CONFIG.qps),
                    rng.choice((14, 18, 1000, 64768, 65535)),
                    rng.getrandbits(1),
                    rng.choice(list(Opcode)),
                )
                due[name] = cycle + rng.randint(10, 14)
        if due["rare"] <= cycle:
            kind = rng.randrange(3)
            if kind == 0:
                bench.drop()
            elif kind == 1:
                bench.stop(rng.randrange(1, max(Cause) + 1))
            due["rare"] = cycle + rng.randint(40, 80)
        await bench.cycle()
    assert dut.lost.value == 0
    await bench.check()


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_the_same_word_in_turns_that_follow_each_other(dut):
    bench = Bench(dut)
    await bench.start()
    for number in range(200):
        bench.fpdu("sent", 1, 100 + number, 1, Opcode.RDMA_READ_REQUEST)
        await bench.cycle()
        await bench.cycles(3)
    assert dut.lost.value == 0
    await bench.check()


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_a_qp_that_connects_has_no_outstanding_read(dut):
    bench = Bench(dut)
    await bench.start()
    for qp in (0, 1):
        bench.fpdu("sent", qp, 46, 1, Opcode.RDMA_READ_REQUEST)
        await bench.cycle()
        await bench.cycles(12)
    bench.connect(1)
    await bench.cycle()
    await bench.check()
    assert await bench.read(0, "OUTSTANDING_READS") == 1


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_octets_carry_into_all_bits(dut):
    bench = Bench(dut)
    await bench.start()
    last = CONFIG.qps - 1
    for _ in range(1100):  # past 2^26
        bench.fpdu("received", last, 65535, 0, Opcode.RDMA_WRITE)
        await bench.cycle()
        await bench.cycles(3)
    assert bench.expected[last, "OCTETS_RECEIVED"] > 1 << 26
    await bench.check()


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_events_that_come_too_fast_are_counted_as_lost(dut):
    bench = Bench(dut)
    await bench.start()
    for _ in range(100):
        bench.fpdu("sent", 0, 20, 1, Opcode.SEND)
        await bench.cycle()
    await bench.cycles(32)
    counted, lost = await bench.read(0, "FPDUS_SENT"), int(dut.lost.value)
    assert lost > 50
    assert counted + lost == 100
    for _ in range(400):
        bench.fpdu("sent", 0, 20, 1, Opcode.SEND)
        await bench.cycle()
    await bench.cycles(8)
    assert dut.lost.value == LOST_MOST


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_what_is_read_was_there_while_it_was_asked_for(dut):
    """A word is read whole, whatever is added to it at the same time."""
    rng = seeded_random()
    bench = Bench(dut)
    await bench.start()
    words = [word for word in CounterWord if word != CounterWord.STOPPED]
    history = {word: [0] for word in words}

    async def count():
        while True:
            opcode = rng.choice((Opcode.SEND, *REQUESTS))
            bench.fpdu(rng.choice(("sent", "received")), 1, rng.randrange(1000), 1, opcode)
            for word in words:
                history[word].append(bench.expected[1, word.name])
            await bench.cycle()
            await bench.cycles(rng.randint(9, 14))

    counting = cocotb.start_soon(count())
    for _ in range(600):
        word = rng.choice(words)
        known = len(history[word])
        value = await bench.read(1, word.name)
        # What came before the question, but for the few that wait, and what came meanwhile
        assert value in history[word][max(0, known - 4) :], (word.name, value)
        await bench.cycles(rng.randrange(8))
    counting.cancel()
    assert dut.lost.value == 0
