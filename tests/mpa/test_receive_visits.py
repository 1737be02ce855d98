"""Visits go through the deframer one behind the other, whatever commands come for them."""

import random
from collections import deque
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.mpa.layouts import ANSWER, MpaLayouts
from stagecoach.gateware.mpa.receive_visits import ReceiveVisits
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
)
from tests.support.runner import run_cocotb

CONFIG = RnicConfig(qps=4)
MPA = MpaLayouts(CONFIG)
VISITS = 300
WRAP = 1 << 32


def test_receive_visits() -> None:
    run_cocotb(ReceiveVisits(CONFIG), __name__)


class Visit:
    """What a visit was begun with, and what has to come of it."""

    def __init__(self, rng: random.Random, qp: int) -> None:
        position = 4 * rng.getrandbits(30)
        octets = 4 * rng.choice([2, rng.randint(2, 30), rng.randint(2, 1000)])
        self.fields = {
            "qp": qp,
            "crc": rng.getrandbits(1),
            "markers": rng.getrandbits(1),
            "position": position,
            "available": (position + octets) % WRAP,
        }
        self.held = True
        self.dead = False
        self.inside = rng.getrandbits(1)
        self.consumed = rng.getrandbits(32)
        self.fpdu_octets = 4 * rng.randint(2, 16000)


class Bench:
    """Begins visits, is the deframer of their answers, and takes their ends."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.rng = seeded_random()
        self.answers = StreamSink(dut, "answer", ANSWER, rng=self.rng, pattern="random")
        self.requests = StreamSink(dut, "request", MPA.rx_request, rng=self.rng, pattern="random")
        StreamMonitor(dut, "request", MPA.rx_request)
        inputs = (
            "begin visit number command announce available written took failed inside fpdu_octets "
            "fpdu_end consumed idle left"
        )
        for name in inputs.split():
            getattr(dut, name).value = 0
        dut.others.value = 1
        self.begun: deque[Visit] = deque()  # and not started
        self.inside: deque[Visit] = deque()  # the deframer is in it
        self.under_way: list[Visit] = []  # not written back
        self.all: list[Visit] = []
        self.written = 0

    def held(self, qp: int) -> bool:
        return any(visit.held and visit.fields["qp"] == qp for visit in self.under_way)

    async def scheduler(self) -> None:
        """One operation every few cycles, as the scheduler makes them."""
        dut, rng = self.dut, self.rng
        while self.written < VISITS:
            await RisingEdge(dut.clk)
            choice = rng.random()
            qp = rng.randrange(CONFIG.qps)
            if dut.ended.value and choice < 0.8:
                await self._write_back()
            elif choice < 0.2:
                await self._command(qp)
            elif dut.vacant.value and not self.held(qp):
                visit = Visit(rng, qp)
                self.begun.append(visit)
                self.under_way.append(visit)
                self.all.append(visit)
                dut.visit.value = pack(MPA.visit, visit.fields)
                await self._pulse(dut.begin)
            for _ in range(rng.randrange(6)):
                await RisingEdge(dut.clk)

    async def _pulse(self, signal: Any) -> None:
        signal.value = 1
        await RisingEdge(self.dut.clk)
        signal.value = 0
        await RisingEdge(self.dut.clk)

    async def _command(self, qp: int) -> None:
        self.dut.number.value = qp
        self.dut.command.value = 1
        for visit in self.under_way:
            if visit.fields["qp"] == qp:
                visit.dead |= visit in self.begun or visit in self.inside
                visit.held = False
        await RisingEdge(self.dut.clk)
        self.dut.command.value = 0
        await RisingEdge(self.dut.clk)
        for number in range(CONFIG.qps):
            self.dut.number.value = number
            await RisingEdge(self.dut.clk)
            await RisingEdge(self.dut.clk)
            assert bool(self.dut.held.value) == self.held(number), number

    async def _write_back(self) -> None:
        visit = self.under_way.pop(0)
        end = unpack(MPA.visit_end, self.dut.end.value)
        assert end["qp"] == visit.fields["qp"]
        assert end["held"] == visit.held
        if visit.held:
            assert end["dead"] == visit.dead
            assert end["consumed"] == visit.consumed
            assert end["needed"] == (visit.fpdu_octets if visit.inside else 8)
        self.written += 1
        await self._pulse(self.dut.written)

    async def deframer(self) -> None:
        """Starts visits, takes their answers, and lets each leave a little later."""
        dut, rng = self.dut, self.rng
        while True:
            while not dut.start.value:
                dut.idle.value = 1
                await RisingEdge(dut.clk)
            visit = self.begun.popleft()
            self.inside.append(visit)
            for name in ("qp", "crc", "markers", "position"):
                assert int(getattr(dut, name).value) == visit.fields[name], name
            dut.inside.value = 0
            dut.fpdu_end.value = visit.fields["position"]
            octets = 0
            while not (answer := await self.answers.get())["end"]:
                dut.idle.value = 0
                dut.took.value = 1
                for _ in range(answer["last_beat"] + 1):
                    await RisingEdge(dut.clk)
                dut.took.value = 0
                octets += 8 * (answer["last_beat"] + 1) - 4 * answer["half"]
                dut.idle.value = 1
                if rng.random() < 0.1:
                    visit.dead = True
                    await self._pulse(dut.failed)
            fields = visit.fields
            if not visit.dead:
                assert octets == (fields["available"] - fields["position"]) % WRAP
            dut.inside.value = visit.inside
            dut.fpdu_octets.value = visit.fpdu_octets
            dut.consumed.value = visit.consumed
            if rng.random() < 0.5:
                was_dead = visit.dead
                for _ in range(3):
                    await RisingEdge(dut.clk)
                assert dut.kill.value or not was_dead
                assert visit.dead or not dut.kill.value
            dut.left.value = 1
            while not dut.leave.value:
                await RisingEdge(dut.clk)
            self.inside.popleft()
            dut.left.value = 0
            dut.inside.value = 0
            dut.consumed.value = rng.getrandbits(32)


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_visits_follow_each_other_and_end_in_order(dut: Any) -> None:
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    cocotb.start_soon(bench.deframer())
    await bench.scheduler()
    # Requests are made for one visit after the other, without gaps.
    visits = iter(bench.all)
    visit = next(visits)
    position = visit.fields["position"]
    for request in bench.requests.take_all():
        while (visit.fields["qp"], position) != (request["connection"], request["position"]):
            visit = next(visits)
            position = visit.fields["position"]
        position = (position + request["octets"]) % WRAP
