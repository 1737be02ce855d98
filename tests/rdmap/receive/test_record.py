"""A record says what verdict and segment say; what its message ends hears of it once."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, SegmentKind
from stagecoach.gateware.rdmap.receive.decode import KIND
from stagecoach.gateware.rdmap.receive.record import VERDICT, ReceiveRecord, record_layout
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import EVENT_HEADER_OCTETS
from stagecoach.sim.cosim.streams import (
    active_cycles,
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
    width_of,
)
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig(qps=4)
LAYOUTS = Layouts(CONFIG)
RECORD = record_layout(CONFIG)
SEGMENTS = 600
UNTAGGED_OCTETS = 18
PULSES = ("over", "leaving", "dropped", "pop_entry", "popping_entry", "keep_entry", "pop", "push")
WAYS = ("write", "entry", "request", "response", "atomic_response")


@pytest.mark.parametrize("pattern", ["always", "random"])
def test_receive_record(pattern):
    run_cocotb(ReceiveRecord(CONFIG), __name__, parameters={"PATTERN": pattern})


def _random(rng, layout):
    return unpack(layout, rng.getrandbits(width_of(layout)))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_records(dut):
    pattern = parameter("PATTERN")
    rng = seeded_random(pattern)
    active = active_cycles(pattern, rng)
    dut.verdict.value = dut.drops.value = dut.stopped.value = dut.record__ready.value = 0
    await start_clock_and_reset(dut)
    seen, later, bank, segment = set(), set(), 0, {"qp": 0}
    spaces = None  # the QP of the request that was popped a cycle ago

    async def cycle(*now):
        """One cycle, in which these pulses come, and those that were due."""
        nonlocal later, spaces
        await RisingEdge(dut.clk)
        expected = {name: int(name in now or name in later) for name in PULSES}
        assert {name: int(getattr(dut, name).value) for name in PULSES} == expected
        assert dut.read_space__valid.value == (spaces is not None)
        if spaces is not None:
            assert dut.read_space__qp.value == spaces
        spaces = segment["qp"] if "pop" in later else None
        later = set()

    for _ in range(SEGMENTS):
        # It stands for a cycle more.
        await cycle()
        segment, way = _random(rng, LAYOUTS.segment), rng.choice(WAYS)
        segment["kind"] = (SegmentKind.FPDU if rng.random() < 0.8 else SegmentKind.CLOSED).value
        is_fpdu = segment["kind"] == SegmentKind.FPDU.value
        kind = _random(rng, KIND) | {
            "takes_entry": int(way == "entry"),
            "request": int(way == "request"),
            "response": int("response" in way),
            "atomic_response": int(way == "atomic_response"),
        }
        inputs = {
            "position": rng.getrandbits(len(dut.position) - 1),
            "message_end": rng.getrandbits(33),
            "pd": rng.getrandbits(16),
            "started": rng.getrandbits(1),
            "entry_index": rng.getrandbits(16),
        }
        outstanding = _random(rng, LAYOUTS.outstanding_request)
        good, tells = is_fpdu and rng.random() < 0.7, int(is_fpdu and rng.random() < 0.2)
        verdict = {
            "valid": 1,
            "dropped": int(rng.random() < 0.1),
            "cause": 0 if good else rng.choice([Cause.UNTAGGED_MSN, Cause.LLP_CLOSED]).value,
            "tells": int(tells and not good),
            "pieces": rng.randint(0, 4) if good else 0,
            "delivers": int(good and rng.random() < 0.7),
        }
        dut.segment.value, dut.kind.value = pack(LAYOUTS.segment, segment), pack(KIND, kind)
        dut.outstanding.value = pack(LAYOUTS.outstanding_request, outstanding)
        for name, value in inputs.items():
            getattr(dut, name).value = value
        for _ in range(rng.randint(1, 4)):
            dut.verdict.value = pack(VERDICT, verdict | {"valid": 0})
            await cycle()
            assert not dut.record__valid.value and dut.bank.value == bank
        dut.verdict.value = pack(VERDICT, verdict)
        await cycle()
        assert not dut.record__valid.value
        dut.verdict.value, dut.started.value = rng.getrandbits(width_of(VERDICT) - 1) << 1, 1
        stopped = halting = halted = False
        while True:
            ready = next(active)
            dut.record__ready.value = int(ready)
            # A stop is known at once by one, by the other in the next cycle, and lasts.
            stopped, halted = stopped or rng.random() < 0.05, halting
            halting |= rng.random() < 0.05
            dut.stopped.value, dut.drops.value = int(stopped), int(halting)
            dropped = bool(verdict["dropped"]) or stopped or halted
            leaves = set() if dropped else {"leaving"}
            await cycle(*({"over"} | leaves if ready else ()))
            assert dut.record__valid.value
            record = unpack(RECORD, dut.record__payload.value)
            header = segment["header"]
            if not is_fpdu:
                header = header >> 8 * EVENT_HEADER_OCTETS << 8 * EVENT_HEADER_OCTETS
            elif verdict["tells"]:
                mask = (1 << 8 * EVENT_HEADER_OCTETS) - 1
                header = (header & ~mask) | (header >> 8 * UNTAGGED_OCTETS & mask)
            length = {"response": outstanding["length"], "atomic_response": 8}
            entry = way == "entry"
            expected = {
                "qp": segment["qp"],
                "pd": inputs["pd"],
                "dropped": int(dropped),
                "fpdu": int(is_fpdu),
                "first": int(is_fpdu and not inputs["started"]),
                "cause": verdict["cause"],
                "opcode": kind["opcode"],
                "invalidates": kind["invalidates"],
                "bank": bank,
                "pieces": 0 if dropped else verdict["pieces"],
                "position": inputs["position"] + (4 if way == "atomic_response" else 0),
                "stored": segment["stored"],
                "delivers": verdict["delivers"],
                "index": inputs["entry_index"] if entry else outstanding["length"] % 2**16,
                "length": length.get(way, inputs["message_end"] % 2**32),
                "ulpdu_length": segment["ulpdu_length"] if is_fpdu else 0,
                "header": header % 2 ** width_of(RECORD["header"].shape),
            }
            assert record == expected
            if ready:
                break
        dut.record__ready.value = dut.stopped.value = dut.drops.value = 0
        bank ^= 1
        if dropped:
            later = {"dropped"} if is_fpdu else set()
        elif verdict["delivers"]:
            pulses = {"entry": {"pop_entry", "popping_entry"}, "request": {"push"}, "write": set()}
            later = pulses.get(way, {"pop"})
        elif way == "entry" and good:
            later = {"keep_entry"}
        seen.add((way, dropped, verdict["delivers"]))
    assert len(seen) == 4 * len(WAYS)
