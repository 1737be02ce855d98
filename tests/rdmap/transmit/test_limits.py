"""Window and MULPDU of every QP are those of its last CONNECT and LLP events; each kicks once."""

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, LlpEventKind
from stagecoach.gateware.rdmap.transmit.limits import TransmitLimits, connect_layout
from stagecoach.sim.cosim.streams import (
    StreamSource,
    active_cycles,
    seeded_random,
    start_clock_and_reset,
)
from stagecoach.sim.model import mpa
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig(qps=4)
ROUNDS = 150
EMSS = (128, 536, 1448, 1460, 8948, 65535)
IGNORED = (LlpEventKind.RX_AVAILABLE, LlpEventKind.CLOSED)


@pytest.mark.requirement("DDP-3-02", "MPA-3-02")
@pytest.mark.parametrize("pattern", ["always", "random", "bursty"])
def test_transmit_limits(pattern):
    run_cocotb(TransmitLimits(CONFIG), __name__, parameters={"PATTERN": pattern})


class Bench:
    """Gives away CONNECTs and events, and knows the limits that follow from them."""

    def __init__(self, dut, rng, pattern):
        self.dut = dut
        self.connect = StreamSource(
            dut, "connect", connect_layout(CONFIG), rng=rng, pattern=pattern
        )
        self.events = StreamSource(
            dut, "llp_event", Layouts(CONFIG).llp_event, rng=rng, pattern=pattern
        )
        self.windows = [0] * CONFIG.qps
        self.mulpdus = [mpa.mulpdu(EMSS[0], False)] * CONFIG.qps
        self.markers = [False] * CONFIG.qps
        self.kicks = []
        self._active = active_cycles(pattern, rng)
        dut.kick_taken.value = 0
        cocotb.start_soon(self._take_kicks())

    async def _take_kicks(self):
        """Keep the QP of every kick, taken after some cycles."""
        dut, taken = self.dut, False
        while True:
            await RisingEdge(dut.clk)
            if dut.rst.value:
                continue
            if taken and dut.kick.value:
                self.kicks.append(int(dut.kick_qp.value))
            taken = bool(dut.kick.value) and not taken and next(self._active)
            dut.kick_taken.value = int(taken)

    async def check(self, qp):
        """Compare with the model what a QP is told."""
        self.dut.select.value = qp
        await ClockCycles(self.dut.clk, 2)
        self.dut.select.value = (qp + 1) % CONFIG.qps
        await RisingEdge(self.dut.clk)
        assert int(self.dut.window.value) == self.windows[qp]
        assert int(self.dut.mulpdu.value) == self.mulpdus[qp]

    async def start(self, qp, emss, markers):
        await self.connect.send({"qp": qp, "emss": emss, "markers": markers})
        self.windows[qp], self.markers[qp] = 0, markers
        self.mulpdus[qp] = mpa.mulpdu(emss, markers)
        await self.check(qp)

    async def event(self, qp, kind, value):
        before = len(self.kicks)
        await self.events.send({"connection": qp, "kind": kind.value, "value": value})
        if kind in IGNORED:
            return
        while len(self.kicks) == before:
            await RisingEdge(self.dut.clk)
        assert self.kicks[before:] == [qp]
        if kind is LlpEventKind.TX_WINDOW:
            self.windows[qp] = value
        else:
            self.mulpdus[qp] = mpa.mulpdu(value, self.markers[qp])


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_limits_are_those_of_the_model(dut):
    rng = seeded_random(parameter("PATTERN"))
    bench = Bench(dut, rng, parameter("PATTERN"))
    await start_clock_and_reset(dut)
    for qp in range(CONFIG.qps):
        await bench.start(qp, rng.choice(EMSS), bool(rng.getrandbits(1)))
    for _ in range(ROUNDS):
        starting, told = rng.sample(range(CONFIG.qps), 2)
        kind = rng.choice(list(LlpEventKind))
        value = rng.choice(EMSS) if kind is LlpEventKind.EMSS else rng.getrandbits(32)
        tasks = []
        if rng.random() < 0.4:
            start = bench.start(starting, rng.choice(EMSS), bool(rng.getrandbits(1)))
            tasks.append(cocotb.start_soon(start))
        if not tasks or rng.random() < 0.5:
            tasks.append(cocotb.start_soon(bench.event(told, kind, value)))
        kicks = len(bench.kicks)
        for task in tasks:
            await task
        for qp in range(CONFIG.qps):
            await bench.check(qp)
        assert len(bench.kicks) - kicks <= 1
    assert len(bench.kicks) > ROUNDS // 4
