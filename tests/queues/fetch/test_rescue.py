"""A lane is taken back when its owner's oldest units have moved, and nobody used it meanwhile."""

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.queues.fetch.rescue import FetchRescue
from stagecoach.gateware.queues.fetch.visit import Visit, found_layout
from stagecoach.sim.cosim.streams import pack, seeded_random, start_clock_and_reset, unpack
from tests.queues.fetch.bench import MEMORIES, both_sizes, config, memory, random_found
from tests.support.runner import run_cocotb

LANES_TO_TAKE = 400
PULSES = ("starves", "tick", "requested", "fetch", "ended", "pop__valid", "forget")
OTHERS = ("idle__valid", "qp", "lane_idle", "idle_lane", "idle_qp", "may_fetch", "copying")
LEVELS = ("fetch_lane", "ended_copy", "ended_failed", "pop__qp", "may_settle")
OUTPUTS = ("renew", "release", "settle", "count", "call__valid")


@both_sizes
def test_fetch_rescue(size):
    run_cocotb(FetchRescue(MEMORIES[size]), __name__, parameters={"SIZE": size})


class Bench:
    """What one lane goes through; every output pulse that nobody waits for is an error."""

    def __init__(self, dut, rng):
        self.dut, self.rng = dut, rng
        self.qps, self.lanes = config().qps, config().prefetch_lanes
        self.memory = memory()
        for name in (*PULSES, *OTHERS, *LEVELS):
            getattr(dut, name).value = 0
        dut.idle__payload.value = 0

    def put(self, **values: int) -> None:
        for name, value in values.items():
            getattr(self.dut, name).value = value

    async def cycle(self, *expected: str, **values: int) -> None:
        """One cycle with some inputs; pulses fall after it."""
        self.put(**values)
        await RisingEdge(self.dut.clk)
        found = [name for name in OUTPUTS if getattr(self.dut, name).value]
        assert found == [name for name in OUTPUTS if name in expected]
        self.put(**{name: 0 for name in values if name in PULSES})

    async def wait(self, most: int = 3) -> None:
        for _ in range(self.rng.randint(1, most)):
            await self.cycle()

    def is_due(self) -> str:
        dut = self.dut
        return ("copy" if dut.copies.value else "visit") if dut.due.value else "none"

    async def begin(self) -> None:
        """Some QP needs a lane; one is idle, and there was a tick."""
        self.lane, self.owner = self.rng.randrange(self.lanes), self.rng.randrange(self.qps)
        self.starving = self.rng.randrange(self.qps)
        self.put(lane_idle=0, idle_lane=self.lane, idle_qp=self.owner)
        # Not before a tick, and not if none is idle
        await self.cycle(starves=1, qp=self.starving)
        await self.cycle(lane_idle=1)
        assert not self.dut.hold.value
        await self.cycle(starves=1, qp=self.starving)
        await self.cycle()
        assert not self.dut.hold.value
        await self.cycle(tick=1)
        await self.cycle(lane_idle=0, starves=1)
        await self.cycle(lane_idle=1)
        assert not self.dut.hold.value and not self.dut.due.value
        # What happened before does not matter.
        await self.cycle(pop__valid=1, pop__qp=self.owner, fetch=1, fetch_lane=self.lane)
        await self.cycle(starves=1, qp=self.starving)
        # Another one does not change for whom it is; the tick is used up.
        await self.cycle(starves=1, qp=self.rng.randrange(self.qps))
        assert self.dut.hold.value and self.is_due() == "visit"

    async def visit(self, **fields) -> dict:
        """Offer the owner's visit; the cycle in which it comes."""
        found = random_found(self.rng, kind=Visit.RESCUE.value, qp=self.owner, **fields)
        self.put(idle__payload=pack(found_layout(self.memory), found), idle__valid=1)
        await self.cycle()
        assert not self.dut.idle__ready.value
        return found

    async def over(self) -> None:
        self.put(idle__valid=0, idle__payload=self.rng.getrandbits(len(self.dut.idle__payload)))
        await self.cycle()

    async def stays(self) -> None:
        """The lane stays, and the next one needs a tick."""
        assert self.dut.idle__ready.value
        await self.over()
        assert not self.dut.hold.value and not self.dut.due.value

    async def first(self, keep: int, in_lane: int) -> bool:
        """The first visit; whether the lane may go on to be taken back."""
        rng = self.rng
        own_units = self.memory.own_units
        used = keep if keep < own_units else rng.randint(own_units, 34)
        on_chip = used if rng.random() < 0.9 else (used + rng.choice([1, -1])) % 64
        found = await self.visit(
            used=used,
            on_chip=on_chip,
            failed=int(rng.random() < 0.05),
            home={"in_lane": int(rng.random() < 0.95), "lane": self.lane},
            popped={"number": rng.getrandbits(16), "in_lane": in_lane},
        )
        if found["failed"] or not found["home"]["in_lane"] or on_chip != used:
            await self.cycle("renew")
            await self.stays()
            return False
        await self.cycle()
        assert self.dut.idle__ready.value
        await self.over()
        return True

    async def disturb(self) -> bool:
        """Something happens at the same time; whether the lane must not be taken back for it."""
        rng = self.rng
        what, near = rng.choice(["nothing"] * 4 + ["pop", "fetch", "end"]), rng.getrandbits(1)
        if what == "pop":
            qp = self.owner if near else (self.owner + 1) % self.qps
            await self.cycle(pop__valid=1, pop__qp=qp)
        elif what == "fetch":
            lane = self.lane if near else (self.lane + 1) % self.lanes
            await self.cycle(fetch=1, fetch_lane=lane, requested=1, copying=0)
        elif what == "end":
            # Of another read
            await self.cycle(ended=1, ended_copy=0, ended_failed=1)
            near = False
        return what != "nothing" and bool(near)


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_lanes_are_taken_back(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    ways = dict.fromkeys(("unfit", "forgotten", "disturbed", "taken"), 0)
    for _ in range(LANES_TO_TAKE):
        await bench.begin()
        if rng.random() < 0.1:
            await bench.cycle(forget=1)
            await bench.cycle()
            assert not dut.hold.value and not dut.due.value
            ways["forgotten"] += 1
            continue
        # Of the units to keep, those outside of the lane are the oldest ones.
        own_units = bench.memory.own_units
        keep = rng.randrange(own_units + 1)
        outside = rng.randint(0, keep)
        in_lane = (1 << own_units) - (1 << outside)
        if not await bench.first(keep, in_lane):
            ways["unfit"] += 1
            continue
        disturbed = await bench.disturb()
        on_way = 0
        for copied in range(outside, keep):
            dut.may_fetch.value = 0
            await bench.cycle()
            await bench.cycle()
            assert bench.is_due() == "none"
            dut.may_fetch.value = 1
            await bench.cycle()
            assert bench.is_due() == "copy" and int(dut.copied.value) == copied
            # A read of another kind is none of its own.
            await bench.cycle(requested=1, copying=0)
            await bench.cycle(requested=1, copying=1)
            on_way += 1
            disturbed |= await bench.disturb()
        await bench.cycle()
        assert int(dut.copied.value) == keep
        while on_way:
            assert bench.is_due() == "none" and dut.hold.value
            await bench.cycle(ended=1, ended_copy=0)
            await bench.wait()
            failed = rng.random() < 0.1
            await bench.cycle(ended=1, ended_copy=1, ended_failed=int(failed))
            disturbed |= failed
            on_way -= 1
            await bench.cycle()
        assert bench.is_due() == "visit"
        disturbed |= await bench.disturb()
        dut.may_settle.value = 0
        found = await bench.visit()
        if disturbed:
            await bench.cycle("renew", may_settle=1)
            await bench.stays()
            ways["disturbed"] += 1
            continue
        for _ in range(rng.randrange(3)):
            await bench.cycle()
            assert not dut.idle__ready.value
        await bench.cycle("settle", "release", may_settle=1)
        settled = unpack(bench.memory.popped, dut.settled.value)
        assert settled == {"number": found["popped"]["number"], "in_lane": 0}
        await bench.cycle("count")
        assert not dut.settled.value and not dut.idle__ready.value
        await bench.cycle("call__valid")
        assert int(dut.call__qp.value) == bench.starving
        await bench.stays()
        ways["taken"] += 1
    assert min(ways.values()) > 10, ways
