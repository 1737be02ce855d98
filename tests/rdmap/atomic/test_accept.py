"""Requests are taken, remembered and read as a list of the operations in flight says."""

from itertools import pairwise

import pytest

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import OPERANDS
from stagecoach.gateware.rdmap.atomic.accept import AtomicAccept
from stagecoach.sim.cosim.streams import active_cycles, seeded_random, unpack
from tests.rdmap.atomic.simulation import look, simulate

CONFIG = RnicConfig(qps=4)
OPERATIONS = 150
LATENCY = 2
"""Cycles from a request to its read command."""

LATENCY_AGAIN = 5
"""Cycles from `again` to the read command."""

PERIOD = 8
"""Cycles from one request to the next."""

TO_SELECTED = 2
WORDS = ("data", "mask", "compare", "compare_mask")


class Bench:
    """Sends requests, and plays the later stages; knows what is asked and remembered."""

    def __init__(self, ctx, dut, count, pattern, addresses=3):
        self.ctx, self.dut, self.count = ctx, dut, count
        self.rng = seeded_random(count, pattern)
        self.ready = active_cycles(pattern, self.rng)
        self.addresses = [self.rng.getrandbits(61) << 3 for _ in range(addresses)]
        self.all = []  # requests that were taken
        self.earlier = []  # of each: the latest before it on its word, and how many count
        self.accepted = self.computed = self.settled = self.answered = 0
        self.request = None
        self.willing = False  # nothing was against one more request, a cycle ago
        self.countdown = None  # cycles until a read is offered
        self.reads = []  # addresses of those that are to be asked for; the first one is offered
        self.failed_under = self.responses_wait = self.writes_due = False
        self.again = None  # cycles since then
        self.restarts = 0
        self.selected = [None] * TO_SELECTED

    def draw(self):
        rng = self.rng
        return {
            "qp": rng.randrange(CONFIG.qps),
            "address": rng.choice(self.addresses),
            "operands": {"operation": rng.randrange(3)}
            | {name: rng.getrandbits(64) for name in WORDS},
        }

    def _select(self):
        """Another block reads an address; while one starts over, it is that one's."""
        ctx, dut, rng = self.ctx, self.dut, self.rng
        anew = self.again is not None and self.again > 0
        accepted = range(max(0, self.accepted - self.count), self.accepted)
        selects = not anew and bool(accepted) and rng.random() < 0.2
        number = self.settled if anew else rng.choice(accepted or [0])
        ctx.set(dut.selects, int(selects))
        ctx.set(dut.select, number % self.count)
        overwritten = len(self.all) - self.count > number
        self.selected.append(self.all[number]["address"] if selects and not overwritten else None)
        selected = self.selected.pop(0)
        assert selected is None or ctx.get(dut.selected) == selected >> 3

    async def cycle(self, settles=0):
        """One cycle; `settles` says that the oldest operation is settled in it."""
        ctx, dut = self.ctx, self.dut
        for name in ("computed", "settled", "answered"):
            ctx.set(getattr(dut, name), getattr(self, name) % (2 * self.count))
        for name in ("failed_under", "responses_wait", "writes_due"):
            ctx.set(getattr(dut, name), int(getattr(self, name)))
        ctx.set(dut.settles, settles)
        ctx.set(dut.request.valid, int(self.request is not None))
        if self.request is not None:
            ctx.set(dut.request.p, self.request)
        self._select()
        self._look_at_again()
        self._look_at_read()
        self._look_at_tables()
        if ctx.get(dut.request.ready):
            assert self.willing
            if self.request is not None:
                self._take()
        in_flight = self.accepted - self.answered
        busy = self.responses_wait or self.failed_under
        self.willing = in_flight < self.count and not busy
        await ctx.tick()
        self.settled += settles

    def _take(self):
        number, address = len(self.all), self.request["address"]
        assert number == self.accepted, "the one before is not accepted yet"
        within = number - self.settled
        window = range(number - 1, number - within - 1, -1)
        latest = next((one for one in window if self.all[one]["address"] == address), None)
        self.earlier.append((latest, within))
        self.all.append(self.request)
        self.reads.append(address)
        self.countdown = LATENCY - 1
        self.request = None

    def _look_at_read(self):
        """The read of the latest operation is offered exactly when it has to be, and stays."""
        ctx, command = self.ctx, self.dut.command
        takes = next(self.ready)
        ctx.set(command.ready, int(takes))
        offered = bool(self.reads) and not self.countdown
        assert ctx.get(command.valid) == offered
        if offered:
            assert ctx.get(command.p.address) == self.reads[0]
            assert ctx.get(command.p.octets) == 8
            if takes:
                self.reads.pop(0)
        if self.countdown:
            self.countdown -= 1

    def _look_at_tables(self):
        """Of each operation in flight the tables say what came; and whose value it may use."""
        ctx, dut, mod = self.ctx, self.dut, 2 * self.count
        if ctx.get(dut.accepted) != self.accepted % mod:
            self.accepted += 1
        assert ctx.get(dut.accepted) == self.accepted % mod
        assert self.accepted <= len(self.all)
        if self.answered == self.accepted:
            return
        number = self.rng.randrange(self.answered, self.accepted)
        entry, request = number % self.count, self.all[number]
        operands = look(ctx, dut.operands, entry)
        assert unpack(OPERANDS, operands.as_bits()) == request["operands"]
        assert look(ctx, dut.qps, entry) == request["qp"]
        latest, within = self.earlier[number]
        earlier = look(ctx, dut.earlier, entry)
        assert earlier.within == (0 if latest is None else within)
        assert latest is None or earlier.latest == latest % self.count

    def _look_at_again(self):
        if not self.ctx.get(self.dut.again):
            self.again = None
        elif self.again is None:
            assert self.failed_under and not self.writes_due
            assert self.accepted == self.computed == len(self.all)
            self.again = 0
            self.restarts += 1
            self.reads.append(self.all[self.settled]["address"])
            self.countdown = LATENCY_AGAIN
        else:
            self.again += 1

    async def go_on(self):
        """One cycle in which each of the later stages may go on."""
        rng = self.rng
        if self.request is None and len(self.all) < OPERATIONS and rng.random() < 0.5:
            self.request = self.draw()
        if self.computed < self.accepted and rng.random() < 0.2:
            self.computed += 1
        elif self.failed_under and self.computed == len(self.all):
            self.writes_due &= rng.random() < 0.8
        self.responses_wait = rng.random() < 0.2
        settles = 0
        if self.again is not None:
            settles = int(self.again > LATENCY_AGAIN and not self.reads and rng.random() < 0.1)
        elif self.settled < self.computed and not self.failed_under:
            settles = int(rng.random() < 0.15)
            if not settles and rng.random() < 0.03:
                self.failed_under = self.writes_due = True
        await self.cycle(settles)
        if settles:
            self.failed_under = False
        if self.answered < self.settled and rng.random() < 0.3:
            self.answered += 1


