"""What is found of a ring is what was stored, seen in the first cycle of the visit."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.queues.fetch.lookup import FetchLookup
from stagecoach.gateware.queues.fetch.visit import RING, Visit, found_layout, visit_layout
from stagecoach.gateware.queues.unit_arrivals import ARRIVED, COUNT_BITS, RUN
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    pack,
    seeded_random,
    start_clock_and_reset,
)
from tests.queues.fetch.bench import MEMORIES, MOD, both_sizes, config, memory, random_fields
from tests.support.runner import parameter, run_cocotb

VISITS = 800
WAYS = ("found", "idle", "failed")


@both_sizes
@pytest.mark.parametrize("pattern", ["always", "slow"])
def test_fetch_lookup(size, pattern):
    parameters = {"SIZE": size, "PATTERN": pattern}
    run_cocotb(FetchLookup(MEMORIES[size]), __name__, parameters=parameters)


class Bench:
    """Drives the rows of other blocks as memories do, pops at random, and keeps what is stored."""

    def __init__(self, dut, rng):
        self.dut, self.rng = dut, rng
        self.qps = config().qps
        self.shapes = {"popped": memory().popped, "home": memory().home, "arrived": ARRIVED}
        self.rings = {}
        self.counts = {}
        self.pops = [None, None]  # the QPs that were popped in this cycle and the one before
        for name in ("visit__valid", "pop__valid", "last_pop__valid", "restart", "forget", "count"):
            getattr(dut, name).value = 0
        dut.qp.value = dut.units.value = 0

    async def cycle(self, pop_of: int | None = None) -> None:
        """The next cycle, with a pop or none."""
        dut = self.dut
        dut.last_pop__valid.value = self.pops[0] is not None
        dut.last_pop__qp.value = self.pops[0] or 0
        dut.pop__valid.value = pop_of is not None
        dut.pop__qp.value = pop_of or 0
        self.pops = [pop_of, self.pops[0]]
        await RisingEdge(dut.clk)

    def drive(self, rows: dict | None) -> None:
        """Rows for the next cycle, or noise."""
        for name, shape in self.shapes.items():
            row = random_fields(self.rng, shape) if rows is None else rows[name]
            getattr(self.dut, name).value = pack(shape, row)

    async def forget(self, qp: int) -> None:
        dut = self.dut
        ring = random_fields(self.rng, RING)
        dut.qp.value, dut.ring.value = qp, pack(RING, ring)
        dut.restart.value = 1
        await self.cycle()
        dut.restart.value, dut.forget.value = 0, 1
        await self.cycle()
        dut.forget.value = 0
        self.rings[qp], self.counts[qp] = ring, {"produced": 0, "fetched": 0}
        await self.cycle()


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_what_is_found(dut):
    pattern = parameter("PATTERN")
    rng = seeded_random(pattern)
    layout, visits = found_layout(memory()), visit_layout(memory())
    sinks = {name: StreamSink(dut, name, layout, rng=rng, pattern=pattern) for name in WAYS}
    for name in WAYS:
        StreamMonitor(dut, name, keep=False)
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    some = {0, bench.qps - 1, *rng.choices(range(bench.qps), k=6)}
    for qp in some:
        await bench.forget(qp)
    ways = dict.fromkeys((*Visit, "failed", "popped", "unpopped", "counted"), 0)
    for _ in range(VISITS):
        qp = rng.choice(sorted(some))
        if rng.random() < 0.05:
            await bench.forget(qp)
        visit = random_fields(rng, visits, qp=qp, copied=rng.randrange(3))
        kind = Visit(visit["kind"])
        rows = {name: random_fields(rng, shape) for name, shape in bench.shapes.items()}
        # Pops of each cycle from the one before the visit on
        other = (qp + 1) % bench.qps
        chance = rng.choice([0, 0.3])
        pops = [qp if rng.random() < chance else rng.choice([other, None]) for _ in range(4)]
        dut.qp.value = qp
        bench.drive(None)
        await bench.cycle(pops[0])
        dut.visit__valid.value, dut.visit__payload.value = 1, pack(visits, visit)
        counts = rng.random() < 0.5
        units = rng.randrange(RUN + 1)
        cycles = 0
        while True:
            bench.drive(rows if cycles == 1 else None)
            # Its counts are written while it stands.
            dut.count.value, dut.units.value = counts and cycles >= 3, units
            await bench.cycle(pops[cycles + 1] if cycles < 3 else None)
            valid = [name for name in WAYS if getattr(dut, f"{name}__valid").value]
            assert bool(valid) == (cycles >= 3)
            if dut.visit__ready.value:
                break
            cycles += 1
        popped = bool(dut.popped_since.value)
        assert popped == (qp in pops)
        dut.visit__valid.value = dut.count.value = dut.units.value = 0
        dut.visit__payload.value = rng.getrandbits(len(dut.visit__payload))
        await bench.cycle()
        way = "idle" if kind is Visit.RESCUE else "found"
        if kind is Visit.FETCH and rows["arrived"]["failed"]:
            way = "failed"
        taken = {name: sink.take_all() for name, sink in sinks.items()}
        assert [name for name in WAYS if taken[name]] == [way]
        (found,) = taken[way]
        ring, count = bench.rings[qp], bench.counts[qp]
        oldest = rows["popped"]["number"]
        last = visit["claimed"] if kind is Visit.DOORBELL else count["produced"]
        again = kind in (Visit.COPY, Visit.RESCUE)
        number = (oldest + visit["copied"]) % MOD if again else count["fetched"]
        on_chip = 1 << COUNT_BITS
        expected = {
            "qp": qp,
            "kind": kind.value,
            "ring": ring,
            "home": rows["home"],
            "popped": rows["popped"],
            "failed": rows["arrived"]["failed"],
            "told": rows["arrived"]["told"],
            "number": number,
            "slot": number % (1 << ring["log2"]),
            "posted": last,
            "ahead": (last - count["fetched"]) % MOD,
            "known": (count["produced"] - oldest) % MOD,
            "claim": (last - oldest) % MOD,
            "used": (count["fetched"] - oldest) % on_chip,
            "on_chip": (rows["arrived"]["count"] - oldest) % on_chip,
        }
        wrong = {name: (found[name], expected[name]) for name in found}
        assert not {name: pair for name, pair in wrong.items() if pair[0] != pair[1]}
        if counts:
            bench.counts[qp] = {"produced": last, "fetched": (number + units) % MOD}
            ways["counted"] += 1
        ways[kind] += 1
        ways["failed"] += way == "failed"
        ways["popped" if popped else "unpopped"] += 1
        for _ in range(rng.randrange(3)):
            await bench.cycle()
    assert min(ways.values()) > 10, ways
