"""A segment that takes a receive entry waits for it, and is judged with it."""

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.rdmap.receive.decode import KIND
from stagecoach.gateware.rdmap.receive.record import VERDICT
from stagecoach.gateware.rdmap.receive.send import ReceiveSend
from stagecoach.hw.interface.causes import Cause
from stagecoach.sim.cosim.streams import (
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
    width_of,
)
from tests.support.runner import run_cocotb

SEGMENTS = 1500
NOTHING = unpack(VERDICT, 0)


def test_receive_send():
    run_cocotb(ReceiveSend(), __name__)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_verdicts(dut):
    rng = seeded_random()
    dut.segment__valid.value = dut.level.value = dut.drops.value = 0
    dut.failed.value = dut.shared.value = dut.read.value = 0
    await start_clock_and_reset(dut)

    async def cycle():
        """The verdict of a cycle, if there is one, and whether the scan is begun anew."""
        await RisingEdge(dut.clk)
        verdict = unpack(VERDICT, dut.verdict.value)
        assert dut.segment__ready.value == verdict["valid"]
        return (verdict if verdict["valid"] else None), bool(dut.restart.value)

    seen = set()
    for _ in range(SEGMENTS):
        for _ in range(rng.randint(1, 3)):
            assert await cycle() == (None, False)
            assert not int(dut.verdict.value)  # another step may judge
        immediate, last = rng.getrandbits(1), rng.getrandbits(1)
        kind = unpack(KIND, rng.getrandbits(width_of(KIND))) | {
            "immediate": immediate,
            "last": last,
        }
        cause = Cause.UNTAGGED_MSN if rng.random() < 0.2 else Cause.NONE
        other, too_long = rng.random() < 0.1, rng.random() < 0.1
        length = rng.choice([Cause.NONE, Cause.UNTAGGED_TOO_LONG])
        delay = rng.choice([0, 0, rng.randint(1, 5)])  # of the entry

        # The segment comes; the checks answer a cycle later.
        dut.segment__valid.value, dut.segment__payload.value = 1, pack(KIND, kind)
        dut.level.value = 0 if delay else rng.randint(1, 255)
        for name in ("cause", "other_opcode", "immediate_cause", "too_long"):
            getattr(dut, name).value = rng.getrandbits(len(getattr(dut, name)))
        dut.complete.value = dut.exhausted.value = rng.getrandbits(1)
        assert await cycle() == (None, False)
        dut.cause.value, dut.immediate_cause.value = cause.value, length.value
        dut.other_opcode.value, dut.too_long.value = int(other), int(too_long)
        dut.complete.value = dut.exhausted.value = 0
        assert await cycle() == (None, False)
        dut.cause.value = rng.getrandbits(len(dut.cause))  # it was looked at

        # The entry
        refused = NOTHING | {"valid": 1, "cause": cause.value}
        if delay:
            stops, fails = rng.random() < 0.3, rng.random() < 0.3
            if cause == Cause.NONE:
                for _ in range(delay):
                    assert await cycle() == (None, True)
            if cause != Cause.NONE or stops:
                dut.drops.value = int(stops)
                assert await cycle() == (refused | {"dropped": int(stops)}, True)
                dut.drops.value = dut.segment__valid.value = 0
                seen.add(("no entry", cause, stops))
                continue
            if fails:
                dut.failed.value = 1
                assert await cycle() == (None, True)
                failed = NOTHING | {"valid": 1, "cause": Cause.HOST_READ_ERROR.value}
                assert await cycle() == (failed, True)
                dut.failed.value = dut.segment__valid.value = 0
                seen.add(("failed", cause))
                continue
            dut.level.value = 1
            assert await cycle() == (None, True)
            assert await cycle() == (None, True)
        if immediate:
            expected = refused
            if cause == Cause.NONE:
                delivers = int(length == Cause.NONE)
                expected = NOTHING | {"valid": 1, "cause": length.value, "delivers": delivers}
            assert await cycle() == (expected, False)
            seen.add(("Immediate Data", expected["cause"]))
        else:
            ends = rng.choice(["complete", "exhausted"])
            count = rng.randint(0, 4)
            if cause == Cause.NONE:
                for _ in range(rng.randint(0, 6)):
                    dut.count.value = rng.randint(0, 4)
                    assert await cycle() == (None, False)
                getattr(dut, ends).value = 1
                # The entry is kept if the message goes on, and so has to be there whole.
                shared = rng.getrandbits(1)
                dut.shared.value, dut.read.value = shared, 0
                if shared and not last:
                    for _ in range(rng.randint(1, 4)):
                        assert await cycle() == (None, False)
                        dut.count.value = count
                        seen.add(("kept", ends))
                    assert await cycle() == (None, False)
                    dut.read.value = 1
                else:
                    assert await cycle() == (None, False)
                dut.complete.value = dut.exhausted.value = 0
            dut.count.value = count
            expected = refused
            if cause == Cause.NONE:
                good = ends == "complete" and not too_long and not other
                expected = NOTHING | {"valid": 1, "pieces": good * count, "delivers": good & last}
                if ends == "exhausted" or too_long:
                    expected["cause"] = Cause.UNTAGGED_TOO_LONG.value
                elif other:
                    expected["cause"] = Cause.UNEXPECTED_OPCODE.value
            assert await cycle() == (expected, False)
            seen.add((ends, cause, other, too_long, last))
        dut.segment__valid.value = 0
    without = [what[1:] for what in seen if what[0] == "no entry"]
    assert sorted(without) == [(0, True), (Cause.UNTAGGED_MSN, False), (Cause.UNTAGGED_MSN, True)]
    assert sum(1 for what in seen if what[0] == "Immediate Data") == 3
    assert {("failed", Cause.NONE), ("kept", "complete"), ("kept", "exhausted")} <= seen
    assert sum(1 for what in seen if what[0] in ("complete", "exhausted")) > 24