@pytest.mark.parametrize("pattern", ["always", "random", "slow"])
@pytest.mark.parametrize("count", [2, 32])
def test_each_is_read_and_remembered(count, pattern):
    dut = AtomicAccept(CONFIG, count)

    async def check(ctx):
        bench = Bench(ctx, dut, count, pattern)
        while bench.answered < OPERATIONS:
            await bench.go_on()
        found = [latest for latest, _ in bench.earlier if latest is not None]
        assert len(found) > OPERATIONS // 20 and bench.restarts > 3

    simulate(dut, check)


def test_throughput_is_as_documented():
    dut = AtomicAccept(CONFIG, 32)

    async def check(ctx):
        bench = Bench(ctx, dut, 32, "always")
        bench.rng.random = lambda: 1.0  # no other block reads an address
        taken = []
        for cycle in range(100):
            bench.request = bench.request or bench.draw()
            bench.settled = bench.answered = bench.computed = bench.accepted
            before = len(bench.all)
            await bench.cycle()
            if len(bench.all) > before:
                taken.append(cycle)
        assert {late - soon for soon, late in pairwise(taken)} == {PERIOD}

    simulate(dut, check)


@pytest.mark.parametrize("count", [2, 32])
def test_no_more_are_taken_than_are_in_flight(count):
    dut = AtomicAccept(CONFIG, count)

    async def check(ctx):
        bench = Bench(ctx, dut, count, "always")
        for _ in range(20 * count + 20):
            bench.request = bench.request or bench.draw()
            bench.computed = bench.settled = bench.accepted
            await bench.cycle()
        assert len(bench.all) == count
        bench.answered += 1
        for _ in range(20):
            await bench.cycle()
        assert len(bench.all) == count + 1

    simulate(dut, check)


def test_read_that_is_not_taken_keeps_the_later_ones():
    dut = AtomicAccept(CONFIG, 32)

    async def check(ctx):
        bench = Bench(ctx, dut, 32, "always")
        bench.ready = iter(lambda: False, None)
        for _ in range(60):
            bench.request = bench.request or bench.draw()
            await bench.cycle()
        assert len(bench.all) == bench.accepted == 1

    simulate(dut, check)
