"""Every retired work request is counted for its QP, in whatever cycles they come."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from gateware.config import RnicConfig
from gateware.rdmap.transmit_context import RetiredSends, sends_bits
from tests.support.runner import parameter, run_cocotb
from tests.support.streams import active_cycles, seeded_random, start_clock_and_reset

CONFIG = RnicConfig(qps=4, pending_sends=8)
CYCLES = 3000
# Cycles after a strobe in which the count may still be the old one.
LATENCY = 2


@pytest.mark.parametrize("pattern", ["always", "random", "bursty"])
def test_retired_sends(pattern):
    run_cocotb(RetiredSends(CONFIG), __name__, parameters={"PATTERN": pattern})


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_strobes_are_counted(dut):
    rng = seeded_random(parameter("PATTERN"))
    active = active_cycles(parameter("PATTERN"), rng)
    modulus = 1 << sends_bits(CONFIG)
    dut.retired__valid.value = 0
    await start_clock_and_reset(dut)
    counts = [0] * CONFIG.qps
    # For each cycle: the QP that was selected, and the counts up to the cycle before.
    cycles = []
    exact = 0
    for cycle in range(CYCLES + 2 * LATENCY):
        # Driven after an edge, in the memory's output at the next, sampled at the one after that.
        if cycle >= LATENCY:
            select, newest = cycles[-2]
            oldest = cycles[max(0, len(cycles) - 2 - LATENCY)][1][select]
            late = (newest[select] - int(dut.count.value)) % modulus
            assert late <= newest[select] - oldest, (select, late)
            exact += newest[select] == oldest
        select = rng.randrange(CONFIG.qps)
        dut.select.value = select
        cycles.append((select, list(counts)))
        # The same QP in many cycles that follow each other, too.
        qp = rng.randrange(CONFIG.qps) if rng.random() < 0.5 else int(dut.retired__qp.value)
        retired = cycle < CYCLES and next(active)
        dut.retired__valid.value, dut.retired__qp.value = int(retired), qp
        counts[qp] += retired
        await RisingEdge(dut.clk)
    assert exact > CYCLES // 10
    assert min(counts) > 2 * modulus
