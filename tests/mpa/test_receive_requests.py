"""Octets are requested ahead of the deframer, and visits end where others get their turn."""

from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.mpa.layouts import ANSWER, CHUNK_OCTETS, MpaLayouts
from stagecoach.gateware.mpa.receive_requests import (
    ANSWERS_AHEAD,
    BEATS_AHEAD,
    VISIT_OCTETS,
    ReceiveRequests,
)
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import run_cocotb

CONFIG = RnicConfig(qps=4)
MPA = MpaLayouts(CONFIG)
WRAP = 1 << 32
POSITION = WRAP - 4000


def test_receive_requests() -> None:
    run_cocotb(ReceiveRequests(CONFIG), __name__)


class Bench:
    """The deframer, in FPDUs of one size, each beat `latency` cycles after it was requested."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.rng = seeded_random()
        self.begins = StreamSource(dut, "begin", MPA.begin)
        self.visits = StreamSink(dut, "visit", MPA.visit)
        self.requests = StreamSink(dut, "request", MPA.rx_request)
        self.answers = StreamSink(dut, "answer", ANSWER)
        StreamMonitor(dut, "request", MPA.rx_request)
        names = "entered dropped others announce number available took fpdu_octets fpdu_end"
        for name in names.split():
            getattr(dut, name).value = 0
        dut.held.value = 1
        self.taken = 0  # beats

    async def start(self) -> None:
        await start_clock_and_reset(self.dut)

        self.position = POSITION  # where visits begin

    def begin(self, octets: int, qp: int = 1) -> None:
        available = (self.position + octets) % WRAP
        self.begins.put({"qp": qp, "position": self.position, "available": available})

    async def take(self, beats: int) -> None:
        self.dut.took.value = 1
        await self.cycles(beats)
        self.dut.took.value = 0

    async def deframe(self, size: int) -> None:
        """Takes every beat at once, and says in which FPDU of `size` octets it is."""
        dut = self.dut
        octets = 0
        dut.entered.value, dut.fpdu_octets.value = 1, size
        while True:
            answer = await self.answers.get()
            if not answer["empty"]:
                for _ in range(answer["last_beat"] + 1):
                    dut.took.value = 1
                    octets += 8
                    end = -(-octets // size) * size
                    dut.fpdu_end.value = (self.position + end) % WRAP
                    await RisingEdge(dut.clk)
                dut.took.value = 0
                octets -= 4 * answer["half"]
            if answer["end"]:
                return

    async def cycles(self, count: int) -> None:
        for _ in range(count):
            await RisingEdge(self.dut.clk)


def beats(answers: list[dict[str, int]]) -> int:
    return sum(answer["last_beat"] + 1 for answer in answers if not answer["empty"])


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_requests_stop_at_what_is_to_come(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    bench.begin(100_000)
    await bench.cycles(60)
    requests = bench.requests.take_all()
    assert {request["octets"] for request in requests} == {CHUNK_OCTETS}
    chunk = CHUNK_OCTETS // 8
    assert BEATS_AHEAD < len(requests) * chunk <= BEATS_AHEAD + chunk
    position = POSITION
    for request in requests:
        assert request["position"] == position % WRAP
        position += CHUNK_OCTETS
    await bench.take(len(requests) * chunk - BEATS_AHEAD - 1)
    await bench.cycles(20)
    assert not len(bench.requests)
    await bench.take(1)
    await bench.cycles(20)
    assert len(bench.requests) == 1


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_visit_goes_on_until_all_is_answered_while_nobody_waits(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    bench.begin(40)
    await bench.cycles(40)
    assert [item["octets"] for item in bench.requests.take_all()] == [40]
    # Of another connection, then of this one
    for qp, octets in ((2, 400), (1, 60)):
        dut.number.value, dut.available.value = qp, (POSITION + octets) % WRAP
        dut.announce.value = 1
        await bench.cycles(1)
        dut.announce.value = 0
        await bench.cycles(20)
    assert [item["octets"] for item in bench.requests.take_all()] == [20]
    answers = bench.answers.take_all()
    assert not any(answer["end"] for answer in answers)
    await bench.take(beats(answers))
    await bench.cycles(20)
    (end,) = bench.answers.take_all()
    assert end["end"] and end["empty"]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_visits_of_one_request_take_four_cycles(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    dut.others.value = 1
    for number in range(12):
        bench.begin(36, qp=number % 4)
    await bench.cycles(4 * 12 + 8)
    requests = bench.requests.take_all()
    assert [request["connection"] for request in requests] == [n % 4 for n in range(12)]
    answers = bench.answers.take_all()
    assert all(answer["end"] and not answer["empty"] for answer in answers)
    assert all(answer["half"] and answer["last_beat"] == 4 for answer in answers)
    assert len(bench.visits.take_all()) == len(answers) == 12


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_llp_or_deframer_that_takes_nothing_holds_all_up(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    dut.others.value = 1
    for number in range(ANSWERS_AHEAD + 40):
        bench.begin(8, qp=number % 4)
    bench.answers.paused = True
    await bench.cycles(5 * (ANSWERS_AHEAD + 40))
    assert ANSWERS_AHEAD <= len(bench.requests) <= ANSWERS_AHEAD + 2
    bench.answers.paused = False
    bench.requests.paused = True
    await bench.cycles(400)
    assert bench.begins.pending
    bench.requests.paused = False
    bench.visits.paused = True
    await bench.cycles(400)
    assert bench.begins.pending
    bench.visits.paused = False
    await bench.cycles(5 * 40)
    requests = bench.requests.take_all()
    assert len(requests) == len(bench.answers.take_all()) == ANSWERS_AHEAD + 40


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_long_visit_ends_at_the_end_of_an_fpdu(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    dut.others.value = 1
    # Smaller than what is requested ahead, larger, and larger than a visit; across the end of the
    # numbers, up to it, and across their middle
    for bench.position in (POSITION, WRAP - 100_000, WRAP // 2 - VISIT_OCTETS):
        for size in (48, 1460, 8960, 40000):
            bench.begin(400_000)
            await bench.deframe(size)
            octets = sum(request["octets"] for request in bench.requests.take_all())
            assert octets % size == 0
            assert VISIT_OCTETS <= octets < VISIT_OCTETS + CHUNK_OCTETS + max(size, 8 * BEATS_AHEAD)
            dut.entered.value = 0
    # An FPDU that is not there completely is not waited for.
    bench.begin(30_000)
    await bench.deframe(40_000)
    octets = sum(request["octets"] for request in bench.requests.take_all())
    assert VISIT_OCTETS <= octets <= 30_000


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_visit_that_is_not_held_or_dropped_ends(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    for held in (0, 1):
        bench.begin(100_000)
        await bench.cycles(60)
        answers = bench.answers.take_all()
        bench.requests.take_all()
        dut.held.value = held
        dut.entered.value, dut.dropped.value = held, held
        await bench.cycles(10)
        (end,) = bench.answers.take_all()
        assert end["end"] and end["empty"]
        await bench.take(beats(answers))
        await bench.cycles(20)
        assert not len(bench.requests)
        dut.held.value, dut.entered.value, dut.dropped.value = 1, 0, 0
