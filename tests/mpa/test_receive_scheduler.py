"""What the LLP announces leads to requests, visits and ends, whoever of its neighbours waits."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, LlpEventKind, QpCommandKind
from stagecoach.gateware.mpa.layouts import ANSWER, MpaLayouts
from stagecoach.gateware.mpa.receive_scheduler import ReceiveScheduler
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
)
from tests.support.runner import parameter, run_cocotb

WRAP = 1 << 32
FIRST_REQUEST = 13
"""Cycles from an event to the request that it makes possible."""

FPDU_OCTETS = 8
"""All FPDUs here are the shortest."""

INPUTS = ("took", "dropped", "ended", "inside", "fpdu_end", "end", "visit__ready")


@pytest.mark.parametrize("qps", [2, 256])
def test_receive_scheduler(qps: int) -> None:
    parameters = {"QPS": str(qps)}
    run_cocotb(ReceiveScheduler(RnicConfig(qps=qps)), __name__, parameters=parameters, quick=True)


class Bench:
    """The LLP, the commands, and a deframer, which takes the whole FPDUs of each visit."""

    def __init__(self, dut: Any) -> None:
        self.dut, self.rng = dut, seeded_random()
        self.qps = int(parameter("QPS"))
        config = RnicConfig(qps=self.qps)
        self.mpa, layouts = MpaLayouts(config), Layouts(config)
        self.commands = StreamSource(dut, "command", layouts.qp_command)
        self.events = StreamSource(dut, "event", layouts.llp_event)
        self.requests = StreamSink(dut, "request", self.mpa.rx_request)
        self.answers = StreamSink(dut, "deframer__answer", ANSWER)
        StreamMonitor(dut, "request", self.mpa.rx_request)
        StreamMonitor(dut, "deframer__visit", self.mpa.visit)
        for name in INPUTS:
            getattr(dut, f"deframer__{name}").value = 0
        dut.deframer__fpdu_octets.value = FPDU_OCTETS
        dut.closed__taken.value = 0
        self.consumed = [0] * self.qps
        self.paused = False  # the deframer turns to nobody

    async def start(self) -> None:
        """What the table knew of the connections is forgotten after a reset."""
        await start_clock_and_reset(self.dut)
        cocotb.start_soon(self._deframer())
        await self.cycles(2 * self.qps)

    async def cycles(self, count: int) -> None:
        for _ in range(count):
            await RisingEdge(self.dut.clk)

    async def command(self, qp: int, kind: QpCommandKind) -> None:
        await self.commands.send({"kind": kind.value, "qp": qp, "crc": 1})

    async def connect(self, qp: int) -> None:
        self.consumed[qp] = 0
        await self.command(qp, QpCommandKind.CREATE)
        await self.command(qp, QpCommandKind.CONNECT)

    def announce(self, qp: int, position: int) -> None:
        kind = LlpEventKind.RX_AVAILABLE.value
        self.events.put({"connection": qp, "kind": kind, "value": position % WRAP})

    async def _deframer(self) -> None:
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            if not dut.deframer__visit__valid.value or self.paused:
                continue
            visit = unpack(self.mpa.visit, dut.deframer__visit__payload.value)
            qp = visit["qp"]
            assert visit["crc"] and visit["position"] == self.consumed[qp]
            dut.deframer__visit__ready.value = 1
            await RisingEdge(dut.clk)
            assert dut.deframer__held.value
            dut.deframer__visit__ready.value = 0
            octets, last = 0, False
            while not last:
                answer = await self.answers.get()
                last = bool(answer["end"])
                for _ in range(0 if answer["empty"] else answer["last_beat"] + 1):
                    octets += FPDU_OCTETS
                    dut.deframer__fpdu_end.value = (visit["position"] + octets) % WRAP
                    dut.deframer__took.value = 1
                    await RisingEdge(dut.clk)
                dut.deframer__took.value = 0
                octets -= 4 * answer["half"]
            self.consumed[qp] += octets // FPDU_OCTETS * FPDU_OCTETS
            end = {"qp": qp, "consumed": self.consumed[qp], "needed": FPDU_OCTETS}
            dut.deframer__end.value = pack(self.mpa.visit_end, end)
            await self.cycles(4)
            dut.deframer__ended.value = 1
            await RisingEdge(dut.clk)
            dut.deframer__ended.value = 0


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_all_that_is_announced_is_requested(dut: Any) -> None:
    bench = Bench(dut)
    rng = bench.rng
    await bench.start()
    chosen = sorted({0, 1, bench.qps // 2, bench.qps - 1})
    announced = dict.fromkeys(chosen, 0)
    for qp in chosen:
        await bench.connect(qp)
    for _ in range(100):
        qp = rng.choice(chosen)
        announced[qp] += 4 * rng.choice([1, 2, 100, 2000])
        bench.announce(qp, announced[qp])
        await bench.cycles(rng.choice([0, 1, 30, 300]))
    # What remains is less than an FPDU.
    whole = {qp: octets // FPDU_OCTETS * FPDU_OCTETS for qp, octets in announced.items()}
    for _ in range(400):
        await bench.cycles(100)
        if all(bench.consumed[qp] == whole[qp] for qp in chosen):
            break
    assert {qp: bench.consumed[qp] for qp in chosen} == whole
    positions = dict.fromkeys(chosen, 0)
    for request in bench.requests.take_all():
        qp = request["connection"]
        # What a visit left of an FPDU is requested once more.
        assert 0 <= positions[qp] - request["position"] < FPDU_OCTETS
        positions[qp] = request["position"] + request["octets"]
    assert all(whole[qp] <= positions[qp] <= announced[qp] for qp in chosen)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_first_request_comes_soon(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    for qp in (0, 1):
        await bench.connect(qp)
        await bench.cycles(20)
        for position in (64, 128):
            bench.announce(qp, position)
            while not dut.event__valid.value:
                await RisingEdge(dut.clk)
            cycles = 0
            while not dut.request__valid.value:
                cycles += 1
                await RisingEdge(dut.clk)
            assert cycles == FIRST_REQUEST
            await bench.cycles(60)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_an_llp_that_answers_nothing_holds_up_no_command_or_event(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    bench.requests.paused = bench.paused = True
    for qp in (0, 1):
        await bench.connect(qp)
        bench.announce(qp, 64)
    for turn in range(60):
        bench.announce(turn % 2, 64 + 4 * turn)
        sent = bench.commands.sent
        command = cocotb.start_soon(bench.command(1, QpCommandKind.STOP))
        await bench.cycles(12)
        assert command.done() and bench.commands.sent == sent + 1
        assert not bench.events.pending
    bench.requests.paused = bench.paused = False
    # The connection that was stopped is visited no more, the other one is.
    await bench.cycles(400)
    assert bench.consumed[0] >= 64


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_close_is_told_once_and_after_the_last_visit(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    last = bench.qps - 1
    for octets in (64, 68, 0):
        await bench.connect(last)
        if octets:
            bench.announce(last, octets)
        kind = LlpEventKind.CLOSED.value
        bench.events.put({"connection": last, "kind": kind, "value": 0})
        while not dut.closed__valid.value:
            await RisingEdge(dut.clk)
        assert (dut.closed__qp.value, dut.closed__inside.value) == (last, octets % FPDU_OCTETS > 0)
        assert bench.consumed[last] == octets // FPDU_OCTETS * FPDU_OCTETS
        dut.closed__taken.value = 1
        await RisingEdge(dut.clk)
        dut.closed__taken.value = 0
        await bench.cycles(40)
        assert not dut.closed__valid.value
