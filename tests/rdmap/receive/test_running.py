"""The receiver drops the segments of a QP that does not run, or failed since it was connected."""

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.rdmap.receive.running import ReceiveRunning
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.support.runner import run_cocotb

CONFIG = RnicConfig(qps=16)
CYCLES = 2000
STOP_CYCLES = 2
"""From a stop or connect, and from `running`, to `drops`."""


def test_receive_running():
    run_cocotb(ReceiveRunning(CONFIG), __name__)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_drops(dut):
    rng = seeded_random()
    dut.connect__valid.value = dut.stop__valid.value = 0
    await start_clock_and_reset(dut)
    stopped = [0] * CONFIG.qps
    # What was driven after an edge, the latest last: what was stopped before, who ran a cycle ago,
    # the QP.
    driven = []
    dropped = running_before = coming = 0
    for _ in range(CYCLES):
        running, qp, coming = rng.getrandbits(CONFIG.qps), coming, rng.randrange(CONFIG.qps)
        kind, about = rng.choice(["stop", "connect", None, None]), rng.randrange(CONFIG.qps)
        dut.running.value, dut.qp.value, dut.coming.value = running, qp, coming
        dut.stop__valid.value, dut.stop__qp.value = int(kind == "stop"), about
        dut.connect__valid.value, dut.connect__qp.value = int(kind == "connect"), about
        driven.append((list(stopped), running_before, qp))
        running_before = running
        if kind is not None:
            stopped[about] = int(kind == "stop")
        await RisingEdge(dut.clk)
        if len(driven) >= STOP_CYCLES:
            before, running_then, qp_then = driven[-STOP_CYCLES]
            expected = before[qp_then] or not running_then >> qp_then & 1
            assert dut.drops.value == expected
            dropped += expected
    assert CYCLES // 4 < dropped < CYCLES
