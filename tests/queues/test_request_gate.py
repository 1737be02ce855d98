"""A request leaves when the entries that were accepted before it have finished, and not before."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.queues.drain import COUNT_BITS
from stagecoach.gateware.queues.request_gate import DEPTH, MARGIN, RequestGate
from stagecoach.sim.cosim.signals import cycles
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig(qps=4)


@pytest.mark.requirement("RDMAP-B-01", "EXT-7-01")
@pytest.mark.parametrize("count_bits", [4, COUNT_BITS])
def test_gate(count_bits):
    parameters = {"COUNT_BITS": str(count_bits)}
    run_cocotb(RequestGate(CONFIG, count_bits), __name__, parameters=parameters)


class Bench:
    def __init__(self, dut):
        self.dut = dut
        self.most = (1 << int(parameter("COUNT_BITS"))) - 1  # entries under way
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

    async def pass_through(self, count):
        """Entries that finish while the next one is accepted."""
        await self.pulse(self.dut.accepted)
        self.dut.finished.value = 1
        await self.pulse(self.dut.accepted, count - 1)
        await RisingEdge(self.dut.clk)
        self.dut.finished.value = 0

    async def request(self, qp):
        self.dut.i__qp.value = qp
        await self.pulse(self.dut.i__valid)


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def check_requests_wait_for_the_entries_before_them(dut):
    rng, bench = seeded_random(), Bench(dut)
    await start_clock_and_reset(dut)
    # Past 2^16: the counts wrap in the middle of the test.
    accepted = finished = 65536 - 100
    await bench.pass_through(accepted)
    waiting: list[tuple[int, int]] = []  # QP, entries before it
    for _ in range(1500):
        match rng.randrange(4):
            case 0 if len(waiting) < DEPTH:
                qp = rng.randrange(4)
                waiting.append((qp, accepted))
                await bench.request(qp)
            case 1 if accepted - finished < bench.most:
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


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def check_requests_leave_at_once_after_any_number_of_entries(dut):
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    for turns in (bench.most // 2 + 2, bench.most + 2, (1 << 15) + 2, (1 << 16) + 2):
        # Requests that wait for the most that can be under way, and what comes after them.
        await bench.pulse(dut.accepted, bench.most)
        for qp in (1, 2):
            await bench.request(qp)
            await cycles(dut, 2)
        await bench.pulse(dut.finished, bench.most - 1)
        await cycles(dut, 20)
        assert bench.released == []
        await bench.pulse(dut.finished)
        await cycles(dut, 20)
        assert bench.released == [1, 2]
        await bench.pass_through(turns)
        await bench.request(3)
        await cycles(dut, 6)
        assert bench.released == [1, 2, 3]
        bench.released.clear()
