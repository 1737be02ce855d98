"""Each atomic is computed in order, from its word or from the value of the write before it."""

from dataclasses import dataclass
from itertools import pairwise

import pytest

from stagecoach.gateware.rdmap.atomic.addresses import ADDRESS_BITS
from stagecoach.gateware.rdmap.atomic.compute import AtomicCompute
from stagecoach.sim.cosim.streams import active_cycles, seeded_random
from tests.rdmap.atomic.serial_order import CMP_SWAP, FETCH_ADD, SWAP, Operation
from tests.rdmap.atomic.simulation import look, simulate

OPERATIONS = 150
ONES = 2**64 - 1
LATENCY = 9
"""Cycles from the word to the write command."""

PERIOD = 11
"""Cycles from one word to the next."""

TO_SELECTED = 2
NAMES = ("operation", "data", "mask", "compare", "compare_mask")


@dataclass
class Computed:
    """An operation, and what it does.

    earlier: number of the latest one before it on its word, among the `within` before it; None if
    there is none.
    """

    given: Operation
    address: int
    within: int
    earlier: int | None
    word: int
    error: bool
    uses: int | None = None  # number of the write whose value it takes
    original: int = 0
    result: int = 0
    wrote: bool = False

    def compute(self, all_of_them, number):
        """Know what it does, from those before it."""
        before = None if self.earlier is None else all_of_them[self.earlier]
        writer = None if before is None else before.writer(self.earlier)
        self.uses = writer if writer is not None and number - writer <= self.within else None
        self.finish(self.word if self.uses is None else all_of_them[self.uses].result)

    def finish(self, original):
        self.original = original
        self.result = self.given.result(original)
        given = self.given
        differs = given.operation == CMP_SWAP and (original ^ given.compare) & given.compare_mask
        self.wrote = not self.error and not differs

    def writer(self, number):
        return number if self.wrote else self.uses


class Bench:
    """The stages around: accepts operations, gives words, and settles what has been computed."""

    def __init__(self, ctx, dut, count, pattern):
        self.ctx, self.dut, self.count = ctx, dut, count
        self.rng = seeded_random(count, pattern)
        self.ready = [active_cycles(pattern, self.rng) for _ in range(2)]
        self.gives = active_cycles(pattern, self.rng)
        self.all = []
        self.settled = self.begun = self.computed = 0
        self.again = False
        self.word = None  # what is offered: its data and error
        self.at = None  # cycles since the word was taken of the one that is computed
        self.held = [False, False]  # the write command, its word
        self.selected = [None] * TO_SELECTED
        self.latest = 0  # the number that is computed, or was
        self.written = 0

    def accept(self, address=None, **given):
        """One more operation comes."""
        rng, number = self.rng, len(self.all)
        kind = rng.choice([FETCH_ADD, SWAP, CMP_SWAP, CMP_SWAP])
        word = rng.choice([5, 6, rng.getrandbits(64)])
        fields = {
            "operation": kind,
            "data": rng.choice([5, 6, rng.getrandbits(64)]),
            "mask": rng.choice([0, ONES, rng.getrandbits(64)]),
            "compare": rng.choice([5, 6, word]),
            "compare_mask": rng.choice([0, 1, ONES]),
        }
        fields |= given
        address = rng.randrange(3) << 40 if address is None else address
        within = number - rng.randint(self.settled, min(self.computed, number))
        window = range(number - 1, number - within - 1, -1)
        earlier = next((one for one in window if self.all[one].address == address), None)
        self.all.append(
            Computed(
                Operation(**fields, asked=0, answered=0, original=None),
                address,
                within if earlier is not None else 0,
                earlier,
                word,
                rng.random() < 0.1,
            )
        )

    def _tables(self):
        """What the tables of `accept` say."""
        ctx, dut, rng = self.ctx, self.dut, self.rng
        of = {number % self.count: self.all[number] for number in self._in_flight()}
        one = of.get(ctx.get(dut.operands.entry))
        if one is not None:
            ctx.set(dut.operands.data, {name: getattr(one.given, name) for name in NAMES})
            latest = rng.randrange(self.count) if one.earlier is None else one.earlier % self.count
            ctx.set(dut.earlier.data, {"latest": latest, "within": one.within})
        assert ctx.get(dut.earlier.entry) == ctx.get(dut.operands.entry)
        reads = ctx.get(dut.selects)
        at = of.get(ctx.get(dut.select)) if reads else None
        self.selected.append(None if at is None else at.address)
        selected = self.selected.pop(0)
        noise = rng.getrandbits(ADDRESS_BITS)
        ctx.set(dut.selected, noise if selected is None else selected)

    def _in_flight(self):
        return range(max(self.settled, len(self.all) - self.count), len(self.all))

    async def cycle(self, give=True):
        """One cycle; with `give` a word may come. Checks everything that the block says."""
        ctx, dut, both = self.ctx, self.dut, (self.dut.command, self.dut.data)
        mod = 2 * self.count
        ctx.set(dut.accepted, len(self.all) % mod)
        ctx.set(dut.settled, self.settled % mod)
        ctx.set(dut.again, int(self.again))
        self._tables()
        if give and self.word is None and next(self.gives):
            self.word = True
        ctx.set(dut.read.valid, int(self.word is not None))
        coming = self.settled if self.again else self.begun
        if coming < len(self.all):
            word = {"data": self.all[coming].word, "error": int(self.all[coming].error), "last": 1}
            ctx.set(dut.read.p, word)
        assert ctx.get(dut.computed) == self.computed % mod
        one = self.all[self.latest] if self.all else None
        begins = self.at == LATENCY - 1 and one.wrote
        assert ctx.get(dut.write_begins) == begins
        assert ctx.get(dut.recomputed) == (self.again and self.at == LATENCY - 1)
        self._writes(one, both)
        self._outcome()
        if self.word is not None and ctx.get(dut.read.ready):
            assert self.at is None, "the one before is not done"
            assert coming < len(self.all), "a word of one that was not accepted"
            self.word, self.at, self.latest = None, 0, coming
            self._begin(coming)
        if self.at is not None:
            self.at += 1
            if self.at == LATENCY:
                self.computed += not self.again
                self.held = [self.all[self.latest].wrote] * 2
            elif self.at > LATENCY and not any(self.held):
                self.at = None
        await ctx.tick()

    def _begin(self, number):
        if self.again:
            self.all[number].uses = None
            self.all[number].finish(self.all[number].word)
        else:
            self.all[number].compute(self.all, number)
            self.begun += 1

    def _writes(self, one, both):
        """The write command and its word are offered as long as they were not taken."""
        for place, (stream, ready) in enumerate(zip(both, self.ready, strict=True)):
            takes = next(ready)
            self.ctx.set(stream.ready, int(takes))
            assert self.ctx.get(stream.valid) == self.held[place]
            if not self.held[place]:
                continue
            if place:
                assert self.ctx.get(stream.p.data) == one.result
                assert self.ctx.get(stream.p.last)
            else:
                assert self.ctx.get(stream.p.address) == one.address << 3
                assert self.ctx.get(stream.p.octets) == 8
                self.written += takes
            self.held[place] = not takes

    def _outcome(self):
        """What was computed stands in the tables until it is settled."""
        if self.settled == self.computed or self.again:
            return
        number = self.rng.randrange(self.settled, self.computed)
        one, entry = self.all[number], number % self.count
        outcome = look(self.ctx, self.dut.outcomes, entry)
        assert outcome.wrote == one.wrote and outcome.read_failed == one.error
        writer = one.writer(number)
        assert outcome.stored == (writer is not None)
        assert writer is None or outcome.writer == writer % (2 * self.count)
        assert look(self.ctx, self.dut.originals, entry) == one.original

    async def begin_anew(self):
        """The oldest operation is computed once more: all others are done."""
        self.again = True
        for _ in range(self.rng.randint(2, 6)):
            await self.cycle(give=False)
        one, computed = self.all[self.settled], self.computed
        one.word, one.error = self.rng.choice([5, 6]), self.rng.random() < 0.2
        while self.at is None:
            await self.cycle()
        while self.at is not None:
            await self.cycle(give=False)
        assert self.computed == computed
        entry = self.settled % self.count
        outcome = look(self.ctx, self.dut.outcomes, entry)
        assert (outcome.wrote, outcome.stored) == (one.wrote, one.wrote)
        assert look(self.ctx, self.dut.originals, entry) == one.word
        self.again = False
        self.settled += 1
        await self.cycle(give=False)
        await self.cycle(give=False)


