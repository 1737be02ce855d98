"""Each access is made once and told once, and a slave that never answers holds up nobody."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge, Timer

from stagecoach.gateware.wishbone.master import WishboneMaster
from stagecoach.gateware.wishbone.ports import ACCESS, ADDRESS_BITS, OUTCOME
from stagecoach.sim.cosim.streams import CLOCK_PERIOD_NS, pack, seeded_random, unpack
from tests.support.runner import parameter, run_cocotb
from tests.wishbone.slave import Access, Answer, Slave

LIMIT_CYCLES = 100
LEAST_LIMIT = 16
LARGEST = (1 << ADDRESS_BITS) - 1
WORD = (1 << 32) - 1


@pytest.mark.parametrize("period_ns", [10, 7, 23])
def test_wishbone_master(period_ns: float) -> None:
    parameters = {"PERIOD_NS": str(period_ns)}
    run_cocotb(WishboneMaster(LIMIT_CYCLES), __name__, parameters=parameters)


def test_the_least_limit_is_enough_for_clocks_of_the_same_frequency() -> None:
    run_cocotb(
        WishboneMaster(LEAST_LIMIT),
        __name__,
        parameters={"PERIOD_NS": str(CLOCK_PERIOD_NS)},
        test_filter="check_cycles_of_an_access$",
    )


def test_wrong_limit() -> None:
    with pytest.raises(ValueError, match=r"limit_cycles is 15; allowed: 16 and more"):
        WishboneMaster(LEAST_LIMIT - 1)


class Bench:
    def __init__(self, dut: Any):
        self.dut = dut
        self.slave = Slave(dut, "bus", float(parameter("PERIOD_NS")))
        self.outcomes: list[dict[str, int]] = []
        dut.access__valid.value = 0

    async def start(self) -> "Bench":
        await self.slave.start()
        cocotb.start_soon(self._watch())
        return self

    async def _watch(self) -> None:
        while True:
            await RisingEdge(self.dut.clk)
            if int(self.dut.done.value):
                self.outcomes.append(unpack(OUTCOME, int(self.dut.outcome.value)))

    async def take(self, access: Access) -> None:
        """Returns in the cycle after that in which the access is taken."""
        dut = self.dut
        write, word, value = access
        dut.access__payload.value = pack(ACCESS, write=write, word=word, value=value or 0)
        dut.access__valid.value = 1
        while True:
            await RisingEdge(dut.clk)
            if int(dut.access__ready.value):
                break
        dut.access__valid.value = 0

    async def outcome(self, number: int) -> dict[str, int]:
        while len(self.outcomes) <= number:
            await RisingEdge(self.dut.clk)
        return self.outcomes[number]

    async def make(self, access: Access, answer: Answer) -> dict[str, int]:
        self.slave.answers.append(answer)
        number = len(self.outcomes)
        await self.take(access)
        return await self.outcome(number)


def said(answer: Answer) -> dict[str, int]:
    return {"value": answer.value, "error": int(answer.error), "late": 0}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_smallest_and_largest_address_and_every_pace(dut: Any) -> None:
    bench = await Bench(dut).start()
    wanted = []
    for cycles in (0, 1, 2, 5, 9):
        for word in (0, 1, LARGEST):
            for error in (False, True):
                answer = Answer(WORD ^ word ^ cycles, cycles, error)
                for access in ((0, word, None), (1, word, 0), (1, word, WORD - cycles)):
                    assert await bench.make(access, answer) == said(answer)
                    wanted.append(access)
    assert bench.slave.asked == wanted


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_accesses_without_a_pause(dut: Any) -> None:
    rng = seeded_random()
    bench = await Bench(dut).start()
    accesses: list[Access] = []
    for _ in range(50):
        word, value = rng.getrandbits(ADDRESS_BITS), rng.getrandbits(32)
        accesses.append((1, word, value) if rng.random() < 0.5 else (0, word, None))
    answers = [Answer(rng.getrandbits(32), rng.randrange(3)) for _ in accesses]
    bench.slave.answers.extend(answers)
    for access in accesses:
        await bench.take(access)
    await bench.outcome(len(accesses) - 1)
    assert bench.outcomes == [said(answer) for answer in answers]
    assert bench.slave.asked == accesses


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_cycles_of_an_access(dut: Any) -> None:
    bench = await Bench(dut).start()
    if bench.slave.period_ns != CLOCK_PERIOD_NS:
        return
    for waiting in range(4):
        bench.slave.answers.append(Answer(1, waiting))
        await bench.take((0, 5, None))
        cycles = 0
        while len(bench.outcomes) <= waiting:
            await RisingEdge(dut.clk)
            cycles += 1
        assert 10 <= cycles - waiting <= 12
        assert bench.outcomes[-1] == said(Answer(1, waiting))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_slave_that_never_answers_costs_the_limit_once(dut: Any) -> None:
    bench = await Bench(dut).start()
    bench.slave.answers.append(Answer(0xDEAD, None))
    await bench.take((1, LARGEST, 7))
    cycles = 0
    while not bench.outcomes:
        await RisingEdge(dut.clk)
        cycles += 1
    assert LIMIT_CYCLES <= cycles <= LIMIT_CYCLES + 1
    for number in range(1, 5):
        await bench.take((1, number, number))
        await ClockCycles(dut.clk, 2)
        assert len(bench.outcomes) == number + 1  # at once
    assert all(outcome["late"] for outcome in bench.outcomes)
    assert len(bench.slave.asked) == 1 and int(dut.bus__stb.value)
    # It answers after all: nobody gets that, and all goes on.
    bench.slave.let_go.set()
    await Timer(20 * bench.slave.period_ns, unit="ns")
    assert len(bench.outcomes) == 5
    answer = Answer(0xBEEF, 1)
    assert await bench.make((0, 3, None), answer) == said(answer)
    assert bench.slave.asked == [(1, LARGEST, 7), (0, 3, None)]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_clock_that_stands_still(dut: Any) -> None:
    bench = await Bench(dut).start()
    for after in range(1, 240, 9):
        bench.outcomes.clear()
        bench.slave.asked.clear()
        bench.slave.answers.append(Answer(after, 0))
        await bench.take((1, after, after))
        await Timer(after, unit="ns")
        bench.slave.clock_stands = True
        first = await bench.outcome(0)
        if bench.slave.asked and not first["late"]:  # it was over before
            bench.slave.answers.append(Answer(0, 0))
            await bench.take((0, 9, None))
            assert (await bench.outcome(1))["late"]
        else:
            assert first["late"]
        bench.slave.clock_stands = False
        await Timer(20 * bench.slave.period_ns, unit="ns")
        known = len(bench.outcomes)
        answer = Answer(77, 0)
        assert await bench.make((0, LARGEST, None), answer) == said(answer)
        assert len(bench.outcomes) == known + 1
        assert bench.slave.asked[0] == (1, after, after)
        assert bench.slave.asked[-1] == (0, LARGEST, None)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_reset_in_the_middle_of_an_access(dut: Any) -> None:
    bench = await Bench(dut).start()
    for after in range(14):
        for waiting in (0, 6, 30):
            bench.outcomes.clear()
            bench.slave.asked.clear()
            bench.slave.answers.append(Answer(0xBAD, waiting))
            await bench.take((1, 1, 1))
            await ClockCycles(dut.clk, after)
            dut.rst.value = 1
            await ClockCycles(dut.clk, 16)
            dut.rst.value = 0
            known = len(bench.outcomes)  # it may have come just before
            answer = Answer(0x600D, 2)
            if not bench.slave.asked:
                bench.slave.answers.clear()  # the reset was first
            bench.slave.answers.append(answer)
            await bench.take((0, 2, None))
            assert await bench.outcome(known) == said(answer)
            assert bench.slave.asked[-1] == (0, 2, None) and len(bench.slave.asked) <= 2


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_reset_of_the_slave_in_the_middle_of_an_access(dut: Any) -> None:
    bench = await Bench(dut).start()
    bench.slave.answers.extend([Answer(1, None), Answer(2, 0)])
    await bench.take((1, 4, 4))
    await Timer(10 * bench.slave.period_ns, unit="ns")
    assert bench.slave.asked == [(1, 4, 4)]
    dut.wishbone_rst.value = 1
    bench.slave.let_go.set()
    await Timer(3 * bench.slave.period_ns, unit="ns")
    dut.wishbone_rst.value = 0
    assert await bench.outcome(0) == said(Answer(2, 0))
    assert bench.slave.asked == [(1, 4, 4)] * 2
