"""A lane is taken back when its QP has popped nothing for three ticks, and nothing else."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.queues.prefetch_lanes import OLD, PrefetchLanes
from stagecoach.sim.cosim.signals import cycles
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.support.runner import parameter, run_cocotb

TICK_CYCLES = 16
OUTSTANDING = 4
STROBES = ("bind", "forget", "release", "renew", "hold", "pop__valid", "fetch", "arrive")
NUMBERS = ("qp", "pop__qp", "fetch_lane", "arrive_lane")


@pytest.mark.parametrize("lanes", [2, 16])
def test_prefetch_lanes(lanes):
    config = RnicConfig(qps=32, prefetch_lanes=lanes)
    lanes_block = PrefetchLanes(config, tick_cycles=TICK_CYCLES, outstanding=OUTSTANDING)
    run_cocotb(lanes_block, __name__, parameters={"LANES": str(lanes)})


class Bench:
    def __init__(self, dut):
        self.dut = dut
        self.lanes = int(parameter("LANES"))
        self.rng = seeded_random(self.lanes)
        for name in (*STROBES, *NUMBERS):
            getattr(dut, name).value = 0

    async def pulse(self, strobe: str, **numbers: int):
        """A strobe of one cycle; its effect can be seen two cycles later."""
        for name, value in numbers.items():
            getattr(self.dut, name).value = value
        getattr(self.dut, strobe).value = 1
        await RisingEdge(self.dut.clk)
        getattr(self.dut, strobe).value = 0
        await cycles(self.dut, 2)

    async def bind(self, qp: int) -> int:
        """The lane that a QP got."""
        assert self.dut.free.value
        lane = int(self.dut.free_lane.value)
        await self.pulse("bind", qp=qp)
        return lane

    async def ticks_until_idle(self) -> int:
        """Ticks that pass until a lane may be taken back; none may, now."""
        assert not self.dut.idle.value
        ticks = 0
        for _ in range(5 * TICK_CYCLES):
            await RisingEdge(self.dut.clk)
            ticks += int(self.dut.tick.value)
            if self.dut.idle.value:
                return ticks
        raise AssertionError(f"no lane can be taken back after {ticks} ticks")

    async def after_a_tick(self):
        """Some cycles after a tick, so that what follows is done before the next one."""
        while not self.dut.tick.value:
            await RisingEdge(self.dut.clk)
        await cycles(self.dut, 1 + self.rng.randrange(TICK_CYCLES - 10))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_each_lane_goes_to_one_qp(dut):
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    await cycles(dut, 2)
    assert [await bench.bind(qp) for qp in range(bench.lanes)] == list(range(bench.lanes))
    assert not dut.free.value
    for qp in bench.rng.sample(range(bench.lanes), bench.lanes):
        await bench.pulse("forget", qp=qp)
        assert dut.free.value and dut.free_lane.value == qp
        assert await bench.bind(31) == qp
        assert not dut.free.value
        await bench.pulse("forget", qp=31)
        assert await bench.bind(qp) == qp


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_the_age_of_a_lane(dut):
    """`bind`, a pop of its QP and `renew` make it new; nothing of another QP does."""
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    await bench.after_a_tick()
    lane = await bench.bind(5)
    assert await bench.ticks_until_idle() == OLD
    assert (dut.idle_lane.value, dut.idle_qp.value) == (lane, 5)
    await bench.after_a_tick()
    await bench.pulse("renew")
    await cycles(dut, 2)
    assert await bench.ticks_until_idle() == OLD
    await bench.after_a_tick()
    await bench.pulse("pop__valid", pop__qp=5)
    await cycles(dut, 2)
    assert not dut.idle.value
    await bench.after_a_tick()
    await bench.pulse("pop__valid", pop__qp=4)
    assert await bench.ticks_until_idle() == OLD - 1
    # While it is looked at, what is known of it stays.
    dut.hold.value = 1
    await bench.pulse("pop__valid", pop__qp=5)
    await cycles(dut, 2)
    assert dut.idle.value and dut.idle_qp.value == 5
    dut.hold.value = 0
    await cycles(dut, 2)
    assert not dut.idle.value


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_lane_with_reads_on_their_way_stays(dut):
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    await cycles(dut, 2)
    lanes = [await bench.bind(qp) for qp in range(2)]
    await bench.pulse("pop__valid", pop__qp=0)
    for _ in range(OUTSTANDING):
        await bench.pulse("fetch", fetch_lane=lanes[1])
    await cycles(dut, 5 * TICK_CYCLES)
    assert dut.idle.value and dut.idle_qp.value == 0
    await bench.pulse("release")
    assert dut.free.value and dut.free_lane.value == lanes[0]
    for _ in range(OUTSTANDING - 1):
        await bench.pulse("arrive", arrive_lane=lanes[1])
        await cycles(dut, 2 * TICK_CYCLES)
        assert not dut.idle.value
    await bench.pulse("arrive", arrive_lane=lanes[1])
    await cycles(dut, 1)
    assert dut.idle.value and dut.idle_lane.value == lanes[1]