@pytest.mark.parametrize("pattern", ["always", "random", "slow"])
@pytest.mark.parametrize("count", [2, 32])
def test_each_is_computed_from_its_word_or_the_write_before(count, pattern):
    dut = AtomicCompute(count)

    async def check(ctx):
        bench = Bench(ctx, dut, count, pattern)
        rng, anew = bench.rng, 0
        while bench.settled < OPERATIONS:
            in_flight = len(bench.all) - bench.settled
            if len(bench.all) < OPERATIONS and in_flight < count and rng.random() < 0.2:
                bench.accept()
            # None is settled before its write was taken.
            written = bench.computed - (bench.at is not None)
            if bench.settled < written and rng.random() < (0.1 if count == 2 else 0.05):
                bench.settled += 1
            done = bench.computed == len(bench.all) and bench.at is None and bench.word is None
            if done and bench.settled < bench.computed and rng.random() < 0.3:
                await bench.begin_anew()
                anew += 1
            await bench.cycle(give=bench.begun < len(bench.all) or rng.random() < 0.02)
        assert sum(one.uses is not None for one in bench.all) > OPERATIONS // 20
        assert OPERATIONS // 4 < bench.written and anew > 3

    simulate(dut, check)


@pytest.mark.parametrize("writes", [False, True])
def test_throughput_is_as_documented(writes):
    dut = AtomicCompute(32)

    async def check(ctx):
        bench = Bench(ctx, dut, 32, "always")
        for _ in range(20):
            bench.accept(operation=FETCH_ADD if writes else CMP_SWAP, compare=0, compare_mask=ONES)
            bench.all[-1].error = False
        for one in bench.all:
            one.word = 1
        begun = []
        while bench.computed < 20:
            before = bench.begun
            await bench.cycle()
            begun.append(bench.begun - before)
        times = [cycle for cycle, one in enumerate(begun) if one]
        periods = {late - soon for soon, late in pairwise(times)}
        assert periods == {PERIOD if writes else PERIOD - 1}

    simulate(dut, check)


@pytest.mark.parametrize("which", [0, 1])
def test_write_that_is_not_taken_keeps_the_later_ones(which):
    dut = AtomicCompute(2)

    async def check(ctx):
        bench = Bench(ctx, dut, 2, "always")
        bench.ready[which] = iter(lambda: False, None)
        for _ in range(2):
            bench.accept(operation=SWAP)
            bench.all[-1].error = False
        for _ in range(60):
            await bench.cycle()
        assert (bench.computed, bench.begun) == (1, 1)

    simulate(dut, check)
