"""What the atomic unit answers is kept for each QP until its visit."""

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.rdmap.atomic.operations import AtomicStatus, response_layout
from stagecoach.gateware.rdmap.transmit.atomic import AtomicAnswers
from stagecoach.sim.cosim.streams import pack, seeded_random, start_clock_and_reset
from tests.support.runner import run_cocotb

CONFIG = RnicConfig()


def test_atomic_answers():
    run_cocotb(AtomicAnswers(CONFIG), __name__)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_answers_are_kept_until_they_are_cleared(dut):
    rng = seeded_random()
    layout = response_layout(CONFIG)
    dut.response__valid.value = dut.clear__valid.value = 0
    await start_clock_and_reset(dut)
    known: dict[int, tuple[int, int]] = {}
    kicks = 0
    for _ in range(300):
        qp = rng.randrange(CONFIG.qps)
        if qp in known:
            dut.clear__valid.value, dut.clear__qp.value = 1, qp
            del known[qp]
        else:
            answer = {
                "qp": qp,
                "original": rng.getrandbits(64),
                "status": rng.choice(list(AtomicStatus)).value,
            }
            dut.response__payload.value, dut.response__valid.value = pack(layout, answer), 1
            known[qp] = answer["original"], answer["status"]
        await RisingEdge(dut.clk)
        assert dut.response__ready.value
        dut.clear__valid.value = dut.response__valid.value = 0
        looked = rng.choice([qp, rng.randrange(CONFIG.qps)])
        dut.select.value = looked
        for _ in range(4):
            await RisingEdge(dut.clk)
            if dut.kick__valid.value:
                kicks += 1
                assert int(dut.kick__qp.value) == qp and qp in known
        assert bool(dut.answered.value) == (looked in known)
        if looked in known:
            assert (int(dut.original.value), int(dut.status.value)) == known[looked]
    assert kicks > 100
