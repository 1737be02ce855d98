"""Each item of a queue is told when what had begun before it has ended, however long it is held."""

from collections import deque

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.queues.drain import COUNT_BITS
from stagecoach.gateware.queues.queue_drain import QueueDrain
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.support.runner import parameter, run_cocotb


@pytest.mark.parametrize("depth, count_bits", [(1, 1), (3, 2), (8, 4), (64, 4), (64, COUNT_BITS)])
def test_queue_drain(depth, count_bits):
    parameters = {"DEPTH": str(depth), "COUNT_BITS": str(count_bits)}
    run_cocotb(QueueDrain(depth, count_bits), __name__, parameters=parameters)


@pytest.mark.parametrize("sizes", [{"depth": 0}, {"depth": 1, "count_bits": 0}])
def test_queue_drain_of_no_size_is_refused(sizes):
    with pytest.raises(ValueError, match=f"{list(sizes)[-1]} is 0"):
        QueueDrain(**sizes)


class Bench:
    """A queue beside it, and the operations that each item waits for, without a limit."""

    def __init__(self, dut):
        self.dut = dut
        self.depth = int(parameter("DEPTH"))
        self.most = (1 << int(parameter("COUNT_BITS"))) - 1
        self.begun = self.ended = 0
        self.waiting: deque[tuple[int, int]] = deque()  # share; operations begun before it came
        self.goal = 0  # of the head
        for name in ("begun", "end", "mark", "load", "loaded"):
            getattr(dut, name).value = 0

    @property
    def under_way(self):
        return self.begun - self.ended

    async def cycle(self, begin=False, end=False, mark=False, load=False):
        """Something begins before an item comes."""
        dut = self.dut
        self.begun += begin
        dut.begun.value = self.begun & self.most
        dut.end.value, dut.mark.value, dut.load.value = end, mark, load
        goal = self.goal
        if load:
            dut.loaded.value, goal = self.waiting.popleft()
        await RisingEdge(dut.clk)
        missing = dut.missing.value.to_signed()
        want = self.goal - self.ended
        if want > 0:
            assert missing == want, "not what the head waits for"
        else:
            assert missing <= 0, "the head waits for what has ended"
        if mark:
            self.waiting.append((int(dut.share.value), self.begun))
        self.ended += end
        self.goal = goal


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_random_items(dut):
    rng = seeded_random(parameter("DEPTH"), parameter("COUNT_BITS"))
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    begins = ends = comes = leaves = 0.5
    loaded = 0
    for number in range(12_000):
        if number % 300 == 0:
            begins, ends, comes, leaves = (rng.choice([0.0, 0.1, 0.5, 1.0]) for _ in range(4))
        end = bench.under_way > 0 and rng.random() < ends
        begin = bench.under_way < bench.most and rng.random() < begins
        mark = len(bench.waiting) < bench.depth and rng.random() < comes
        load = bool(bench.waiting) and bench.goal <= bench.ended and rng.random() < leaves
        loaded += load
        await bench.cycle(begin, end, mark, load)
    assert bench.begun > 1000 and loaded > 500


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_items_leave_after_the_head_was_held_for_ever(dut):
    """Operations in numbers at which counts of any width up to 16 bits would have turned round."""
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    for held in (bench.most // 2 + 2, bench.most + 2, (1 << 15) + 2, (1 << 16) + 2):
        # As many as possible begin before each item that comes while the head is held.
        for _ in range(bench.depth - 1):
            while bench.under_way < bench.most:
                await bench.cycle(begin=True)
            await bench.cycle(mark=True)
            while bench.under_way:
                await bench.cycle(end=True)
        # The last one comes with the last end: nothing is owed after it.
        await bench.cycle(begin=True)
        await bench.cycle(end=True, mark=True)
        await bench.cycle(begin=True)
        for _ in range(held):
            await bench.cycle(begin=True, end=True)
        await bench.cycle(end=True)
        for _ in range(bench.depth):
            await bench.cycle(load=True)
            await bench.cycle()
            assert dut.missing.value.to_signed() <= 0
        # Nothing is left over for the next one.
        await bench.cycle(begin=True, mark=True)
        await bench.cycle(load=True)
        await bench.cycle()
        assert dut.missing.value.to_signed() == 1
        await bench.cycle(end=True)
        await bench.cycle()
        assert dut.missing.value == 0
