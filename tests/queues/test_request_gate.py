"""A request leaves when the entries that were accepted before it have finished, and not before."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from gateware.config import RnicConfig
from gateware.queues.request_gate import DEPTH, MARGIN, RequestGate
from tests.queues.ports import cycles
from tests.support.runner import run_cocotb
from tests.support.streams import seeded_random, start_clock_and_reset

CONFIG = RnicConfig(qps=4)


@pytest.mark.requirement("RDMAP-B-01", "EXT-7-01")
def test_gate():
    run_cocotb(RequestGate(CONFIG), __name__)


class Bench:
    def __init__(self, dut):
        self.dut = dut
        self.released: list[int] = []  # QPs
        for signal in (dut.i__valid, dut.i__qp, dut.accepted, dut.finished):
            signal.value = 0
        cocotb.start_soon(self._watch())

    async def _watch(self):
        while True:
            await RisingEdge(self.dut.clk)
            if not self.dut.rst.value and self.dut.o__valid.value:
                self.released.append(int(self.dut.o__qp.value))

    async def pulse(self, signal, count=1):
        signal.value = 1
        await cycles(self.dut, count)
        signal.value = 0

    async def request(self, qp):
        self.dut.i__qp.value = qp
        await self.pulse(self.dut.i__valid)


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def check_requests_wait_for_the_entries_before_them(dut):
    rng, bench = seeded_random(), Bench(dut)
    await start_clock_and_reset(dut)
    # Past 2^16: the counts wrap in the middle of the test.
    accepted = finished = 65536 - 100
    await bench.pulse(dut.accepted, accepted)
    await bench.pulse(dut.finished, finished)
    waiting: list[tuple[int, int]] = []  # QP, entries before it
    for _ in range(1500):
        match rng.randrange(4):
            case 0 if len(waiting) < DEPTH:
                qp = rng.randrange(4)
                waiting.append((qp, accepted))
                await bench.request(qp)
            case 1:
                accepted += 1
                await bench.pulse(dut.accepted)
            case 2 if finished < accepted:
                finished += 1
                await bench.pulse(dut.finished)
            case _:
                await cycles(dut, rng.choice([1, 5, 40]))
        while bench.released:
            qp, entries = waiting.pop(0)
            assert finished >= entries, "released before a completion was visible"
            assert bench.released.pop(0) == qp
    await bench.pulse(dut.finished, accepted - finished)
    await cycles(dut, 5 * DEPTH)
    assert bench.released == [qp for qp, _ in waiting]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_an_entry_accepted_just_before_a_request_counts(dut):
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    await bench.pulse(dut.accepted)
    await bench.request(2)
    await bench.pulse(dut.accepted)
    await cycles(dut, 50)
    assert bench.released == []
    await bench.pulse(dut.finished)
    await cycles(dut, 5)
    assert bench.released == [2]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_request_without_entries_leaves_after_5_cycles(dut):
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    await bench.request(1)
    waited = 0
    while not dut.o__valid.value:
        await RisingEdge(dut.clk)
        waited += 1
    assert waited <= 5


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_room_falls_in_time_and_comes_back(dut):
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    await bench.pulse(dut.accepted)
    sent = 0
    # As fast as the delivery gate lets them go.
    while dut.room.value:
        await bench.request(sent % 4)
        await cycles(dut, 2)
        sent += 1
    for _ in range(MARGIN):
        await bench.request(sent % 4)
        await cycles(dut, 2)
        sent += 1
    assert sent > DEPTH - MARGIN
    await bench.pulse(dut.finished)
    await cycles(dut, 4 * DEPTH)
    assert bench.released == [number % 4 for number in range(sent)]
    assert dut.room.value
