"""A Read or Atomic Response is judged when it was compared with what it answers."""

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.rdmap.receive.decode import KIND
from stagecoach.gateware.rdmap.receive.record import VERDICT
from stagecoach.gateware.rdmap.receive.response import ReceiveResponse
from stagecoach.hw.interface.causes import Cause
from stagecoach.sim.cosim.streams import (
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
    width_of,
)
from tests.support.runner import run_cocotb

RESPONSES = 500
LATENCY = 3
NOTHING = unpack(VERDICT, 0)
CAUSES = (Cause.NONE, Cause.UNTAGGED_MSN, Cause.UNTAGGED_NO_BUFFER)


def test_receive_response():
    run_cocotb(ReceiveResponse(), __name__)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_responses(dut):
    rng = seeded_random()
    dut.segment__valid.value = 0
    await start_clock_and_reset(dut)
    seen = set()
    for _ in range(RESPONSES):
        for _ in range(rng.randint(1, 3)):
            await RisingEdge(dut.clk)
            assert not int(dut.verdict.value) and not dut.segment__ready.value
        is_atomic, last = rng.getrandbits(1), rng.getrandbits(1)
        octets = rng.choice([0, 1, rng.getrandbits(16)])
        kind = unpack(KIND, rng.getrandbits(width_of(KIND)))
        kind |= {"atomic_response": is_atomic, "last": last}
        dut.segment__valid.value, dut.segment__payload.value = 1, pack(KIND, kind)
        dut.payload.value = octets
        for cycle in range(LATENCY + 1):
            read, atomic = rng.choice(CAUSES), rng.choice(CAUSES)
            dut.read_cause.value, dut.atomic_cause.value = read.value, atomic.value
            await RisingEdge(dut.clk)
            assert dut.segment__ready.value == (cycle == LATENCY)
            if cycle != LATENCY:
                assert not int(dut.verdict.value)
        cause = atomic if is_atomic else read
        good = cause == Cause.NONE
        pieces = int(good and (is_atomic or octets != 0))
        told = {"cause": cause.value, "pieces": pieces, "delivers": int(good and last)}
        assert unpack(VERDICT, dut.verdict.value) == NOTHING | {"valid": 1} | told
        seen.add((is_atomic, last, good, octets == 0))
        dut.segment__valid.value = 0
    assert len(seen) == 16
