"""Every kick leads to a pick, kicked QPs take turns, and nobody is picked without a kick."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.queues.scheduler import Scheduler
from stagecoach.sim.cosim.signals import cycles
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb

KICKS = 3


@pytest.mark.parametrize(("qps", "pattern"), [(64, "random"), (256, "always"), (4, "slow")])
def test_scheduler(qps, pattern):
    config = RnicConfig(qps=qps)
    run_cocotb(Scheduler(config, KICKS), __name__, parameters={"QPS": str(qps), "PATTERN": pattern})


class Bench:
    def __init__(self, dut, rng):
        self.qps = int(parameter("QPS"))
        layout = Layouts(RnicConfig(qps=self.qps)).qp_number
        self.dut = dut
        self.sink = StreamSink(dut, "pick", layout, rng=rng, pattern=parameter("PATTERN"))
        StreamMonitor(dut, "pick", layout)
        for i in range(KICKS):
            getattr(dut, f"kicks__{i}__valid").value = 0

    async def kick(self, qps):
        """Kick up to KICKS QPs in one cycle."""
        for i in range(KICKS):
            valid = i < len(qps)
            getattr(self.dut, f"kicks__{i}__valid").value = int(valid)
            if valid:
                getattr(self.dut, f"kicks__{i}__qp").value = qps[i]
        await RisingEdge(self.dut.clk)
        for i in range(KICKS):
            getattr(self.dut, f"kicks__{i}__valid").value = 0


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_every_kick_is_followed_by_a_pick(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    kicked_after_pick = set()
    kicks = [0] * bench.qps
    picks = [0] * bench.qps
    for round_number in range(1500):
        chance = 0.1 if round_number % 300 < 150 else 0.7
        group = [rng.randrange(bench.qps) for _ in range(KICKS) if rng.random() < chance]
        # What was picked up to now cannot answer these kicks.
        for item in bench.sink.take_all():
            picks[item["qp"]] += 1
            kicked_after_pick.discard(item["qp"])
        await bench.kick(group)
        for qp in group:
            kicks[qp] += 1
            kicked_after_pick.add(qp)
    await cycles(dut, 40 * bench.qps)
    for item in bench.sink.take_all():
        picks[item["qp"]] += 1
        kicked_after_pick.discard(item["qp"])
    assert not kicked_after_pick
    assert all(pick <= kick for pick, kick in zip(picks, kicks, strict=True))
    assert all(bool(pick) == bool(kick) for pick, kick in zip(picks, kicks, strict=True))


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_single_kicks_are_picked_once(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    for _ in range(10):
        chosen = rng.sample(range(bench.qps), rng.randint(1, bench.qps))
        for i in range(0, len(chosen), KICKS):
            await bench.kick(chosen[i : i + KICKS])
        # Slow sinks: the picks of earlier ones may still wait, but none came twice.
        await cycles(dut, 40 * bench.qps)
        assert sorted(item["qp"] for item in bench.sink.take_all()) == sorted(chosen)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_busy_qps_take_turns(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    busy = sorted(rng.sample(range(bench.qps), min(bench.qps, 9)))
    for i in range(0, len(busy), KICKS):
        await bench.kick(busy[i : i + KICKS])
    order = []
    for _ in range(200):
        qp = (await bench.sink.get())["qp"]
        order.append(qp)
        await bench.kick([qp])
    for first in range(len(order)):
        for second in range(first + 1, len(order)):
            if order[second] == order[first]:
                # Everyone else had a turn in between.
                missing = set(busy) - set(order[first : second + 1])
                assert not missing or first == 0, (order[first : second + 1], busy)
                break


LATENCY = 5


async def latency_of(bench, qp):
    await bench.kick([qp])
    waited = 0
    while not bench.dut.pick__valid.value:
        await RisingEdge(bench.dut.clk)
        waited += 1
    assert int(bench.dut.pick__payload.value) == qp
    return waited


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_latency_of_a_kick(dut):
    """Also of the QP that was picked last, however long ago."""
    bench = Bench(dut, seeded_random())
    bench.sink.set_pattern("always")
    await start_clock_and_reset(dut)
    assert await latency_of(bench, bench.qps - 1) <= LATENCY
    for distance in range(2 * LATENCY):
        for qp in (bench.qps - 1, 0, 1):
            await cycles(dut, distance + 2)
            assert await latency_of(bench, qp) <= LATENCY, (distance, qp)
