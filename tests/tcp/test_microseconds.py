"""The time of an engine keeps to its clock, whatever the frequency."""

from fractions import Fraction
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.tcp.microseconds import US_IN_A_SECOND, Microseconds
from stagecoach.sim.cosim.streams import start_clock_and_reset
from tests.support.runner import parameter, run_cocotb

CYCLES = 2000


@pytest.mark.parametrize("clock_hz", [1, 300_000, 500_000, 1_000_000, 62_500_000, 156_250_000])
def test_microseconds(clock_hz: int) -> None:
    run_cocotb(Microseconds(clock_hz), __name__, parameters={"CLOCK_HZ": str(clock_hz)})


def test_a_clock_that_stands_still_is_refused() -> None:
    with pytest.raises(ValueError, match="clock_hz is 0; allowed: 1 and more"):
        Microseconds(0)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_no_microsecond_is_lost_or_early(dut: Any) -> None:
    of_a_cycle = Fraction(US_IN_A_SECOND, int(parameter("CLOCK_HZ")))
    await start_clock_and_reset(dut)
    await RisingEdge(dut.clk)
    first = int(dut.time.value)
    phases = []
    for number in range(CYCLES):
        passed = (int(dut.time.value) - first) % (1 << 32)
        phases.append((number * of_a_cycle) % (1 << 32) - passed)
        await RisingEdge(dut.clk)
    spread = {phase % (1 << 32) for phase in phases}
    late = {phase if phase < 1 << 31 else phase - (1 << 32) for phase in spread}
    assert max(late) - min(late) < 1
