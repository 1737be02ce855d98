"""What stands before the oldest FPDU that is not released is free, and nothing else."""

import random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.mpa.release_order import MARGIN_FPDUS, ReleaseOrder
from stagecoach.sim.cosim.streams import pack, seeded_random, start_clock_and_reset
from tests.support.runner import parameter, run_cocotb

LATE = (5, 7)  # cycles from a release to what it frees
COMMITS_AFTER_FULL = 8


@pytest.mark.parametrize("octets", [65536, 1048576])
def test_release_order(octets: int) -> None:
    config = RnicConfig(fpdu_store_octets=octets)
    run_cocotb(ReleaseOrder(config), __name__, parameters={"OCTETS": str(octets)})


class Bench:
    """Commits FPDUs of one word and more, and releases them."""

    def __init__(self, dut: Any, rng: random.Random) -> None:
        self.dut, self.rng = dut, rng
        config = RnicConfig(fpdu_store_octets=int(parameter("OCTETS")))
        self.numbers = 1 << config.store_number_bits
        self.words, self.stored = config.fpdu_store_octets // 8, Layouts(config).stored
        self.now = self.end = self.number = self.shown = 0
        self.standing: list[tuple[int, int]] = []  # number and end
        self.gone: dict[int, int] = {}  # released and not free: number and cycle
        self.order: list[tuple[int, int]] = []  # all that are not free
        self.freed = self.full_cycles = 0
        self.delays: set[int] = set()

    async def start(self) -> None:
        self.dut.numbers__commit.value = self.dut.release.value = 0
        await start_clock_and_reset(self.dut)
        self.now = self.end = self.number = self.shown = 0
        self.standing, self.gone, self.order = [], {}, []
        self.full_cycles = 0
        cycles = 0
        while self.dut.numbers__full.value:
            assert not self.dut.free.value
            await RisingEdge(self.dut.clk)
            cycles += 1
        assert cycles <= 20
        assert not self.dut.numbers__number.value

    async def cycle(self, commit: bool, release: int | None = None) -> None:
        """One cycle; `release` is the place of an FPDU among those that stand in the store."""
        dut = self.dut
        await RisingEdge(dut.clk)
        self.now += 1
        full = bool(dut.numbers__full.value)
        self.full_cycles = self.full_cycles + 1 if full else 0
        assert int(dut.numbers__number.value) == self.shown % self.numbers
        self.shown = self.number
        if dut.free.value:
            number, end = self.order.pop(0)
            self.delays.add(self.now - 1 - self.gone.pop(number))
            assert int(dut.free_end.value) == end
            self.freed += 1
        commit &= self.full_cycles <= COMMITS_AFTER_FULL
        dut.numbers__commit.value = int(commit)
        dut.release.value = int(release is not None)
        if release is not None:
            number, end = self.standing.pop(release)
            self.gone[number] = self.now
            fields = {"number": number % self.numbers, "end": end}
            dut.released.value = pack(self.stored, fields)
        if commit:
            self.end = (self.end + self.rng.randint(1, 200)) % self.words
            self.standing.append((self.number, self.end))
            self.order.append((self.number, self.end))
            self.number += 1

    def any_of_them(self) -> int | None:
        return self.rng.randrange(len(self.standing)) if self.standing else None


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_all_before_the_oldest_is_free(dut: Any) -> None:
    rng = seeded_random()
    bench = Bench(dut, rng)
    await bench.start()
    while bench.number < 3000:
        # In order, or any one of the first so many; each turn the store is filled and emptied.
        span = rng.choice([1, 1, 3, 50, bench.numbers])
        for commits, releases in ((0.9, 0.1), (0.3, 0.9), (0.05, 0.9)):
            for _ in range(300):
                most = min(span, len(bench.standing))
                goes = most and rng.random() < releases
                await bench.cycle(rng.random() < commits, rng.randrange(most) if goes else None)
        while bench.order:
            await bench.cycle(False, bench.any_of_them())
    assert bench.freed == bench.number


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_one_holds_what_came_behind_it(dut: Any) -> None:
    bench = Bench(dut, seeded_random())
    for turn in range(2):
        await bench.start()
        while bench.full_cycles < 20:
            await bench.cycle(True)
        stand = len(bench.standing)
        # `full` comes two cycles late, and is looked at in the cycle after it.
        late = 3 + COMMITS_AFTER_FULL
        most = bench.numbers - MARGIN_FPDUS
        assert most - 8 < stand <= most + late < bench.numbers
        freed = bench.freed
        while len(bench.standing) > 1:
            await bench.cycle(False, bench.rng.randrange(1, len(bench.standing)))
        for _ in range(20):
            await bench.cycle(False)
        assert bench.freed == freed
        assert bench.full_cycles
        if turn == 0:
            continue  # what was released before a reset means nothing after it
        await bench.cycle(False, 0)
        for _ in range(LATE[1] + stand):
            await bench.cycle(False)
        assert bench.freed - freed == stand
        assert not bench.full_cycles


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_latency(dut: Any) -> None:
    bench = Bench(dut, seeded_random())
    await bench.start()
    for wait in range(40):
        await bench.cycle(True)
        for _ in range(wait % 20):
            await bench.cycle(False)
        await bench.cycle(False, 0)
        for _ in range(20):
            await bench.cycle(False)
    assert (min(bench.delays), max(bench.delays)) == LATE
