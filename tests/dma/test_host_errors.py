"""A failed access to host memory marks and stops its QP, and no other."""

import cocotb
import pytest
from cocotb.triggers import FallingEdge, RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.dma.host_errors import PLACEMENTS_AHEAD, ROOM_MARGIN, HostErrors
from stagecoach.gateware.layouts import Layouts, QpCommandKind
from stagecoach.hw.interface.causes import Cause
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    pack,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig(qps=8)
LAYOUTS = Layouts(CONFIG)
PULSES = ("read_failed__valid", "placement_begun__valid", "placement_done", "command_taken")


@pytest.mark.parametrize("pattern", ["always", "slow"])
def test_host_errors(pattern):
    run_cocotb(HostErrors(CONFIG), __name__, parameters={"PATTERN": pattern})


class Bench:
    def __init__(self, dut, rng):
        self.dut = dut
        pattern = parameter("PATTERN")
        self.sinks = {}
        for name in ("read_error", "write_error"):
            self.sinks[name] = StreamSink(dut, name, LAYOUTS.qp_error, rng=rng, pattern=pattern)
            StreamMonitor(dut, name)
        for name in PULSES:
            getattr(dut, name).value = 0
        dut.placement_error.value = 0

    async def pulse(self, name, **values):
        for port, value in values.items():
            getattr(self.dut, port).value = value
        getattr(self.dut, name).value = 1
        await RisingEdge(self.dut.clk)
        getattr(self.dut, name).value = 0

    async def begin(self, qp):
        await self.pulse("placement_begun__valid", placement_begun__qp=qp)

    async def end(self, error):
        await self.settle(4)  # no response is faster than this
        await self.pulse("placement_done", placement_error=int(error))

    async def settle(self, cycles=400):
        for _ in range(cycles):
            await RisingEdge(self.dut.clk)

    def stopped(self, name, cause):
        found = self.sinks[name].take_all()
        assert all(error["cause"] == cause for error in found)
        return {error["qp"] for error in found}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_failed_placement_stops_its_own_qp(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    await bench.settle(CONFIG.qps)  # no QP can have been made before
    waiting = []
    failed = {6}
    await bench.begin(6)
    await bench.end(True)
    for _ in range(300):
        if waiting and rng.random() < 0.5:
            qp = waiting.pop(0)
            bad = rng.random() < 0.03
            await bench.end(bad)
            if bad:
                failed.add(qp)
                await RisingEdge(dut.clk)
                await RisingEdge(dut.clk)
                assert int(dut.write_failures.value) >> qp & 1
        elif len(waiting) < 60:
            waiting.append(rng.randrange(CONFIG.qps))
            await bench.begin(waiting[-1])
    await bench.settle()
    assert bench.stopped("write_error", Cause.HOST_WRITE_ERROR) == failed
    assert int(dut.write_failures.value) == sum(1 << qp for qp in failed)
    assert int(dut.read_failures.value) == 0
    assert not len(bench.sinks["read_error"])


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_failed_read_stops_its_qp_until_it_is_made_anew(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    await bench.settle(CONFIG.qps)  # no QP can have been made before
    for qp in (5, 1, 5):
        await bench.pulse("read_failed__valid", read_failed__qp=qp)
    await bench.settle()
    assert bench.stopped("read_error", Cause.HOST_READ_ERROR) == {1, 5}
    assert int(dut.read_failures.value) == 0b100010
    for kind, left in (("STOP", 0b100010), ("CREATE", 0b000010)):
        command = pack(LAYOUTS.qp_command, kind=QpCommandKind[kind].value, qp=5)
        await bench.pulse("command_taken", command=command)
        await bench.settle(3)
        assert int(dut.read_failures.value) == left
    assert int(dut.write_failures.value) == 0


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_there_is_no_room_for_too_many_placements(dut):
    bench = Bench(dut, seeded_random())
    await start_clock_and_reset(dut)
    for pause in (1, 2, 4):
        begun, cycles, room = 0, pause, [1, 1]
        while room[-2]:
            begins = cycles >= pause
            dut.placement_begun__valid.value = int(begins)
            dut.placement_begun__qp.value = begun % CONFIG.qps
            begun += begins
            cycles = 0 if begins else cycles + 1
            await FallingEdge(dut.clk)
            room.append(int(dut.room.value))
            await RisingEdge(dut.clk)
        dut.placement_begun__valid.value = 0
        assert begun <= PLACEMENTS_AHEAD
        assert begun > PLACEMENTS_AHEAD - ROOM_MARGIN
        for qp in range(begun):
            await bench.end(qp == begun - 1)
        await bench.settle(3)
        assert dut.room.value == 1
        # The last one was the one that failed: none was lost.
        last = (begun - 1) % CONFIG.qps
        assert int(dut.write_failures.value) == 1 << last
        command = pack(LAYOUTS.qp_command, kind=QpCommandKind.CREATE.value, qp=last)
        await bench.pulse("command_taken", command=command)
