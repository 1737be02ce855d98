"""Each burst is answered with DECERR, as long as it is."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import Combine, ReadOnly, RisingEdge
from cocotbext.axi import AxiResp

from stagecoach.gateware.dma.axi_error_slave import AxiErrorSlave
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.dma.axi_traffic import LONGEST, SHORTEST, make_master, pause, watch
from tests.support.runner import parameter, run_cocotb

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("width, burst", [(64, LONGEST), (32, SHORTEST), (128, 16)])
def test_axi_error_slave(width: int, burst: int) -> None:
    design = AxiErrorSlave(width, id_width=2)
    run_cocotb(design, __name__, parameters={"BURST": str(burst)}, test_filter="every|all")


def test_axi_error_slave_cycles() -> None:
    run_cocotb(AxiErrorSlave(), __name__, test_filter="check_cycles")


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(share=[0, 0.4])
async def check_every_burst_is_answered(dut: Any, share: float) -> None:
    rng = seeded_random(share)
    burst, word = int(parameter("BURST")), len(dut.axi__wdata) // 8
    master = make_master(dut, "axi", burst)
    pause(master, rng, share)
    watch(dut, ["axi"], [])
    await start_clock_and_reset(dut)

    async def read(octets: int, number: int) -> None:
        answer = await master.read(rng.randrange(1 << 20) * 64, octets, arid=number)
        assert (answer.resp, answer.data) == (AxiResp.DECERR, bytes(octets))

    async def write(octets: int, number: int) -> None:
        answer = await master.write(rng.randrange(1 << 20) * 64, bytes(octets), awid=number)
        assert answer.resp == AxiResp.DECERR

    tasks = []
    for octets in (1, word, burst * word, (burst + 1) * word, *(rng.randint(1, 600),) * 4):
        for each in (read, write):
            tasks.append(cocotb.start_soon(each(octets, rng.randrange(4))))
    await Combine(*tasks)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_cycles(dut: Any) -> None:
    """A word of each direction per cycle; the answer of a write one cycle after its last word."""
    names = ("arvalid", "awvalid", "wvalid", "rready", "bready", "wlast")
    for name in names:
        getattr(dut, f"axi__{name}").value = 0
    await start_clock_and_reset(dut)
    for name in names[:-1]:
        getattr(dut, f"axi__{name}").value = 1
    dut.axi__arlen.value = dut.axi__awlen.value = 3
    found: dict[str, list[int]] = {"r": [], "w": [], "b": []}
    for cycle in range(8):
        dut.axi__wlast.value = int(cycle == 4)
        await ReadOnly()
        for channel, cycles in found.items():
            valid, ready = (getattr(dut, f"axi__{channel}{name}") for name in ("valid", "ready"))
            if valid.value and ready.value:
                cycles.append(cycle)
        assert bool(dut.axi__rlast.value) == (cycle == 4) or cycle not in range(1, 5)
        await RisingEdge(dut.clk)
        dut.axi__arvalid.value = dut.axi__awvalid.value = 0
    assert found == {"r": [1, 2, 3, 4], "w": [1, 2, 3, 4], "b": [5]}
