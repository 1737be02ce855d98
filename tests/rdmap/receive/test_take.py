"""One segment is at work at a time; a command goes before the next one, and does what it says."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpCommandKind
from stagecoach.gateware.rdmap.receive.take import ReceiveTake
from stagecoach.sim.cosim.streams import (
    active_cycles,
    seeded_random,
    start_clock_and_reset,
    unpack,
    width_of,
)
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig(qps=4)
LAYOUTS = Layouts(CONFIG)
CYCLES = 3000
INPUTS = ("segment__valid", "qp_command__valid", "work__ready", "idle")
OUTPUTS = ("segment__ready", "qp_command__ready", "work__valid", "begin", "connect", "create")


@pytest.mark.parametrize("pattern", ["always", "random", "slow"])
def test_receive_take(pattern):
    run_cocotb(ReceiveTake(CONFIG), __name__, parameters={"PATTERN": pattern})


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_every_cycle(dut):
    pattern = parameter("PATTERN")
    rng = seeded_random(pattern)
    active = {name: active_cycles(pattern, rng) for name in INPUTS}
    for name in INPUTS:
        getattr(dut, name).value = 0
    await start_clock_and_reset(dut)
    none = dict.fromkeys((*INPUTS, *OUTPUTS), 0)
    before = last = none  # what was seen two cycles ago, and one
    arrived: int | None = None  # what `coming` has to be
    segment = command = work = None
    counts = {"segments": 0, "commands": 0}
    taken_at, gaps = [], set()
    for cycle in range(CYCLES):
        await RisingEdge(dut.clk)
        now = {name: int(getattr(dut, name).value) for name in (*INPUTS, *OUTPUTS)}
        # A command waits from the cycle after the one in which it came.
        waited = before["qp_command__valid"] and not before["qp_command__ready"]
        vacant = not last["work__valid"] and not last["segment__ready"]
        left = last["work__valid"] and last["work__ready"]
        takes = (vacant or left) and last["segment__valid"] and not waited
        commands = vacant and waited and last["idle"] and not last["qp_command__ready"]
        works = last["segment__ready"] or (last["work__valid"] and not last["work__ready"])
        assert now["segment__ready"] == now["begin"] == bool(takes), cycle
        assert now["qp_command__ready"] == bool(commands), cycle
        assert now["work__valid"] == bool(works), cycle
        assert arrived is None or dut.coming.value == arrived
        arrived = int(dut.coming.value if dut.stays.value else dut.arriving.value)
        kind = command["kind"] if commands else None
        assert now["connect"] == (kind == QpCommandKind.CONNECT.value)
        assert now["create"] == (kind == QpCommandKind.CREATE.value)
        if commands:
            assert unpack(LAYOUTS.qp_command, dut.command.value) == command
            counts["commands"] += 1
            gaps |= {cycle - at for at in taken_at[-1:]}
            taken_at.append(cycle)
        if takes:
            work = segment
            assert dut.coming.value == work["qp"]
            counts["segments"] += 1
        if works:
            assert unpack(LAYOUTS.segment, dut.work__payload.value) == work
            assert dut.qp.value == work["qp"]
            assert dut.coming.value == work["qp"]
        before, last = last, now

        # What comes stands until it is taken.
        if not now["segment__valid"] or takes:
            coming = next(active["segment__valid"]) and rng.random() < 0.6
            dut.segment__valid.value = int(coming)
            bits = rng.getrandbits(width_of(LAYOUTS.segment))
            dut.segment__payload.value = bits
            segment = unpack(LAYOUTS.segment, bits)
        if not now["qp_command__valid"] or commands:
            coming = next(active["qp_command__valid"]) and rng.random() < 0.5
            dut.qp_command__valid.value = int(coming)
            bits = rng.getrandbits(width_of(LAYOUTS.qp_command))
            dut.qp_command__payload.value = bits
            command = unpack(LAYOUTS.qp_command, bits)
        for name in ("work__ready", "idle"):
            getattr(dut, name).value = int(next(active[name]))
    assert min(counts.values()) > CYCLES // 50
    if pattern == "always":
        assert min(gaps) == 3
