"""The next visit is asked for once an FPDU, and before the limits ask for theirs."""

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.rdmap.transmit.kick import TransmitKick
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.support.runner import run_cocotb

CONFIG = RnicConfig()
VISITS = 400


def test_transmit_kick():
    run_cocotb(TransmitKick(CONFIG), __name__)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_every_kick_and_no_other_one_is_made(dut):
    rng = seeded_random()
    inputs = ("working", "once", "again", "limits")
    for name in inputs:
        getattr(dut, name).value = 0
    await start_clock_and_reset(dut)
    heard = waited = 0
    for _ in range(VISITS):
        qp = rng.randrange(CONFIG.qps)
        dut.qp.value = qp
        length = rng.randint(2, 6)
        kicked_before = False  # more than a cycle ago
        expected = None
        last = False
        for cycle in range(length + 3):
            working = cycle < length
            # What is said in two cycles that follow each other is heard twice.
            once = working and not last and rng.random() < 0.4
            again = working and cycle == length - 1 and not last and rng.random() < 0.2
            limits, limits_qp = rng.random() < 0.5, rng.randrange(CONFIG.qps)
            dut.working.value, dut.once.value, dut.again.value = working, once, again
            dut.limits.value, dut.limits_qp.value = limits, limits_qp
            await RisingEdge(dut.clk)
            taken, kick = bool(dut.limits_taken.value), bool(dut.kick__valid.value)
            assert taken == (expected is None)
            assert kick == (limits or expected is not None)
            if kick:
                assert int(dut.kick__qp.value) == (limits_qp if expected is None else expected)
            waited += limits and not taken
            expected = qp if again or (once and not kicked_before) else None
            heard += expected is not None
            kicked_before |= once or again
            last = once or again
    assert heard > VISITS // 2
    assert waited > VISITS // 10
