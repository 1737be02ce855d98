"""The PHY is in reset long enough, and no longer."""

from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.hw.boards.ethernet import PhyReset
from stagecoach.sim.cosim.streams import start_clock_and_reset
from tests.support.runner import run_cocotb


def test_phy_reset() -> None:
    run_cocotb(PhyReset(clock_hz=5_000), __name__)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_it_is_in_reset_for_10_ms(dut: Any) -> None:
    await start_clock_and_reset(dut)
    for _ in range(2):
        cycles = 0
        while dut.o.value:
            await RisingEdge(dut.clk)
            cycles += 1
        assert cycles in (49, 50, 51)
        for _ in range(200):
            await RisingEdge(dut.clk)
            assert not dut.o.value
        dut.rst.value = 1
        await RisingEdge(dut.clk)
        dut.rst.value = 0
        await RisingEdge(dut.clk)
        await RisingEdge(dut.clk)
