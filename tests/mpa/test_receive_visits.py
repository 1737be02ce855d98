"""Visits go through the deframer one after the other, whatever commands come for them."""

import random
from collections import deque
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.mpa.layouts import ANSWER, MpaLayouts
from stagecoach.gateware.mpa.receive_visits import VISITS_AHEAD, ReceiveVisits
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
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
        self.octets = octets
        self.held = True
        self.end = {
            "qp": qp,
            "dead": rng.getrandbits(1),
            "consumed": rng.getrandbits(32),
            "needed": 4 * rng.randint(2, 16000),
        }


class Bench:
    """The table, which begins visits, and the deframer, which takes their answers."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.rng = seeded_random()
        pattern = {"rng": self.rng, "pattern": "random"}
        self.begins = StreamSource(dut, "begin", MPA.begin)
        self.answers = StreamSink(dut, "deframer__answer", ANSWER, **pattern)
        self.requests = StreamSink(dut, "request", MPA.rx_request, **pattern)
        StreamMonitor(dut, "request", MPA.rx_request)
        StreamMonitor(dut, "deframer__visit", MPA.visit)
        inputs = (
            "number begun forget announce available end_taken deframer__visit__ready "
            "deframer__took deframer__dropped deframer__inside deframer__fpdu_octets "
            "deframer__fpdu_end deframer__ended"
        )
        for name in inputs.split():
            getattr(dut, name).value = 0
        dut.others.value = 1
        self.ahead: deque[Visit] = deque()  # the deframer has not turned to them
        self.current: Visit | None = None
        self.under_way: dict[int, Visit] = {}
        self.all: list[Visit] = []
        self.left: deque[Visit] = deque()
        self.ended = self.dropped = self.to_drop = 0
        self.stuck = False  # the deframer takes no visit

    async def pulse(self, signal: Any, qp: int) -> None:
        self.dut.number.value, signal.value = qp, 1
        await RisingEdge(self.dut.clk)
        signal.value = 0

    async def table(self, visits: int) -> None:
        """Begins a visit to each connection that has none, and forgets one now and then."""
        dut, rng = self.dut, self.rng
        while len(self.all) < visits:
            await RisingEdge(dut.clk)
            qp = rng.randrange(CONFIG.qps)
            if rng.random() < 0.03:
                if visit := self.under_way.get(qp):
                    inside = visit is self.current and visit not in self.left
                    self.to_drop += visit.held and inside
                    visit.held = False
                await self.pulse(dut.forget, qp)
            elif qp not in self.under_way and self.begins.pending < 2:
                visit = Visit(rng, qp)
                self.ahead.append(visit)
                self.all.append(visit)
                self.under_way[qp] = visit
                self.begins.put(visit.fields)
                await self.pulse(dut.begun, qp)

    async def ends(self) -> None:
        """Takes what visits came to, three cycles later at the latest."""
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            if not dut.end_waiting.value:
                continue
            for _ in range(self.rng.randrange(2)):
                await RisingEdge(dut.clk)
            visit = self.left.popleft()
            assert unpack(MPA.visit_end, dut.end.value) == visit.end
            del self.under_way[visit.fields["qp"]]
            self.ended += 1
            dut.end_taken.value = 1
            await RisingEdge(dut.clk)
            dut.end_taken.value = 0
            await RisingEdge(dut.clk)

    async def deframer(self) -> None:
        """Turns to visits, takes their answers, and says what they came to."""
        dut = self.dut
        drops = cocotb.start_soon(self._drops())
        while True:
            while not dut.deframer__visit__valid.value or self.stuck:
                await RisingEdge(dut.clk)
            visit = self.ahead.popleft()
            fields = unpack(MPA.visit, dut.deframer__visit__payload.value)
            assert fields == {name: visit.fields[name] for name in fields}
            dut.deframer__visit__ready.value = 1
            held = visit.held
            await RisingEdge(dut.clk)
            # A command of these cycles may be seen or not; it is told by `drop` then.
            assert bool(dut.deframer__held.value) == held or not visit.held
            dut.deframer__visit__ready.value = 0
            self.current = visit
            dut.deframer__dropped.value = int(not visit.held)
            octets = 0
            last = False
            while not last:
                answer = await self.answers.get()
                last = bool(answer["end"])
                if answer["empty"]:
                    assert last
                    break
                dut.deframer__took.value = 1
                for _ in range(answer["last_beat"] + 1):
                    await RisingEdge(dut.clk)
                dut.deframer__took.value = 0
                octets += 8 * (answer["last_beat"] + 1) - 4 * answer["half"]
            assert octets == visit.octets or (octets < visit.octets and not visit.held)
            for _ in range(4):
                await RisingEdge(dut.clk)
            dut.deframer__end.value = pack(MPA.visit_end, visit.end)
            dut.deframer__ended.value = 1
            self.left.append(visit)
            await RisingEdge(dut.clk)
            dut.deframer__ended.value = 0
            dut.deframer__dropped.value = 0
        drops.cancel()

    async def _drops(self) -> None:
        """Commands for the visit taken last are told in two cycles."""
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            if dut.deframer__drop.value:
                assert self.current is not None
                self.dropped += 1
                assert not self.current.held or self.current not in self.under_way.values()
                dut.deframer__dropped.value = 1


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_visits_follow_each_other_and_end_in_order(dut: Any) -> None:
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    cocotb.start_soon(bench.deframer())
    cocotb.start_soon(bench.ends())
    await bench.table(VISITS)
    for _ in range(20000):
        await RisingEdge(dut.clk)
        if bench.ended == VISITS:
            break
    assert bench.ended == VISITS
    assert bench.dropped >= bench.to_drop > 0
    # Requests are made for one visit after the other, without gaps.
    visits = iter(bench.all)
    visit = next(visits)
    position = visit.fields["position"]
    for request in bench.requests.take_all():
        while (visit.fields["qp"], position) != (request["connection"], request["position"]):
            visit = next(visits)
            position = visit.fields["position"]
        position = (position + request["octets"]) % WRAP


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_many_visits_are_requested_ahead(dut: Any) -> None:
    """As many as fit, while the deframer takes none; then all of them go on."""
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    bench.stuck = True
    cocotb.start_soon(bench.deframer())
    cocotb.start_soon(bench.ends())
    for number in range(2 * VISITS_AHEAD):
        visit = Visit(bench.rng, number % CONFIG.qps)
        visit.fields["available"] = (visit.fields["position"] + 8) % WRAP
        visit.octets = 8
        bench.ahead.append(visit)
        bench.under_way[number % CONFIG.qps] = visit
        bench.left = deque()
        bench.begins.put(visit.fields)
        if number < CONFIG.qps:
            await bench.pulse(dut.begun, number)
    for _ in range(4000):
        await RisingEdge(dut.clk)
    # A register before and after the FIFO, and one visit with those who request.
    assert VISITS_AHEAD <= len(bench.requests) <= VISITS_AHEAD + 4
    assert bench.begins.pending


def test_receive_visits() -> None:
    run_cocotb(ReceiveVisits(CONFIG), __name__)
