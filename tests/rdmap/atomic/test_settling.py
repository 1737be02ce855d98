"""Atomics are settled and answered in order, by how their writes ended and those before them."""

from dataclasses import dataclass

import pytest
from amaranth.hdl import Module, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.rdmap.atomic.operations import AtomicOperations, AtomicStatus
from stagecoach.gateware.rdmap.atomic.settling import answer, settle
from stagecoach.gateware.rdmap.atomic.unit import response_layout
from stagecoach.sim.cosim.streams import active_cycles, seeded_random, unpack

CONFIG = RnicConfig(qps=4)
RESPONSE = response_layout(CONFIG)
OPERATIONS = 300
MOST_CYCLES = 60 * OPERATIONS


class Settling(wiring.Component):
    """`settle` and `answer`; what the rest of the atomic unit does is left to the test."""

    def __init__(self, count):
        self._count = count
        write = wiring.Signature({"done": Out(1), "error": Out(1)})
        super().__init__({"write": In(write), "response": Out(stream.Signature(RESPONSE))})

    def elaborate(self, platform):
        m = Module()
        self.operations = AtomicOperations(m, CONFIG, self._count)
        settle(m, self.operations, self.write)
        answer(m, self.operations, self.response)
        return m


@dataclass
class Operation:
    """An atomic that was computed; `writer` is the number of the one whose value it returned."""

    qp: int
    original: int
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
    """Computes operations, lets their writes end, and knows what is settled and answered when."""

    def __init__(self, ctx, dut, count, pattern):
        self.ctx, self.dut, self.count = ctx, dut, count
        self.of = dut.operations
        self.rng = seeded_random(count, pattern)
        self.ready = active_cycles(pattern, self.rng)
        self.all = []
        self.due = []  # numbers of those whose write responses have not come
        self.waiting = 0  # responses that were not looked at
        self.came = False  # one of them, in the cycle before
        self.settled = self.answered = 0
        self.offered = None  # an answer that was not taken

    def draw(self, *, returns=True):
        """An operation; if it `returns`, maybe the value that one in flight wrote."""
        rng, number = self.rng, len(self.all)
        operation = Operation(rng.randrange(CONFIG.qps), rng.getrandbits(64))
        kind = rng.choice(["wrote", "wrote", "read_failed", "returned", "returned", "nothing"])
        first = max(0, number - self.count + 1)
        writers = [one for one in range(first, number) if self.all[one].wrote]
        if kind in ("wrote", "read_failed"):
            setattr(operation, kind, True)
        elif kind == "returned" and returns and writers:
            operation.writer = rng.choice(writers)
        operation.failed = operation.wrote and rng.random() < 0.4
        return operation

    def compute(self, number, operation):
        """Write into the tables what is known of an operation once it is computed."""
        ctx, of, entry = self.ctx, self.of, number % self.count
        writer = number if operation.wrote else operation.writer
        outcome = {
            "wrote": int(operation.wrote),
            "read_failed": int(operation.read_failed),
            "stored": int(writer is not None),
            "writer": (writer or 0) % (2 * self.count),
        }
        ctx.set(of.outcomes.data[entry], outcome)
        ctx.set(of.qps.data[entry], operation.qp)
        ctx.set(of.originals.data[entry], operation.original)
        if operation.wrote:
            self.due.append(number)

    def compute_next(self):
        operation = self.draw()
        self.compute(len(self.all), operation)
        self.all.append(operation)
        self.ctx.set(self.of.computed, len(self.all) % (2 * self.count))

    async def begin_anew(self):
        """The oldest one is computed once more, while nothing else is under way."""
        number = self.settled
        before = self.all[number]
        assert not before.wrote and self.all[before.writer].failed
        self.ctx.set(self.of.again, 1)
        for _ in range(self.rng.randint(1, 6)):
            await self.cycle()
        assert self.settled == number
        operation = self.draw(returns=False)
        operation.qp, operation.began_anew = before.qp, True
        self.all[number] = operation
        self.compute(number, operation)
        self.ctx.set(self.of.recomputed, 1)
        await self.cycle()
        self.ctx.set(self.of.recomputed, 0)
        while self.settled == number:
            await self.cycle(done=bool(self.due) and self.rng.random() < 0.3)
        self.ctx.set(self.of.again, 0)

    async def cycle(self, done=False):
        """One cycle, in which the oldest write may end; looks at what is settled and answered."""
        ctx, dut, of = self.ctx, self.dut, self.of
        again = ctx.get(of.again)
        ready = next(self.ready)
        error = self.all[self.due.pop(0)].failed if done else self.rng.getrandbits(1)
        ctx.set(dut.response.ready, int(ready))
        ctx.set(dut.write.done, int(done))
        ctx.set(dut.write.error, int(error))
        self.waiting += self.came
        assert ctx.get(of.responses_wait) == (self.waiting > 0)
        self.came = done and not again
        if ctx.get(of.settles):
            operation = self.all[self.settled]
            assert self.settled not in self.due, "settled before its write"
            assert operation.writer is None or not self.all[operation.writer].failed
            self.waiting -= operation.wrote and not again
            self.settled += 1
        assert self.offered is None or ctx.get(dut.response.valid)
        if ctx.get(dut.response.valid):
            response = unpack(RESPONSE, ctx.get(Value.cast(dut.response.payload)))
            assert self.offered in (None, response), "changed while it waited"
            assert self.answered < self.settled
            operation = self.all[self.answered]
            expected = {"qp": operation.qp, "original": operation.original}
            assert response == expected | {"status": operation.status.value}, operation
            self.offered = None if ready else response
            self.answered += ready
        await ctx.tick()


def simulate(count, pattern, check):
    dut = Settling(count)

    async def bench(ctx):
        await check(Bench(ctx, dut, count, pattern))

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("pattern", ["always", "random", "slow"])
@pytest.mark.parametrize("count", [2, 32])
def test_each_is_answered_in_order_by_how_it_ended(count, pattern):
    async def check(bench):
        rng, ctx, of = bench.rng, bench.ctx, bench.of
        for _ in range(MOST_CYCLES):
            if bench.answered == OPERATIONS:
                break
            in_flight = len(bench.all) - bench.answered
            if len(bench.all) < OPERATIONS and in_flight < count and rng.random() < 0.3:
                bench.compute_next()
            quiet = not bench.due and not bench.came
            if ctx.get(of.failed_under) and quiet and rng.random() < 0.3:
                await bench.begin_anew()
            await bench.cycle(done=bool(bench.due) and rng.random() < 0.3)
        assert bench.answered == OPERATIONS
        statuses = [operation.status for operation in bench.all]
        assert min(statuses.count(status) for status in AtomicStatus) > OPERATIONS // 20
        assert any(operation.began_anew for operation in bench.all)

    simulate(count, pattern, check)


@pytest.mark.parametrize("count", [2, 32])
def test_an_answer_that_is_not_taken_holds_up_no_other(count):
    async def check(bench):
        bench.ready = iter(lambda: False, None)
        for _ in range(count):
            operation = Operation(0, 0, wrote=True)
            bench.compute(len(bench.all), operation)
            bench.all.append(operation)
            bench.ctx.set(bench.of.computed, len(bench.all))
        for _ in range(6 * count):
            await bench.cycle(done=bool(bench.due))
        assert (bench.settled, bench.answered) == (count, 0)

    simulate(count, "always", check)
