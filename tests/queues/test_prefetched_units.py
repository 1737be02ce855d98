"""The consumer sees each QP's oldest units, wherever they stand, and pops them in order."""

from collections import deque
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.queues.prefetch_memory import LANE_UNITS, PrefetchMemory
from stagecoach.gateware.queues.prefetched_units import PrefetchedUnits
from stagecoach.gateware.queues.unit_arrivals import COUNT_BITS
from stagecoach.sim.cosim.streams import pack, seeded_random, start_clock_and_reset, unpack
from tests.support.runner import parameter, run_cocotb

NUMBERS = 1 << 16
SEEN = 3
"""Cycles from a change to the values that show it."""

SECOND_SEEN = 4
"""The same of the words of the second unit."""

POPS_APART = 3


@pytest.mark.parametrize(
    ("qps", "lanes", "words", "entry_units", "own_units"),
    [(8, 4, 8, 2, 2), (2, 16, 2, 1, 8), (256, 2, 8, 2, 4)],
)
def test_prefetched_units(
    qps: int, lanes: int, words: int, entry_units: int, own_units: int
) -> None:
    memory = PrefetchMemory(RnicConfig(qps=qps, prefetch_lanes=lanes), own_units)
    block = PrefetchedUnits(memory, words=words, entry_units=entry_units)
    sizes = {
        "OWN_UNITS": own_units,
        "QPS": qps,
        "LANES": lanes,
        "WORDS": words,
        "ENTRY_UNITS": entry_units,
    }
    parameters = {name: str(value) for name, value in sizes.items()}
    run_cocotb(block, __name__, parameters=parameters)


