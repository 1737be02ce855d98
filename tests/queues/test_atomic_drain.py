"""Who asked is told when the atomics that were under way then have ended."""

from collections import deque

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from gateware.config import RnicConfig
from gateware.queues.atomic_drain import AtomicDrain
from tests.support.runner import parameter, run_cocotb
from tests.support.streams import seeded_random, start_clock_and_reset

CONFIG = RnicConfig(qps=4)
MARKS = 3
LATENCY = 3
"""Cycles from an end to `passed`."""


@pytest.mark.requirement("RDMAP-8.1.1-06", "SEC-6.2.2-01")
@pytest.mark.parametrize("often", [0.02, 0.3, 0.9])
def test_atomic_drain(often):
    run_cocotb(AtomicDrain(CONFIG, MARKS), __name__, parameters={"OFTEN": str(often)})


class Bench:
    """Drives one cycle after the other, and compares with sets of items."""

    def __init__(self, dut):
        self.dut = dut
        self.under_way = deque()  # items, in the order in which they began
        self.begun = 0
        self.ended_at = {}  # item: cycle
        self.marks = [set() for _ in range(MARKS)]  # items that are waited for
        self.now = 0
        self.undecided = False  # the latest one may still be refused
        self._drive()

    def _drive(self, begin=False, end=False, refuse=False, marks=0):
        dut = self.dut
        dut.begin.value, dut.end.value, dut.refuse.value = begin, end, refuse
        dut.mark.value = marks

    async def cycle(self, begin=False, end=False, refuse=False, marks=0):
        self._drive(begin, end, refuse, marks)
        await RisingEdge(self.dut.clk)
        self._compare()
        # What has just ended may count for a mark, too.
        ended = {item for item, at in self.ended_at.items() if at > self.now - LATENCY}
        before = set(self.under_way) | ended
        for number in range(MARKS):
            if marks >> number & 1:
                self.marks[number] = before
        if end:
            self.ended_at[self.under_way.popleft()] = self.now
        if refuse:
            self.ended_at[self.under_way.pop()] = self.now
        if end or refuse or begin:
            self.undecided = begin or (self.undecided and not refuse)
        if begin:
            self.under_way.append(self.begun)
            self.begun += 1
        self.now += 1

    def _compare(self):
        seen = self.now - LATENCY
        passed = int(self.dut.passed.value)
        for number, items in enumerate(self.marks):
            if items - self.ended_at.keys():
                assert not passed >> number & 1, f"mark {number} is told too early"
            if all(self.ended_at.get(item, self.now) <= seen for item in items):
                assert passed >> number & 1, f"mark {number} waits for what began behind it"


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_random_items(dut):
    rng = seeded_random(parameter("OFTEN"))
    often = float(parameter("OFTEN"))
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    for _ in range(6000):
        count = len(bench.under_way)
        bench.undecided &= rng.random() < 0.8
        refuse = bench.undecided and rng.random() < often / 2
        # What is not decided does not end.
        end = count > (1 if bench.undecided else 0) and rng.random() < often
        begin = not refuse and count < CONFIG.qps and rng.random() < often
        await bench.cycle(begin, end, refuse, rng.randrange(1 << MARKS) * (rng.random() < 0.1))
    assert bench.begun > 50


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_mark_waits_for_what_had_begun(dut):
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    for _ in range(3):
        await bench.cycle(begin=True)
    # The last one began in the cycle before; it is refused.
    await bench.cycle(marks=0b001)
    await bench.cycle(refuse=True)
    # What begins behind the mark is waited for by the next.
    await bench.cycle(begin=True)
    await bench.cycle(marks=0b110)
    await bench.cycle(end=True)
    await bench.cycle(end=True)
    for _ in range(20):
        await bench.cycle()
    assert dut.passed.value == 0b001
    await bench.cycle(end=True)
    for _ in range(LATENCY):
        await bench.cycle()
    assert dut.passed.value == 0b111
