"""Each atomic is answered once it is settled, in order, and from its own entry."""

import pytest

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.rdmap.atomic.operations import AtomicStatus
from stagecoach.gateware.rdmap.atomic.respond import AtomicRespond
from stagecoach.sim.cosim.streams import active_cycles, seeded_random
from tests.rdmap.atomic.simulation import simulate

CONFIG = RnicConfig(qps=4)
OPERATIONS = 200


def draw(rng):
    """What is known of an operation."""
    return rng.randrange(CONFIG.qps), rng.getrandbits(64), rng.choice(list(AtomicStatus))


@pytest.mark.parametrize("pattern", ["always", "random", "slow"])
@pytest.mark.parametrize("count", [2, 32])
def test_each_is_answered_in_order(count, pattern):
    dut = AtomicRespond(CONFIG, count)
    rng = seeded_random(count, pattern)
    ready = active_cycles(pattern, rng)

    async def check(ctx):
        table = [draw(rng) for _ in range(count)]
        settled = answered = taken = 0
        valid, offered, late = False, None, False
        while taken < OPERATIONS:
            # Its entry stands from when it is settled until it is answered.
            if settled < OPERATIONS and settled - answered < count and rng.random() < 0.4:
                table[settled % count] = draw(rng)
                settled += 1
            ctx.set(dut.settled, settled % (2 * count))
            readers = dut.qps, dut.originals, dut.statuses
            for reader, column in zip(readers, range(3), strict=True):
                ctx.set(reader.data, table[ctx.get(reader.entry)][column])
            takes = next(ready)
            ctx.set(dut.response.ready, int(takes))
            assert ctx.get(dut.answered) == answered % (2 * count)
            assert ctx.get(dut.response.valid) == valid
            if valid:
                payload = dut.response.p
                assert offered == tuple(
                    ctx.get(field) for field in (payload.qp, payload.original, payload.status)
                )
                taken += takes
            # One cycle after it is settled, or two after the one before was taken.
            if not valid and settled != answered:
                valid, offered, answered = True, table[answered % count], answered + 1
            elif takes:
                valid = False
            late |= settled - answered == count
            await ctx.tick()
        assert late or pattern != "slow"

    simulate(dut, check)


@pytest.mark.parametrize("count", [2, 32])
def test_answer_that_is_not_taken_keeps_the_later_ones(count):
    dut = AtomicRespond(CONFIG, count)

    async def check(ctx):
        ctx.set(dut.settled, count)
        await ctx.tick()
        for _ in range(20):
            assert ctx.get(dut.response.valid) and ctx.get(dut.answered) == 1
            await ctx.tick()

    simulate(dut, check)