class Bench:
    """What is known of each QP, as it was in the last cycles."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        names = ("QPS", "LANES", "WORDS", "ENTRY_UNITS")
        self.qps, self.lanes, self.words, self.entry_units = (int(parameter(n)) for n in names)
        self.rng = seeded_random(self.qps)
        self.own_units = int(parameter("OWN_UNITS"))
        config = RnicConfig(qps=self.qps, prefetch_lanes=self.lanes)
        self.memory = PrefetchMemory(config, self.own_units)
        zero = {"number": 0, "in_lane": 0, "has_lane": 0, "lane": 0, "posted": 0}
        self.rows = [dict(zero) for _ in range(self.qps)]
        # Rows, selected QP and word address of the last cycles, the newest first
        self.past: deque[tuple[list[dict[str, int]], int, int]] = deque(maxlen=6)
        self.looked: deque[int] = deque(maxlen=2)
        self.arrived: deque[int] = deque([0] * 4, maxlen=4)
        self.failed: deque[int] = deque([0] * 4, maxlen=4)
        self.words_at: dict[int, int] = {}
        self.select = self.coming = 0
        self.stable = 0  # cycles in which `coming` and `select` were the same
        self.since_pop = 0
        self.pops = self.second_words = self.lane_words = 0
        for name in ("store", "settle", "move", "post", "entries__pop", "entries__popping"):
            getattr(dut, name).value = 0
        dut.entries__coming.value = dut.entries__select.value = 0

    def address(self, row: dict[str, int], qp: int, unit: int) -> int:
        """Where a unit stands (queues/prefetch_memory.py); the larger part comes first."""
        number = row["number"] + unit
        in_lane = row["in_lane"] >> unit & 1
        base = qp * self.own_units + number % self.own_units
        lane = row["lane"] * LANE_UNITS + number % LANE_UNITS
        parts = [(self.qps * self.own_units, 0), (self.lanes * LANE_UNITS, 1)]
        first = 1 if parts[1][0] >= parts[0][0] else 0
        half = max(parts)[0]
        return (lane if in_lane else base) + (0 if in_lane == first else half)

    async def fill(self) -> None:
        """Every word of the memory."""
        parts = sorted((self.qps * self.own_units, self.lanes * LANE_UNITS))
        for address in range((parts[1] + parts[0]) * self.words):
            self.words_at[address] = self.rng.getrandbits(64)
            self.dut.store.value, self.dut.store_address.value = 1, address
            self.dut.store_data.value = self.words_at[address]
            await RisingEdge(self.dut.clk)
        self.dut.store.value = 0

    async def cycle(self, change: float) -> None:
        """One cycle: the consumer may change its QP or pop, the fetcher may change rows."""
        dut, rng = self.dut, self.rng
        # The consumer
        word_address = rng.randrange(self.entry_units * self.words)
        self.select = self.coming
        if rng.random() < 0.1:
            self.coming = rng.choice([0, self.qps - 1, rng.randrange(self.qps)])
        self.stable = self.stable + 1 if self.coming == self.select else 0
        may_pop = self.since_pop >= POPS_APART and len(self.past) > SEEN
        # As `coming` two cycles ago, and as `select` in the cycle before.
        may_pop &= self.select == self.past[0][1] if self.past else False
        pop = bool(may_pop) and rng.random() < 0.3
        both = pop and self.entry_units > 1 and rng.random() < 0.5
        # The fetcher
        qp = rng.choice([self.select, self.coming, rng.randrange(self.qps)])
        busy = qp in (self.select, self.coming, *(past[1] for past in self.past))
        settle, move, post = (rng.random() < change for _ in range(3))
        settle &= not (pop and qp == self.select)
        move &= not (pop and qp == self.select)
        row = dict(self.rows[qp])
        settled = {"number": row["number"], "in_lane": rng.getrandbits(self.own_units)}
        if not busy:
            settled["number"] = rng.choice([0, NUMBERS - 1, rng.randrange(NUMBERS)])
        moved = {"in_lane": rng.getrandbits(1), "lane": rng.randrange(self.lanes)}
        posted = rng.randrange(NUMBERS)
        dut.entries__coming.value, dut.entries__select.value = self.coming, self.select
        dut.entries__word_address.value = word_address
        dut.entries__pop.value, dut.entries__pop_both.value = int(pop), int(both)
        dut.entries__popping.value = int(pop)
        dut.qp.value, dut.posted.value = qp, posted
        dut.settle.value, dut.move.value, dut.post.value = int(settle), int(move), int(post)
        dut.settled.value = pack(self.memory.popped, settled)
        dut.moved.value = pack(self.memory.home, moved)
        self.arrived.append(rng.getrandbits(COUNT_BITS))
        dut.arrived.value = self.arrived[-1]
        self.failed.append(rng.getrandbits(1))
        dut.failed.value = self.failed[-1]
        await RisingEdge(dut.clk)
        self._check(word_address)
        # What is so after this cycle
        before = [dict(one) for one in self.rows]
        if settle and not pop:
            self.rows[qp] |= settled
        if move:
            self.rows[qp] |= {"has_lane": moved["in_lane"], "lane": moved["lane"]}
        if post:
            self.rows[qp]["posted"] = posted
        if pop:
            oldest = self.rows[self.select]
            has_lane = before[self.select]["has_lane"]
            for _ in range(1 + both):
                later = oldest["in_lane"] >> 1
                oldest["in_lane"] = later | has_lane << self.own_units - 1
            oldest["number"] = (oldest["number"] + 1 + both) % NUMBERS
            self.pops += 1
        self.since_pop = 0 if pop else self.since_pop + 1
        self.past.appendleft(([dict(one) for one in self.rows], self.select, word_address))
        self.looked.appendleft(qp)

    def _check(self, word_address: int) -> None:
        dut = self.dut
        if len(self.past) < self.past.maxlen:  # type: ignore[operator]
            return
        rows = [past[0] for past in self.past]  # rows[n]: with the changes of n + 1 cycles ago
        selected = [self.select, *(past[1] for past in self.past)]
        addresses = [word_address, *(past[2] for past in self.past)]
        # A look at a QP: settles and pops of the cycle before it do not count yet.
        looked = self.looked[0]
        popped = unpack(self.memory.popped, int(dut.popped.value))
        home = unpack(self.memory.home, int(dut.home.value))
        assert popped == {name: rows[2][looked][name] for name in ("number", "in_lane")}
        assert home == {"in_lane": rows[1][looked]["has_lane"], "lane": rows[1][looked]["lane"]}
        # The consumer's QP, two cycles ago
        qp = selected[2]
        row = rows[SEEN - 1][qp]
        assert int(dut.entries__index.value) == row["number"]
        assert int(dut.entries__posted.value) == (row["posted"] - row["number"]) % NUMBERS
        level = (self.arrived[-2] - row["number"]) % (1 << COUNT_BITS)
        assert int(dut.entries__level.value) == level
        assert int(dut.entries__failed.value) == self.failed[-2]
        unit, word = divmod(addresses[2], self.words)
        if unit:
            if selected[3] != qp:
                return  # it takes a cycle more
            row = rows[SECOND_SEEN - 1][qp]
            self.second_words += 1
        at = self.address(row, qp, unit)
        self.lane_words += row["in_lane"] >> unit & 1
        assert int(dut.entries__word.value) == self.words_at[at * self.words + word]


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_the_consumer_sees_the_oldest_units(dut: Any) -> None:
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    await bench.fill()
    for turn in range(6):
        for _ in range(500):
            await bench.cycle(change=(0.0, 0.1, 0.5)[turn % 3])
    assert bench.pops > 100 and bench.lane_words > 100
    assert bool(bench.second_words > 100) == (bench.entry_units > 1)
