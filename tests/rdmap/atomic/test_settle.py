"""Atomics are settled in order, by how their writes ended and those before them."""

from dataclasses import dataclass

import pytest

from stagecoach.gateware.rdmap.atomic.operations import AtomicStatus
from stagecoach.gateware.rdmap.atomic.settle import AtomicSettle
from stagecoach.sim.cosim.streams import seeded_random
from tests.rdmap.atomic.simulation import look, simulate

OPERATIONS = 300
MOST_CYCLES = 60 * OPERATIONS


@dataclass
class Operation:
    """An atomic that was computed; `writer` is the number of the one whose value it returned."""

    wrote: bool = False
    read_failed: bool = False
    writer: int | None = None
    failed: bool = False  # its write
    began_anew: bool = False

    @property
    def status(self):
        if self.wrote:
            return AtomicStatus.WRITE_ERROR if self.failed else AtomicStatus.DONE
        return AtomicStatus.READ_ERROR if self.read_failed else AtomicStatus.DONE


class Bench:
    """Computes operations, lets their writes end, and knows what is settled when."""

    def __init__(self, ctx, dut, count):
        self.ctx, self.dut, self.count = ctx, dut, count
        self.rng = seeded_random(count)
        self.outcomes = [self._outcome(0, Operation())] * count
        self.all = []
        self.due = []  # numbers of those whose write responses have not come
        self.writes_due = 0  # as `due`, from the cycle after the write began on
        self.waiting = 0  # responses that were not looked at
        self.came = False  # one of them, in the cycle before
        self.settled = 0
        self.answered = 0  # those before it have no entry any more

    def draw(self, *, returns=True):
        """An operation; if it `returns`, maybe the value that one in flight wrote."""
        rng, number = self.rng, len(self.all)
        operation = Operation()
        kind = rng.choice(["wrote", "wrote", "read_failed", "returned", "returned", "nothing"])
        first = max(0, number - self.count + 1)
        writers = [one for one in range(first, number) if self.all[one].wrote]
        if kind in ("wrote", "read_failed"):
            setattr(operation, kind, True)
        elif kind == "returned" and returns and writers:
            operation.writer = rng.choice(writers)
        operation.failed = operation.wrote and rng.random() < 0.4
        return operation

    def _outcome(self, number, operation):
        writer = number if operation.wrote else operation.writer
        return {
            "wrote": int(operation.wrote),
            "read_failed": int(operation.read_failed),
            "stored": int(writer is not None),
            "writer": (writer or 0) % (2 * self.count),
        }

    async def compute(self, number, operation):
        """A cycle in which an operation is computed; the next one sees what it did."""
        self.ctx.set(self.dut.write_begins, int(operation.wrote))
        await self.cycle()
        self.ctx.set(self.dut.write_begins, 0)
        self.writes_due += operation.wrote
        self.outcomes[number % self.count] = self._outcome(number, operation)
        if operation.wrote:
            self.due.append(number)

    async def compute_next(self, operation):
        self.all.append(operation)
        await self.compute(len(self.all) - 1, operation)
        self.ctx.set(self.dut.computed, len(self.all) % (2 * self.count))

    async def begin_anew(self):
        """The oldest one is computed once more, while nothing else is under way."""
        number = self.settled
        before = self.all[number]
        assert not before.wrote and self.all[before.writer].failed
        self.ctx.set(self.dut.again, 1)
        for _ in range(self.rng.randint(1, 6)):
            await self.cycle()
        assert self.settled == number
        operation = self.draw(returns=False)
        operation.began_anew = True
        await self.recompute(operation)
        while self.settled == number:
            assert self.ctx.get(self.dut.failed_under)
            await self.cycle(done=bool(self.due) and self.rng.random() < 0.3)
        self.ctx.set(self.dut.again, 0)
        assert not self.ctx.get(self.dut.failed_under)

    async def recompute(self, operation):
        """A cycle in which the oldest one is computed anew."""
        self.all[self.settled] = operation
        self.ctx.set(self.dut.recomputed, 1)
        await self.compute(self.settled, operation)
        self.ctx.set(self.dut.recomputed, 0)

    async def cycle(self, done=False):
        """One cycle, in which the oldest write may end; looks at what is settled."""
        ctx, dut = self.ctx, self.dut
        again = ctx.get(dut.again)
        error = self.all[self.due.pop(0)].failed if done else self.rng.getrandbits(1)
        ctx.set(dut.done, int(done))
        ctx.set(dut.error, int(error))
        ctx.set(dut.outcomes.data, self.outcomes[ctx.get(dut.outcomes.entry)])
        self.waiting += self.came
        assert ctx.get(dut.responses_wait) == (self.waiting > 0)
        assert ctx.get(dut.writes_due) == (self.writes_due > 0)
        assert ctx.get(dut.settled) == self.settled % (2 * self.count)
        self.writes_due -= done
        self.came = done and not again
        self._look_at_statuses()
        if ctx.get(dut.settles):
            operation = self.all[self.settled]
            assert self.settled not in self.due, "settled before its write"
            assert operation.writer is None or not self.all[operation.writer].failed
            self.waiting -= operation.wrote and not again
            self.settled += 1
        await ctx.tick()

    def _look_at_statuses(self):
        """Those that are settled have the status that they ended with until they are answered."""
        if self.answered < self.settled:
            number = self.rng.randrange(self.answered, self.settled)
            status = look(self.ctx, self.dut.statuses, number % self.count)
            assert status == self.all[number].status, self.all[number]
        if self.answered < self.settled and self.rng.random() < 0.2:
            self.answered += 1


