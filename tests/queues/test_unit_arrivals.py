"""Words are stored where their reads go, and each unit counts once, up to the first that failed."""

from collections import deque
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.host_memory import READ_WORD
from stagecoach.gateware.queues.unit_arrivals import (
    ARRIVED,
    COUNT_BITS,
    RUN,
    UnitArrivals,
    arrival_tag,
)
from stagecoach.sim.cosim.signals import cycles
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSource,
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
)
from tests.support.runner import parameter, run_cocotb

TO_FILLED = 5
"""Cycles from the last word of a unit to `filled`, and to the first look that can see it."""

TO_ROW = 2
"""Cycles from `set` to the first look that can see it."""

READ_LATENCY = 4
"""From a tag to the first word of its read, at least; host memory is no faster."""


@pytest.mark.parametrize(
    ("qps", "address_bits", "words", "outstanding"),
    [(8, 7, 8, 32), (2, 7, 2, 2), (256, 10, 8, 32), (2, 5, 4, 4)],
)
def test_unit_arrivals(qps: int, address_bits: int, words: int, outstanding: int) -> None:
    sizes = {"address_bits": address_bits, "words": words, "outstanding": outstanding}
    parameters = {name.upper(): str(value) for name, value in ({"qps": qps} | sizes).items()}
    run_cocotb(UnitArrivals(RnicConfig(qps=qps), **sizes), __name__, parameters=parameters)


@pytest.mark.parametrize("words", [-1, 0, 1, 3])
def test_words_that_a_unit_cannot_have_are_refused(words: int) -> None:
    with pytest.raises(ValueError, match=f"words is {words}; allowed: a power of two from 2 on"):
        UnitArrivals(RnicConfig(), address_bits=7, words=words, outstanding=32)


