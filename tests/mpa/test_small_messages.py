"""The MPA receiver keeps up with the smallest FPDUs, and how long a visit costs."""

from typing import Any

import cocotb

from stagecoach.gateware.mpa.receiver import MpaReceiver
from stagecoach.sim.cosim.streams import seeded_random
from stagecoach.sim.model.mpa import frame_fpdu
from tests.mpa.receiver_bench import CONFIG, Bench
from tests.support.runner import run_cocotb
from tests.support.timeline import Timeline, high, passes

LLP_LATENCY = 5
MESSAGES = 100


def test_receiver() -> None:
    run_cocotb(MpaReceiver(CONFIG), __name__)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_backlog_of_small_fpdus(dut: Any) -> None:
    rng = seeded_random()
    bench = Bench(dut, rng, "always", latency=(LLP_LATENCY, LLP_LATENCY), place=False)
    time = Timeline(dut, segment=passes(dut, "segment"))
    await bench.start()
    for qp, (length, limit) in enumerate(((14, 3), (18, 3), (22, 4), (78, 11))):
        await bench.connect(qp)
        fpdu = frame_fpdu(rng.randbytes(length))
        bench.deliver(qp, fpdu * MESSAGES)
        time.clear()
        bench.llp.announce(qp, 1 << 20)
        await time.wait_for("segment", MESSAGES)
        each = time.interval("segment")
        print(f"receiver, FPDUs of {len(fpdu)} octets: {each:.2f} cycles")
        assert each <= limit
        await bench.cycles(100)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_cost_of_a_visit(dut: Any) -> None:
    rng = seeded_random()
    bench = Bench(dut, rng, "always", latency=(LLP_LATENCY, LLP_LATENCY), place=False)
    time = Timeline(dut, beat=passes(dut, "rx"), segment=high(dut.segment__valid))
    await bench.start()
    for qp in range(CONFIG.qps):
        await bench.connect(qp)
    for length, latency, limit in ((1454, LLP_LATENCY, 9), (1454, 80, 9), (14, LLP_LATENCY, 20)):
        bench.llp.latency = (latency, latency)
        fpdu = frame_fpdu(rng.randbytes(length))
        time.clear()
        for qp in range(CONFIG.qps):
            bench.deliver(qp, fpdu)
            bench.llp.announce(qp, len(fpdu))
        await time.wait_for("segment", CONFIG.qps)
        beats = -(-len(fpdu) // 8)
        gaps = [
            time.at["beat"][beats * visit] - time.at["beat"][beats * visit - 1]
            for visit in range(1, CONFIG.qps)
        ]
        print(f"receiver, FPDUs of {len(fpdu)} octets: {gaps} cycles from visit to visit")
        assert max(gaps) <= limit
        await bench.cycles(200)
