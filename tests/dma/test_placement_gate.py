"""Placements pass the gate in order, and none is taken while there is no room."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.dma.placement_gate import PlacementGate
from stagecoach.gateware.layouts import Layouts
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb
from tests.support.timeline import Timeline, passes

CONFIG = RnicConfig(qps=8)
PLACEMENT = Layouts(CONFIG).placement


@pytest.mark.parametrize("pattern", ["always", "random", "slow"])
def test_placement_gate(pattern):
    run_cocotb(PlacementGate(CONFIG), __name__, parameters={"PATTERN": pattern})


def a_placement(rng):
    return {
        "qp": rng.randrange(CONFIG.qps),
        "octets": rng.choice([0, 1, rng.getrandbits(16)]),
        "address": rng.getrandbits(64),
    }


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_none_is_taken_without_room(dut):
    rng, pattern = seeded_random(), parameter("PATTERN")
    source = StreamSource(dut, "i", PLACEMENT, rng=rng, pattern=pattern)
    sink = StreamSink(dut, "o", PLACEMENT, rng=rng, pattern=pattern)
    StreamMonitor(dut, "o")
    dut.room.value = 1
    await start_clock_and_reset(dut)
    placements = [a_placement(rng) for _ in range(200)]
    source.put_all(placements)
    rooms, begun, closed = [1, 1], [], 0
    for _ in range(6000):
        if rng.random() < 0.1:
            dut.room.value = rng.randrange(2)
        await RisingEdge(dut.clk)
        rooms.append(int(dut.room.value))
        if dut.i__valid.value and dut.i__ready.value:
            assert rooms[-2]
        closed += not rooms[-2]
        if dut.begun__valid.value:
            begun.append(int(dut.begun__qp.value))
    assert closed
    got = sink.take_all()
    assert [{name: each[name] for name in placements[0]} for each in got] == placements
    assert begun == [each["qp"] for each in placements if each["octets"]]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_cycles(dut):
    rng = seeded_random()
    source = StreamSource(dut, "i", PLACEMENT)
    StreamSink(dut, "o", PLACEMENT)
    time = Timeline(dut, i=passes(dut, "i"), o=passes(dut, "o"))
    dut.room.value = 1
    await start_clock_and_reset(dut)
    source.put_all([a_placement(rng) for _ in range(20)])
    await time.wait_for("o", 20)
    assert time.latency("i", "o") == 1
    assert time.interval("i") == 2
