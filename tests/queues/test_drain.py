"""Who asked is told when what was under way then has ended, however much begins and ends later."""

from collections import deque

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.dma.host_errors import PLACEMENTS_AHEAD
from stagecoach.gateware.mpa.framer import BEATS_AHEAD, SENT_DEPTH
from stagecoach.gateware.queues.delivery_gate import DEPTH as DELIVERIES
from stagecoach.gateware.queues.drain import COUNT_BITS, MOST, Drain
from stagecoach.gateware.queues.entry_writer import OUTSTANDING
from stagecoach.gateware.queues.request_gate import DEPTH as REQUESTS
from stagecoach.gateware.rnic import JOBS_AHEAD
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.support.runner import parameter, run_cocotb

LATENCY = 3
"""Cycles from an end to `passed`."""


@pytest.mark.requirement("RDMAP-8.1.1-06", "SEC-6.2.2-01")
@pytest.mark.parametrize("count_bits, marks", [(1, 1), (2, 3), (4, 1), (COUNT_BITS, 3)])
@pytest.mark.parametrize("often", [0.02, 0.3, 0.9])
def test_drain(count_bits, marks, often):
    parameters = {"COUNT_BITS": str(count_bits), "MARKS": str(marks), "OFTEN": str(often)}
    run_cocotb(Drain(count_bits, marks), __name__, parameters=parameters)


@pytest.mark.parametrize("sizes", [{"count_bits": 0}, {"marks": 0}])
def test_drain_of_no_size_is_refused(sizes):
    with pytest.raises(ValueError, match=f"{next(iter(sizes))} is 0"):
        Drain(**sizes)


class Bench:
    """Drives one cycle after the other, and compares with sets of operations."""

    def __init__(self, dut):
        self.dut = dut
        self.count = int(parameter("MARKS"))
        self.most = (1 << int(parameter("COUNT_BITS"))) - 1
        self.under_way = deque()  # operations, in the order in which they began
        self.begun = 0
        self.ended_at = {}  # operation: cycle
        self.marks = [set() for _ in range(self.count)]  # operations that are waited for
        self.marked_at = [-LATENCY] * self.count
        self.now = 0
        self.undecided = False  # the latest one may still be cancelled
        self._drive()

    def _drive(self, begin=False, end=False, cancel=False, marks=0):
        dut = self.dut
        dut.begin.value, dut.end.value, dut.cancel.value = begin, end, cancel
        dut.mark.value = marks

    async def cycle(self, begin=False, end=False, cancel=False, marks=0):
        self._drive(begin, end, cancel, marks)
        await RisingEdge(self.dut.clk)
        self._compare()
        if end:
            self.ended_at[self.under_way.popleft()] = self.now
        if cancel:
            self.ended_at[self.under_way.pop()] = self.now
        if end or cancel or begin:
            self.undecided = begin or (self.undecided and not cancel)
        if begin:
            self.under_way.append(self.begun)
            self.begun += 1
        for number in range(self.count):
            if marks >> number & 1:
                self.marks[number] = set(self.under_way)
                self.marked_at[number] = self.now
        self.now += 1

    def _compare(self):
        seen = self.now - LATENCY
        passed = int(self.dut.passed.value)
        for number, operations in enumerate(self.marks):
            is_marked = 0 < self.now - self.marked_at[number] < LATENCY
            if is_marked or operations - self.ended_at.keys():
                assert not passed >> number & 1, f"mark {number} is told too early"
            elif all(self.ended_at[operation] <= seen for operation in operations):
                assert passed >> number & 1, f"mark {number} waits for what began after it"


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_random_operations(dut):
    rng = seeded_random(*(parameter(name) for name in ("COUNT_BITS", "MARKS", "OFTEN")))
    often = float(parameter("OFTEN"))
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    ends = often
    for number in range(6000):
        if number % 100 == 0:
            ends = often * rng.choice([0.3, 1, 1.5])
        count = len(bench.under_way)
        bench.undecided &= rng.random() < 0.8
        cancel = bench.undecided and rng.random() < often / 2
        # What is not decided does not end.
        end = count > (1 if bench.undecided else 0) and rng.random() < ends
        begin = not cancel and count < bench.most and rng.random() < often
        marks = rng.randrange(1 << bench.count) * (rng.random() < 0.1)
        await bench.cycle(begin, end, cancel, marks)
    assert bench.begun > 50


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_mark_waits_for_what_had_begun(dut):
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    for _ in range(bench.most - 1):
        await bench.cycle(begin=True)
    # The last one begins with the mark; it is cancelled.
    await bench.cycle(begin=True, marks=1)
    await bench.cycle(cancel=True)
    # What begins after the mark is not waited for, and cancelled too.
    await bench.cycle(begin=True)
    await bench.cycle(cancel=True)
    for _ in range(bench.most - 1):
        for _ in range(20):
            await bench.cycle()
        assert not int(dut.passed.value) & 1
        await bench.cycle(end=True)
    for _ in range(LATENCY):
        await bench.cycle()
    assert int(dut.passed.value) & 1


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_what_has_passed_stays_so_whatever_begins_and_ends(dut):
    """Half of the counts, all, and twice as many; with one, and with most of them under way."""
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    for ahead in {1, bench.most}:
        await bench.cycle(marks=1)
        for _ in range(LATENCY):
            await bench.cycle()
        for _ in range(ahead):
            await bench.cycle(begin=True)
        for _ in range(5 * (bench.most + 1)):
            await bench.cycle(end=True)
            await bench.cycle(begin=True)
            assert int(dut.passed.value) & 1
        for _ in range(ahead):
            await bench.cycle(end=True)


def test_counts_hold_what_may_be_under_way():
    """Of each kind that the device counts in `COUNT_BITS`: what its own limits let begin."""
    pending = {
        "placements: responses awaited, and one each in receiver, gate and the pulses' registers": (
            PLACEMENTS_AHEAD + 3
        ),
        "jobs: those that wait, and in assembler and framer": JOBS_AHEAD + 2 * BEATS_AHEAD,
        "deliveries: the queue, its head, three outputs": DELIVERIES + 4,
        "requests: the queue and its head": REQUESTS + 1,
        "reports: the framer's, and two in the gate": SENT_DEPTH + 2,
        "entries: those with the write engine, and the one that is made": OUTSTANDING + 1,
    }
    for kind, most in pending.items():
        assert most <= MOST == (1 << COUNT_BITS) - 1, kind
