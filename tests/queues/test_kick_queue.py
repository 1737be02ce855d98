"""Every kick leads to a pick, in order, and nobody is picked without a kick."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.queues.kick_queue import KickQueue
from stagecoach.sim.cosim.signals import cycles
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb

KICKS = 3
APART = (2, 4, 8)  # cycles between the kicks of an input, at least: none waits so long
ON_THE_WAY = 3  # a kick of so many cycles before a pick may have come too late for it


@pytest.mark.parametrize(("qps", "pattern"), [(64, "random"), (256, "always"), (4, "slow")])
def test_kick_queue(qps: int, pattern: str) -> None:
    config = RnicConfig(qps=qps)
    run_cocotb(KickQueue(config, KICKS), __name__, parameters={"QPS": str(qps), "PATTERN": pattern})


class Bench:
    def __init__(self, dut: Any) -> None:
        self.dut, self.rng = dut, seeded_random()
        self.qps = int(parameter("QPS"))
        layout = Layouts(RnicConfig(qps=self.qps)).qp_number
        pattern = parameter("PATTERN")
        self.sink = StreamSink(dut, "pick", layout, rng=self.rng, pattern=pattern)
        StreamMonitor(dut, "pick", layout)
        for i in range(KICKS):
            getattr(dut, f"kicks__{i}__valid").value = 0
        dut.clear.value = 0

    async def start(self) -> None:
        """Reset; what a memory holds is not reset with the rest."""
        await start_clock_and_reset(self.dut)
        for qp in range(self.qps):
            self.dut.clear_qp.value, self.dut.clear.value = qp, 1
            await RisingEdge(self.dut.clk)
        self.dut.clear.value = 0

    def kick(self, number: int, qp: int | None) -> None:
        getattr(self.dut, f"kicks__{number}__valid").value = int(qp is not None)
        if qp is not None:
            getattr(self.dut, f"kicks__{number}__qp").value = qp


async def kick_at_random(bench: Bench, rounds: int) -> None:
    """Picks must answer the kicks, each QP once for all of its kicks before."""
    rng = bench.rng
    waiting: dict[int, int] = {}  # kicks that no pick came after, by QP: when it was the last
    kicks, picks = [0] * bench.qps, [0] * bench.qps

    def take(now: int) -> None:
        for item in bench.sink.take_all():
            qp = item["qp"]
            picks[qp] += 1
            assert picks[qp] <= kicks[qp]
            if waiting.get(qp, now) < now - ON_THE_WAY:
                del waiting[qp]

    for now in range(rounds):
        chance = 0.1 if now % 300 < 150 else 0.7
        take(now)
        for number, apart in enumerate(APART):
            qp = rng.randrange(bench.qps)
            kicked = now % apart == 0 and rng.random() < chance
            bench.kick(number, qp if kicked else None)
            if kicked:
                kicks[qp] += 1
                waiting[qp] = now
        await RisingEdge(bench.dut.clk)
    for number in range(KICKS):
        bench.kick(number, None)
    await cycles(bench.dut, 40 * bench.qps + 100)
    take(rounds + 1000)
    assert not waiting
    assert all(bool(pick) == bool(kick) for pick, kick in zip(picks, kicks, strict=True))


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_every_kick_is_followed_by_a_pick(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    await kick_at_random(bench, 1500)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_queued_qps_are_forgotten_in_a_reset(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    bench.sink.paused = True
    for qp in range(0, bench.qps, 3):
        bench.kick(0, qp)
        await RisingEdge(dut.clk)
    bench.kick(0, None)
    await cycles(dut, 10)
    dut.rst.value = 1
    await cycles(dut, 2)
    dut.rst.value = 0
    bench.sink.take_all()
    bench.sink.paused = False
    for qp in range(bench.qps):
        dut.clear_qp.value, dut.clear.value = qp, 1
        await RisingEdge(dut.clk)
    dut.clear.value = 0
    await kick_at_random(bench, 600)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_qps_are_picked_once_in_the_order_of_their_kicks(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    for _ in range(10):
        chosen = bench.rng.sample(range(bench.qps), bench.rng.randint(1, bench.qps))
        for qp in chosen:
            bench.kick(0, qp)
            await RisingEdge(dut.clk)
        # Kicked once more while it waits, the last one is still picked once.
        bench.kick(1, chosen[-1])
        await RisingEdge(dut.clk)
        bench.kick(1, None)
        bench.kick(0, None)
        await cycles(dut, 40 * bench.qps)
        assert [item["qp"] for item in bench.sink.take_all()] == chosen