@pytest.mark.parametrize("count", [2, 32])
def test_each_is_settled_in_order_by_how_it_ended(count):
    dut = AtomicSettle(count)

    async def check(ctx):
        bench = Bench(ctx, dut, count)
        rng = bench.rng
        for _ in range(MOST_CYCLES):
            if bench.answered == OPERATIONS:
                break
            in_flight = len(bench.all) - bench.answered
            if len(bench.all) < OPERATIONS and in_flight < count and rng.random() < 0.3:
                await bench.compute_next(bench.draw())
            quiet = not bench.due and not bench.came
            if ctx.get(dut.failed_under) and quiet and rng.random() < 0.3:
                await bench.begin_anew()
            await bench.cycle(done=bool(bench.due) and rng.random() < 0.3)
        assert bench.answered == OPERATIONS
        statuses = [operation.status for operation in bench.all]
        assert min(statuses.count(status) for status in AtomicStatus) > OPERATIONS // 20
        assert any(operation.began_anew for operation in bench.all)

    simulate(dut, check)


@pytest.mark.parametrize(
    "operation, done_at, settled_at",
    [
        (Operation(), None, 3),
        (Operation(read_failed=True), None, 3),
        (Operation(wrote=True), 8, 12),
    ],
    ids=["no write", "failed read", "write"],
)
def test_latency_is_as_documented(operation, done_at, settled_at):
    dut = AtomicSettle(2)

    async def check(ctx):
        bench = Bench(ctx, dut, 2)
        await bench.compute_next(operation)
        for cycle in range(settled_at):
            assert bench.settled == 0
            await bench.cycle(done=cycle == done_at)
        assert ctx.get(dut.settled) == 1

    simulate(dut, check)


@pytest.mark.parametrize(
    "operation, done_at, settled_at",
    [(Operation(), None, 4), (Operation(wrote=True), 1, 4), (Operation(wrote=True), 8, 10)],
    ids=["no write", "early response", "write"],
)
def test_latency_of_one_that_starts_over(operation, done_at, settled_at):
    dut = AtomicSettle(2)

    async def check(ctx):
        bench = Bench(ctx, dut, 2)
        await bench.compute_next(Operation(wrote=True, failed=True))
        await bench.compute_next(Operation(writer=0))
        await bench.cycle(done=True)
        while not ctx.get(dut.failed_under):
            await bench.cycle()
        ctx.set(dut.again, 1)
        await bench.recompute(operation)
        for cycle in range(1, settled_at):
            assert bench.settled == 1
            await bench.cycle(done=cycle == done_at)
        assert ctx.get(dut.settled) == 2

    simulate(dut, check)


@pytest.mark.parametrize("count", [2, 32])
def test_response_that_does_not_come_holds_up_all_later_ones(count):
    dut = AtomicSettle(count)

    async def check(ctx):
        bench = Bench(ctx, dut, count)
        await bench.compute_next(Operation(wrote=True))
        for _ in range(count - 1):
            await bench.compute_next(Operation())
        for _ in range(6 * count):
            await bench.cycle()
        assert bench.settled == 0
        await bench.cycle(done=True)
        for _ in range(4 + 3 * (count - 1)):
            await bench.cycle()
        assert bench.settled == count

    simulate(dut, check)


def test_all_responses_have_room_while_one_starts_over():
    count = 32
    dut = AtomicSettle(count)

    async def check(ctx):
        bench = Bench(ctx, dut, count)
        await bench.compute_next(Operation(wrote=True, failed=True))
        await bench.compute_next(Operation(writer=0))
        for _ in range(count - 2):
            await bench.compute_next(Operation(wrote=True))
        while bench.due:
            await bench.cycle(done=True)
        for _ in range(10):
            await bench.cycle()
        assert ctx.get(dut.failed_under) and bench.settled == 1
        await bench.begin_anew()
        for _ in range(3 * count):
            await bench.cycle()
        assert bench.settled == count

    simulate(dut, check)
