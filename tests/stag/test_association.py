"""An STag of one stream is no other stream's, and that of a Protection Domain no other one's."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.layouts import StagStatus
from stagecoach.gateware.stag.table import StagTable
from stagecoach.hw.interface.queue_entries import Rights
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.stag.test_table import CLIENTS, CONFIG, INVALIDATORS, Bench
from tests.support.runner import parameter, run_cocotb

ALL = Rights.LOCAL_READ | Rights.LOCAL_WRITE | Rights.REMOTE_READ | Rights.REMOTE_WRITE
PD_BITS = 16


OF_STREAMS = ("DDP-8.2-02", "DDP-8.3.1-03", "RDMAP-8.1.1-02", "SEC-6.1.1-03")
OF_DOMAINS = ("DDP-8.2-01", "DDP-8.3.1-02", "RDMAP-8.1.1-01", "SEC-6.1.1-02")


@pytest.mark.requirement("DDP-8.2-04", "DDP-8.3-03", "RDMAP-7.2-10", "SEC-6.1.1-01")
@pytest.mark.parametrize(
    "scoped",
    [
        pytest.param(1, marks=pytest.mark.requirement(*OF_STREAMS)),
        pytest.param(0, marks=pytest.mark.requirement(*OF_DOMAINS)),
    ],
)
def test_association(scoped: int) -> None:
    run_cocotb(
        StagTable(CONFIG, clients=CLIENTS, invalidators=INVALIDATORS),
        __name__,
        parameters={"PATTERN": "always", "SCOPED": str(scoped)},
        name=f"scoped-{scoped}",
    )


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_who_may_use_an_stag(dut: Any) -> None:
    rng = seeded_random()
    bench = Bench(dut, rng, parameter("PATTERN"))
    scoped = int(parameter("SCOPED"))
    await start_clock_and_reset(dut)
    for owner in range(CONFIG.qps):
        region = {
            "stag": rng.getrandbits(32),
            "pd": rng.getrandbits(PD_BITS),
            "rights": int(ALL),
            "scoped": scoped,
            "qp": owner,
            "base": rng.getrandbits(63),
            "length": 1 + rng.getrandbits(20),
            "address": rng.getrandbits(56),
            "fast": 0,
        }
        await bench.write(region)
        request = {
            "stag": region["stag"],
            "tagged_offset": region["base"],
            "octets": 1,
            "exclusive": 0,
        }
        for right in (Rights.REMOTE_WRITE, Rights.REMOTE_READ, Rights.LOCAL_WRITE):
            for qp in range(CONFIG.qps):
                # The Protection Domain of the region, and every one that differs in one bit.
                for other in (0, *(1 << bit for bit in range(PD_BITS))):
                    pd = region["pd"] ^ other
                    asked = request | {"rights": int(right), "qp": qp, "pd": pd}
                    may = not other and (not scoped or qp == owner)
                    # Also of one octet that is not there: who may not use it learns nothing.
                    if not may:
                        asked["tagged_offset"] = rng.getrandbits(64)
                    bench.clients[0].answers.clear()
                    await bench.clients[0].requests.send(asked)
                    while not bench.clients[0].answers:
                        await RisingEdge(dut.clk)
                    (status, address), *_ = bench.clients[0].answers
                    expected = StagStatus.OK if may else StagStatus.NOT_ASSOCIATED
                    assert status is expected, (owner, qp, right, other)
                    assert not may or address == region["address"]
