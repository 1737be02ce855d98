"""A search finds the latest earlier operation on its word, if there is one that counts."""

from functools import reduce
from operator import xor
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.rdmap.atomic.addresses import ADDRESS_BITS, TURN_BITS, AtomicAddresses
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.support.runner import parameter, run_cocotb

TO_PULSE = 4
"""Cycles from the look at an entry to the pulse that tells of it."""

FIRST_LOOK = 1
"""The cycle after that in which the bucket is read, which follows `start`."""

BETWEEN_LOOKS = 2

TO_SELECTED = 2


@pytest.mark.parametrize("operations", [2, 16, 32])
def test_atomic_addresses(operations: int) -> None:
    parameters = {"OPERATIONS": str(operations)}
    run_cocotb(AtomicAddresses(operations), __name__, parameters=parameters)


class Bench:
    """Drives the block; selects operations at random beside what a test does."""

    def __init__(self, dut: Any) -> None:
        self.dut, self.rng = dut, seeded_random(parameter("OPERATIONS"))
        self.operations = int(parameter("OPERATIONS"))
        self.table = [0] * self.operations
        self.buckets = [0] * self.operations  # the latest of each
        self.before = [0] * self.operations  # the one before each
        self.selected: list[int | None] = [None] * TO_SELECTED
        self.entry = self.turn = 0
        self.word: int | None = None
        self.selecting = 0.0
        for name in ("take", "start", "recall", "selects", "select", "entry", "within", "address"):
            getattr(dut, name).value = 0

    async def cycle(self, take: int | None = None, recall: bool = False, **start: int) -> bool:
        """One cycle; returns whether the port was left to a search.

        `take` is an address, `entry` and `within` start a search for it.
        """
        dut, rng = self.dut, self.rng
        selects, select = rng.random() < self.selecting, rng.randrange(self.operations)
        dut.selects.value, dut.select.value = int(selects), select
        dut.take.value, dut.recall.value = int(take is not None), int(recall)
        dut.address.value = rng.getrandbits(ADDRESS_BITS) if take is None else take
        dut.start.value = int(bool(start))
        for name in ("entry", "within"):
            getattr(dut, name).value = start.get(name, rng.randrange(self.operations))
        self.selected.append(self.table[select] if selects else None)
        await RisingEdge(dut.clk)
        selected = self.selected.pop(0)
        assert selected in (None, int(dut.selected.value))
        assert self.word in (None, int(dut.word.value))
        if recall:
            self.word = int(dut.selected.value)
        elif take is not None:
            self.word = take
        if start:
            assert take is not None
            self.table[start["entry"]] = take
        return not selects

    async def search(self, address: int, entry: int, within: int) -> int | None:
        """Searches, and returns what was found; exactly when, and once, it has to be."""
        latest = next(
            (
                (entry - back) % self.operations
                for back in range(1, within + 1)
                if self.table[(entry - back) % self.operations] == address
            ),
            None,
        )
        last = self._looks(address, entry, within)
        assert 1 <= last <= within + 1
        await self.cycle(address, entry=entry, within=within)
        looks, due, next_look = 0, None, FIRST_LOOK
        cycle = 0
        while True:
            if await self.cycle() and cycle >= next_look:
                looks, next_look = looks + 1, cycle + BETWEEN_LOOKS
            if looks == last and due is None:
                due = cycle + TO_PULSE
            found, missed = bool(self.dut.found.value), bool(self.dut.missed.value)
            assert (found or missed) == (cycle == due), (cycle, due)
            if cycle == due:
                assert (found, missed) == (latest is not None, latest is None)
                assert latest is None or int(self.dut.latest.value) == latest
                return latest
            cycle += 1

    def _looks(self, address: int, entry: int, within: int) -> int:
        """Entries that are looked at: a chain from the bucket on, until it is not older or old."""
        bits = self.operations.bit_length() - 1
        bucket = reduce(xor, (address >> low for low in range(0, ADDRESS_BITS, bits)))
        bucket %= self.operations
        self.turn += entry == 0
        serial = self.turn * self.operations + entry
        candidate = self.before[entry] = self.buckets[bucket]
        self.buckets[bucket] = serial
        least = 0
        for looks in range(1, self.operations + 1):
            age = (serial - candidate - 1) % (self.operations << TURN_BITS)
            place = candidate % self.operations
            if not least <= age < within or self.table[place] == address:
                return looks
            candidate, least = self.before[place], age + 1
        raise AssertionError("a chain without an end")

    async def start(self) -> None:
        await start_clock_and_reset(self.dut)
        # A reset leaves the memories alone: an address of each bucket comes twice.
        for entry in (*range(self.operations), *range(self.operations)):
            await self.search(entry, entry, 0)
            await self.cycle()


async def search_at_random(bench: Bench, turns: int, apart: tuple[int, int]) -> int:
    """Searches among few addresses, which differ in one bit; returns how many were found."""
    rng, found = bench.rng, 0
    base = rng.getrandbits(ADDRESS_BITS)
    for _ in range(turns):
        address = base ^ rng.choice([0, 0, 1 << rng.randrange(ADDRESS_BITS)])
        within = rng.choice([0, bench.operations - 1, rng.randrange(bench.operations)])
        found += await bench.search(address, bench.entry, within) is not None
        bench.entry = (bench.entry + 1) % bench.operations
        for _ in range(rng.randint(*apart)):  # takes may come, and start nothing
            await bench.cycle(rng.choice([None, rng.getrandbits(ADDRESS_BITS)]))
    return found


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_the_latest_one_that_counts_is_found(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    assert await search_at_random(bench, 200, apart=(2, 6)) > 20


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_the_next_search_may_start_a_cycle_after_the_pulse(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    # `search` returns in the cycle of the pulse: its next cycle is the one after.
    for apart in ((0, 0), (0, 3)):
        assert await search_at_random(bench, 150, apart) > 20


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_a_search_stands_still_while_operations_are_selected(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    for chance in (0.1, 0.5, 0.9):
        bench.selecting = chance
        assert await search_at_random(bench, 60, apart=(1, 4)) > 5


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_word_is_recalled(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    for entry in range(bench.operations):
        address = bench.rng.getrandbits(ADDRESS_BITS)
        await bench.search(address, entry, 0)
    bench.selecting = 1.0
    for _ in range(60):
        await bench.cycle()
        await bench.cycle()
        # With a take in the same cycle the recall counts.
        await bench.cycle(bench.rng.choice([None, 5]), recall=True)
        await bench.cycle()
