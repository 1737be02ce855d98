"""The MULPDU is that of RFC 5044, 4.5, for every EMSS, three cycles later."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.mpa.mulpdu import Mulpdu
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from stagecoach.sim.model import mpa
from tests.support.runner import run_cocotb

EDGES = (0, 1, 127, 128, 133, 134, 135, 511, 512, 513, 1460, 64773, 64774, 64778, 65287, 65535)
RANDOM_VALUES = 3000


@pytest.mark.requirement("MPA-3-02", "MPA-3-04", "MPA-3-05", "MPA-4.5-01", "MPA-4.5-02")
@pytest.mark.requirement("MPA-4.5-05", "MPA-4.5-06", "MPA-5.1-01")
def test_mulpdu():
    run_cocotb(Mulpdu(), __name__)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_mulpdu_is_that_of_the_model(dut):
    rng = seeded_random()
    await start_clock_and_reset(dut)
    values = [(emss, markers) for emss in EDGES for markers in (0, 1)]
    values += [(rng.getrandbits(16), rng.getrandbits(1)) for _ in range(RANDOM_VALUES)]
    for cycle in range(len(values) + Mulpdu.LATENCY + 1):
        if cycle < len(values):
            dut.emss.value, dut.markers.value = values[cycle]
        await RisingEdge(dut.clk)
        # What was driven after the edge before is sampled at this one.
        given = cycle - Mulpdu.LATENCY
        if 0 <= given < len(values):
            emss, markers = values[given]
            assert int(dut.mulpdu.value) == mpa.mulpdu(emss, bool(markers)), values[given]
