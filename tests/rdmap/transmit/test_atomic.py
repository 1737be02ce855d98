"""An inbound atomic goes to the unit if its target was allowed and is aligned, and else nowhere."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.interfaces import OPERANDS
from stagecoach.gateware.rdmap.atomic.operations import AtomicStatus
from stagecoach.gateware.rdmap.atomic.unit import request_layout, response_layout
from stagecoach.gateware.rdmap.transmit.atomic import AtomicAnswers, TransmitAtomic
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    pack,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig()
ATOMICS = 300


@pytest.mark.parametrize("pattern", ["always", "slow"])
def test_transmit_atomic(pattern):
    run_cocotb(
        TransmitAtomic(CONFIG), __name__, test_filter="check_unit", parameters={"PATTERN": pattern}
    )


def test_atomic_answers():
    run_cocotb(AtomicAnswers(CONFIG), __name__, test_filter="check_answers")


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_unit_gets_what_may_be_done(dut):
    rng = seeded_random(parameter("PATTERN"))
    sink = StreamSink(dut, "request", request_layout(CONFIG), rng=rng, pattern=parameter("PATTERN"))
    StreamMonitor(dut, "request", keep=False)
    dut.target__valid.value = dut.free.value = dut.doomed.value = 0
    await start_clock_and_reset(dut)
    outcomes = dict.fromkeys(("begun", "misaligned", "doomed"), 0)
    for _ in range(ATOMICS):
        outcome = rng.choice(list(outcomes))
        outcomes[outcome] += 1
        qp = rng.randrange(CONFIG.qps)
        low = rng.randint(1, 7) if outcome == "misaligned" else 0
        address = rng.getrandbits(61) << 3 | low
        operands = {"operation": rng.randrange(3), "data": rng.getrandbits(64)}
        dut.target__payload.value, dut.target__valid.value = qp, 1
        dut.operands.value = pack(OPERANDS, operands)
        dut.free.value = dut.doomed.value = 0
        for _ in range(rng.randrange(4)):
            dut.address.value = rng.getrandbits(64)
            await RisingEdge(dut.clk)
            assert not dut.target__ready.value and not dut.request__valid.value
        # The answer of the table is there with `free`.
        dut.address.value, dut.free.value, dut.doomed.value = address, 1, outcome == "doomed"
        cycles = asked = 0
        while True:
            await RisingEdge(dut.clk)
            asked += bool(dut.request__valid.value)
            if dut.target__ready.value:
                break
            assert not dut.refused__valid.value
            cycles += 1
        assert bool(dut.refused__valid.value) == (outcome != "begun")
        assert not dut.refused__valid.value or int(dut.refused__qp.value) == qp
        assert bool(dut.failed.value) == (outcome == "misaligned")
        assert bool(dut.begun.value) == (outcome == "begun")
        assert bool(asked) == (outcome == "begun")
        dut.target__valid.value = 0
        await RisingEdge(dut.clk)
        assert not dut.target__ready.value
        if outcome == "begun":
            request = await sink.get()
            assert (request["qp"], request["address"]) == (qp, address)
            assert request["operands"]["operation"] == operands["operation"]
            assert request["operands"]["data"] == operands["data"]
            assert cycles >= 2 and (parameter("PATTERN") != "always" or cycles == 2)
        else:
            assert cycles == (outcome == "misaligned")
    assert not sink.take_all()
    assert min(outcomes.values()) > ATOMICS // 6


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