class Bench:
    """Drives the block and compares everything with what the words say, cycle by cycle."""

    def __init__(self, dut: Any) -> None:
        self.dut, self.rng = dut, seeded_random(parameter("QPS"), parameter("WORDS"))
        self.qps, self.words = int(parameter("QPS")), int(parameter("WORDS"))
        self.outstanding = int(parameter("OUTSTANDING"))
        self.address_bits = int(parameter("ADDRESS_BITS"))
        self.layout = arrival_tag(RnicConfig(qps=self.qps), self.address_bits)
        self.tags = StreamSource(dut, "tag", self.layout)
        self.monitor = StreamMonitor(dut, "tag", self.layout)
        for name in ("word__valid", "word__payload", "set", "set_qp", "set_row", "select", "look"):
            getattr(dut, name).value = 0
        self.now = 0
        self.rows = [{"count": 0, "failed": 0, "told": 0} for _ in range(self.qps)]
        # What is to come, with the cycle in which it comes.
        self.changes: deque[tuple[int, int, dict[str, int] | None, bool, bool]] = deque()
        self.seen: dict[str, deque[tuple[int, Any]]] = {
            name: deque() for name in ("store", "ended", "filled", "failed")
        }
        self.looks: deque[tuple[int, int]] = deque([(0, 0)])
        self.busy: set[int] = set()
        self.counted = self.changed = self.lost = 0

    def expect(self, name: str, after: int, what: Any) -> None:
        self.seen[name].append((self.now + after, what))

    def _apply(self) -> None:
        """Changes the rows that can be looked at from this cycle on."""
        while self.changes and self.changes[0][0] <= self.now:
            _, qp, row, bad, copies = self.changes.popleft()
            if row is not None:
                self.rows[qp] = row
                continue
            row = self.rows[qp]
            if bad and not row["failed"]:
                self.seen["failed"].append((self.now, qp))
                self.lost += 1
            row["failed"] |= bad
            if not row["failed"] and not copies:
                row["count"] = (row["count"] + 1) % (1 << COUNT_BITS)
                self.seen["filled"].append((self.now, qp))
                self.counted += 1

    async def cycle(self, word: dict[str, int] | None = None) -> None:
        """One cycle with a word or without, somebody who looks, and somebody who sets rows."""
        dut, rng = self.dut, self.rng
        dut.word__valid.value = int(word is not None)
        dut.word__payload.value = rng.getrandbits(66) if word is None else pack(READ_WORD, word)
        look = rng.randrange(self.qps), rng.randrange(self.qps)
        dut.select.value, dut.look.value = look
        sets = self.now not in self.busy and rng.random() < 0.05
        qp, row = rng.randrange(self.qps), {"count": rng.getrandbits(COUNT_BITS)}
        row |= {"failed": int(rng.random() < 0.1), "told": rng.getrandbits(1)}
        dut.set.value, dut.set_qp.value, dut.set_row.value = int(sets), qp, pack(ARRIVED, row)
        if sets:
            self.changed += 1
            self.changes.append((self.now + TO_ROW, qp, row, False, False))
            self.changes = deque(sorted(self.changes, key=lambda change: change[0]))
        await RisingEdge(dut.clk)
        before, self.looks[0] = self.looks[0], look
        if self.now:
            looked = [unpack(ARRIVED, int(port.value)) for port in (dut.selected, dut.looked)]
            assert looked == [self.rows[one] for one in before], self.now
        self._apply()
        assert int(dut.busy.value) == (self.now in self.busy), self.now
        self._check("store", (int(dut.store_address.value), int(dut.store_data.value)))
        ended = unpack(self.layout, int(dut.ended_tag.value))
        self._check("ended", (ended["qp"], ended["copies"], int(dut.ended_failed.value)))
        for name in ("filled", "failed"):
            valid = getattr(dut, f"{name}__valid")
            self._check(name, int(getattr(dut, f"{name}__qp").value), valid)
        self.now += 1

    def _check(self, name: str, found: Any, valid: Any = None) -> None:
        valid = getattr(self.dut, name) if valid is None else valid
        expected = self.seen[name]
        due = bool(expected) and expected[0][0] == self.now
        assert bool(valid.value) == due, (name, self.now)
        if due:
            assert found == expected.popleft()[1], (name, self.now)

    async def read(self, tag: dict[str, int], units: int, error: float, gap: float) -> None:
        """All words of a read."""
        any_bad = False
        for unit in range(units):
            bad = False
            for number in range(self.words):
                while self.rng.random() < gap:
                    await self.cycle()
                last_of_unit = number == self.words - 1
                last = last_of_unit and unit == units - 1
                word = {"data": self.rng.getrandbits(64), "last": int(last)}
                word["error"] = int(self.rng.random() < error)
                bad |= bool(word["error"])
                address = tag["address"] + unit
                self.expect("store", 2, (address * self.words + number, word["data"]))
                if last_of_unit:
                    any_bad |= bad
                    self.busy |= {self.now + 2, self.now + 3}
                    change = (self.now + TO_FILLED, tag["qp"], None, bad, bool(tag["copies"]))
                    self.changes.append(change)
                if last:
                    self.expect("ended", 2, (tag["qp"], tag["copies"], int(any_bad)))
                await self.cycle(word)

    async def start(self) -> None:
        await start_clock_and_reset(self.dut)

    def tag(self) -> dict[str, int]:
        """Of a read that stays in its group of RUN addresses; of few QPs, so that they meet."""
        rng = self.rng
        qp = rng.choice([0, self.qps - 1, rng.randrange(self.qps)])
        group = rng.randrange(1 << self.address_bits) & -RUN
        return {"qp": qp, "address": group, "copies": int(rng.random() < 0.2)}

    async def reads(self, number: int, error: float, gap: float) -> None:
        """So many reads, as many on their way as there may be."""
        waiting: deque[tuple[dict[str, int], int, int]] = deque()
        left = number
        while left or waiting:
            if left and len(waiting) < self.outstanding:
                tag, start = self.tag(), self.rng.randrange(RUN)
                tag["address"] += start
                units = self.rng.randint(1, RUN - start)
                self.tags.put(tag)
                waiting.append((tag, units, self.now + READ_LATENCY))
                left -= 1
            if waiting[0][2] <= self.now:
                tag, units, _ = waiting.popleft()
                await self.read(tag, units, error, gap)
            else:
                await self.cycle()
        for _ in range(10):
            await self.cycle()
        assert not any(self.seen.values())


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_units_count_until_one_of_their_qp_fails(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    await bench.reads(150, error=0.0, gap=0.0)  # a word in every cycle
    await bench.reads(150, error=0.02, gap=0.0)
    await bench.reads(150, error=0.02, gap=0.4)
    assert bench.counted > 100 and bench.lost > 5 and bench.changed > 20


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_so_many_reads_may_be_on_their_way_as_was_said(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    for _ in range(3 * bench.outstanding):
        bench.tags.put(bench.tag())
    await cycles(dut, 4 * bench.outstanding + 10)
    assert bench.outstanding <= bench.tags.sent <= bench.outstanding + 1
    assert bench.tags.pending
