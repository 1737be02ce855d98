"""The timeout takes the steps of the vectors, and those of the reference TCP."""

from random import Random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.tcp.rto import RTO, RetransmissionTimeout, RtoOperation
from stagecoach.sim.cosim.streams import pack, seeded_random, start_clock_and_reset, unpack
from stagecoach.sim.model.tcp import rto as model
from tests.sim.model.tcp.vectors import VECTORS
from tests.support.runner import run_cocotb

CYCLES = 4


class Bench:
    """The block, and what a connection knows: the state as the block left it."""

    def __init__(self, dut: Any, minimum: int, maximum: int, initial: int = 1_000_000) -> None:
        self.dut = dut
        self.state: Any = {"srtt8": 8 * initial, "timeout": initial}
        dut.minimum.value, dut.maximum.value = minimum, maximum

    async def step(self, operation: RtoOperation, measured: int = 0) -> None:
        dut = self.dut
        dut.operation.value, dut.measured.value = operation.value, measured
        dut.rto.value = pack(RTO, self.state)
        # Good in the fourth cycle, at whose end it is looked at.
        await ClockCycles(dut.clk, CYCLES)
        self.state = unpack(RTO, int(dut.rto_after.value))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_vectors(dut: Any) -> None:
    await start_clock_and_reset(dut)
    # One is of a coarser clock.
    vectors = [vector for vector in VECTORS["rto"] if vector["G_us"] == 1]
    assert len(vectors) == len(VECTORS["rto"]) - 1
    for vector in vectors:
        bench = Bench(dut, vector["min_us"], vector["max_us"])
        for event, step in zip(vector["samples"], vector["steps"], strict=True):
            if event == "timeout":
                await bench.step(RtoOperation.EXPIRE)
            else:
                await bench.step(RtoOperation.SAMPLE, event)
            assert bench.state["timeout"] == step[2], vector["name"]
            if bench.state["sampled"]:
                assert [bench.state["srtt8"], bench.state["rttvar4"]] == step[3:]


async def both(
    bench: Bench, reference: model.RetransmissionTimeout, operation: RtoOperation, measured: int
) -> None:
    """A step of the block is one of the reference TCP."""
    if operation is RtoOperation.SAMPLE:
        reference.sample(measured)
    elif operation is RtoOperation.EXPIRE:
        reference.expire()
    else:
        reference.backoff = 0
    await bench.step(operation, measured)
    state = bench.state
    assert state["timeout"] == reference.microseconds, operation
    if reference.srtt8 is not None:
        assert (state["srtt8"], state["rttvar4"]) == (reference.srtt8, reference.rttvar4)


def sample(rng: Random, before: int) -> int:
    """Much as before, or anything."""
    near = max(0, before + rng.randint(-50, 50))
    return rng.choice([near, near, 0, 1, rng.randrange(100_000), rng.randrange(1 << 29)])


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_random_events(dut: Any) -> None:
    rng = seeded_random()
    await start_clock_and_reset(dut)
    for _ in range(25):
        minimum = rng.choice([0, 1000, 200_000, 1_000_000])
        maximum = rng.choice([60_000_000, 120_000_000])
        initial = rng.choice([1_000_000, 3_000_000])
        bench = Bench(dut, minimum, maximum, initial)
        reference = model.RetransmissionTimeout(1, minimum, maximum, initial)
        measured = 0
        for _ in range(30):
            operation = rng.choice([RtoOperation.SAMPLE, *RtoOperation])
            if operation is RtoOperation.SAMPLE:
                measured = sample(rng, measured)
            await both(bench, reference, operation, measured)
            await RisingEdge(dut.clk)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_variation_of_zero_counts_as_one_microsecond(dut: Any) -> None:
    """Round trips of less than a microsecond (2.2, 2.3: G), and the first one that is longer."""
    await start_clock_and_reset(dut)
    sample, expire, reset = RtoOperation.SAMPLE, RtoOperation.EXPIRE, RtoOperation.RESET
    bench = Bench(dut, 0, 60_000_000)
    reference = model.RetransmissionTimeout(1, 0, 60_000_000, 1_000_000)
    for operation in (sample, reset, expire, expire, reset, sample):
        await both(bench, reference, operation, 0)
        assert bench.state["rttvar4"] == 0
    await both(bench, reference, sample, 2)
    assert bench.state["timeout"] == 2


@pytest.mark.requirement("RTO-2.1-01", "RTO-2.2-01", "RTO-2.3-01", "RTO-2.3-02", "RTO-5.5-01")
def test_rto() -> None:
    run_cocotb(RetransmissionTimeout(), __name__)
