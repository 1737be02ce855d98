"""What is under way is known for each QP, and who asked is told when that of then has ended."""

from dataclasses import dataclass, field

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from gateware.config import RnicConfig
from gateware.queues.in_flight import InFlight
from tests.support.runner import parameter, run_cocotb
from tests.support.streams import seeded_random, start_clock_and_reset

CONFIG = RnicConfig(qps=4)
ENDS, MARKS = 2, 3
LATENCY = 2
"""Cycles from a begin or end to `busy`."""


@pytest.mark.requirement("RDMAP-8.1.1-06", "SEC-6.2.2-01")
@pytest.mark.parametrize("often", [0.02, 0.3, 0.9])
def test_in_flight(often):
    run_cocotb(InFlight(CONFIG, ENDS, MARKS), __name__, parameters={"OFTEN": str(often)})


@dataclass
class Cycle:
    """What happens in one cycle."""

    begin: int | None = None  # QP
    ends: list = field(default_factory=lambda: [None] * ENDS)  # QP at each place
    marks: int = 0


class Bench:
    """Drives one cycle after the other, and compares with sets of items."""

    def __init__(self, dut):
        self.dut = dut
        self.begun_at = {}  # item: its cycle and QP
        self.ended_at = {}
        self.marks = [set() for _ in range(MARKS)]  # items that are waited for
        self.latest = [None] * CONFIG.qps  # item of each QP
        self.now = 0
        self._drive(Cycle())

    def under_way(self, qp):
        return self.latest[qp] is not None and self.latest[qp] not in self.ended_at

    def _drive(self, cycle):
        dut = self.dut
        ends = [(f"ends__{place}", qp) for place, qp in enumerate(cycle.ends)]
        for port, qp in (("begin", cycle.begin), *ends):
            getattr(dut, f"{port}__valid").value = int(qp is not None)
            getattr(dut, f"{port}__qp").value = qp or 0
        dut.mark.value = cycle.marks

    async def cycle(self, cycle=None):
        cycle = cycle or Cycle()
        self._drive(cycle)
        await RisingEdge(self.dut.clk)
        self._compare()
        before = {item for item, at in self.begun_at.items() if at < self.now}
        for number in range(MARKS):
            if cycle.marks >> number & 1:
                self.marks[number] = before - self.ended_at.keys()
        for qp in cycle.ends:
            if qp is not None:
                self.ended_at[self.latest[qp]] = self.now
        if cycle.begin is not None:
            self.latest[cycle.begin] = len(self.begun_at)
            self.begun_at[len(self.begun_at)] = self.now
        self.now += 1

    def _compare(self):
        seen = self.now - LATENCY
        busy = int(self.dut.busy.value)
        passed = int(self.dut.passed.value)
        for qp, item in enumerate(self.latest):
            if item is not None and max(self.begun_at[item], self.ended_at.get(item, 0)) <= seen:
                assert busy >> qp & 1 == (item not in self.ended_at), f"QP {qp}"
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
        cycle = Cycle()
        qps = list(range(CONFIG.qps))
        rng.shuffle(qps)
        for place in range(ENDS):
            if rng.random() < often and bench.under_way(qps[place]):
                cycle.ends[place] = qps[place]
        if rng.random() < often and not bench.under_way(qps[-1]):
            cycle.begin = qps[-1]
        if rng.random() < 0.1:
            cycle.marks = rng.randrange(1 << MARKS)
        await bench.cycle(cycle)
    assert len(bench.begun_at) > 50


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_mark_waits_for_the_items_of_then_in_any_order(dut):
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    for qp in (0, 1, 2):
        await bench.cycle(Cycle(begin=qp))
    # The last one began in the cycle before.
    await bench.cycle(Cycle(marks=0b001))
    # What begins behind the mark is waited for by the next.
    await bench.cycle(Cycle(begin=3))
    await bench.cycle(Cycle(ends=[1, None]))
    await bench.cycle(Cycle(begin=1))
    await bench.cycle(Cycle(ends=[2, 0]))
    await bench.cycle()
    await bench.cycle()
    assert dut.passed.value == 0b111
    assert dut.busy.value == 0b1010
    await bench.cycle(Cycle(marks=0b110))
    await bench.cycle(Cycle(ends=[None, 3]))
    for _ in range(20):
        await bench.cycle()
    assert dut.passed.value == 0b001
    await bench.cycle(Cycle(ends=[None, 1]))
    for _ in range(LATENCY):
        await bench.cycle()
    assert dut.passed.value == 0b111
