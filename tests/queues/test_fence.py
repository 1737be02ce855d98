"""The fence is busy until what had begun has ended, stage by stage, and no longer."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.queues.drain import COUNT_BITS
from stagecoach.gateware.queues.fence import Fence
from stagecoach.sim.cosim.signals import cycles
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.queues.ports import Pulses
from tests.support.runner import parameter, run_cocotb

STAGES = (2, 1, 3)

HANDED_ON = 15
"""Cycles that an item may be on its way from the end of one stage to the begin of the next."""

ON_ITS_WAY = 11
"""Cycles after the start in which an item may begin in the first stage and be waited for."""


@pytest.mark.requirement("RDMAP-8.1.1-06", "DDP-8.3.1-07", "SEC-6.2.2-01")
@pytest.mark.parametrize("count_bits", [1, 4, COUNT_BITS])
def test_fence(count_bits):
    parameters = {"COUNT_BITS": str(count_bits)}
    run_cocotb(Fence(STAGES, count_bits), __name__, parameters=parameters)


@pytest.mark.parametrize("stages", [[], [1, 0]])
def test_fence_without_pairs_is_refused(stages):
    with pytest.raises(ValueError, match="stages is"):
        Fence(stages)


class Bench:
    def __init__(self, dut):
        self.dut = dut
        self.most = (1 << int(parameter("COUNT_BITS"))) - 1
        dut.start.value = 0
        for stage in range(len(STAGES)):
            for side in ("begin", "end"):
                getattr(dut, f"{side}_{stage}").value = 0
            getattr(dut, f"passed_{stage}").value = 1

    async def pulse(self, side, stage, pair, count=1):
        signal = getattr(self.dut, f"{side}_{stage}")
        signal.value = 1 << pair
        await cycles(self.dut, count)
        signal.value = 0

    async def start(self):
        self.dut.start.value = 1
        await RisingEdge(self.dut.clk)
        self.dut.start.value = 0
        await RisingEdge(self.dut.clk)
        assert self.dut.busy.value

    async def is_busy(self, after=12 * HANDED_ON):
        await cycles(self.dut, after)
        return bool(self.dut.busy.value)


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def check_each_pair_holds_the_fence(dut):
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    await bench.start()
    assert not await bench.is_busy()
    for stage, pairs in enumerate(STAGES):
        for pair in range(pairs):
            before = (bench.most + 1) // 2
            await bench.pulse("begin", stage, pair, before)
            await bench.start()
            assert await bench.is_busy()
            # What begins later does not count.
            later = bench.most - before if stage == 0 else 0
            await bench.pulse("begin", stage, pair, later)
            await bench.pulse("end", stage, pair, before - 1)
            assert await bench.is_busy()
            await bench.pulse("end", stage, pair)
            assert not await bench.is_busy()
            await bench.pulse("end", stage, pair, later)


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def check_what_a_stage_hands_on_is_waited_for(dut):
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    await bench.pulse("begin", 0, 1)
    await bench.start()
    assert await bench.is_busy()
    await bench.pulse("end", 0, 1)
    await cycles(dut, HANDED_ON - 1)
    await bench.pulse("begin", 1, 0)
    assert await bench.is_busy()
    await bench.pulse("end", 1, 0)
    await cycles(dut, HANDED_ON - 1)
    await bench.pulse("begin", 2, 2)
    assert await bench.is_busy()
    await bench.pulse("end", 2, 2)
    assert not await bench.is_busy()


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def check_begin_soon_after_start_counts(dut):
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    for after in (0, 1, ON_ITS_WAY):
        dut.start.value = 1
        dut.begin_0.value = int(after == 0)
        await RisingEdge(dut.clk)
        dut.start.value = 0
        if after:
            await cycles(dut, after - 1)
            await bench.pulse("begin", 0, 0)
        dut.begin_0.value = 0
        assert await bench.is_busy()
        await bench.pulse("end", 0, 0)
        assert not await bench.is_busy()


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def check_each_stage_asks_once_and_waits_until_it_has_passed(dut):
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    stages = range(len(STAGES))
    marks = [Pulses(dut, getattr(dut, f"mark_{stage}")) for stage in stages]
    for held in stages:
        # Before the mark it means nothing.
        getattr(dut, f"passed_{held}").value = 1
        for mark in marks:
            mark.count = 0
        await bench.start()
        while not getattr(dut, f"mark_{held}").value:
            await RisingEdge(dut.clk)
        getattr(dut, f"passed_{held}").value = 0
        assert await bench.is_busy()
        # The later stages have not asked yet.
        assert [mark.count for mark in marks] == [int(stage <= held) for stage in stages]
        getattr(dut, f"passed_{held}").value = 1
        assert not await bench.is_busy()
        assert [mark.count for mark in marks] == [1] * len(STAGES)


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def check_a_stage_asks_when_the_stage_before_has_ended(dut):
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    marks = [Pulses(dut, dut.mark_0), Pulses(dut, dut.mark_1)]
    await bench.pulse("begin", 0, 1)
    await bench.start()
    assert await bench.is_busy()
    assert [mark.count for mark in marks] == [1, 0]
    await bench.pulse("end", 0, 1)
    await cycles(dut, HANDED_ON - 1)
    assert [mark.count for mark in marks] == [1, 0]
    assert not await bench.is_busy()
    assert [mark.count for mark in marks] == [1, 1]


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def check_as_many_as_may_be_under_way(dut):
    rng = seeded_random()
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    for count in (bench.most, *(rng.randint(1, bench.most) for _ in range(6))):
        await bench.pulse("begin", 1, 0, count)
        await bench.start()
        await bench.pulse("end", 1, 0, count - 1)
        assert await bench.is_busy()
        await bench.pulse("end", 1, 0)
        assert not await bench.is_busy()


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def check_it_is_busy_for_so_long_with_nothing_under_way(dut):
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    await bench.start()
    busy = 1
    while dut.busy.value:
        await RisingEdge(dut.clk)
        busy += 1
    assert busy - 1 == HANDED_ON * len(STAGES) + 1


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def check_what_begins_and_ends_while_a_later_stage_is_held_does_not_count(dut):
    """However much: more than any count holds."""
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    await bench.pulse("begin", 2, 0)
    await bench.pulse("begin", 0, 0, bench.most)
    await bench.start()
    await bench.pulse("end", 0, 0, bench.most)
    assert await bench.is_busy()
    for pulses in (bench.most // 2 + 1, bench.most + 1, 3 * bench.most):
        for _ in range(pulses):
            for stage in (0, 1):
                await bench.pulse("begin", stage, 0)
                await bench.pulse("end", stage, 0)
        assert await bench.is_busy()
    await bench.pulse("end", 2, 0)
    assert not await bench.is_busy()
