"""The host is told of entries that it has not consumed, once for each time that it arms a ring."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import cocotb
import pytest
from amaranth.lib import data
from cocotb.triggers import RisingEdge, Timer

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.queues.ring_notifier import RingNotifier
from stagecoach.sim.cosim.signals import cycles
from stagecoach.sim.cosim.streams import (
    CLOCK_PERIOD_NS,
    StreamSource,
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
)
from tests.support.runner import parameter, run_cocotb

CYCLES = 5
"""For an entry, and for a doorbell that arms; one more for each cycle with `busy`."""

TO_ANSWER = 3
NUMBERS = 1 << 16


@pytest.mark.parametrize(("cqs", "pattern"), [(4, "random"), (2, "always"), (256, "slow")])
def test_ring_notifier(cqs: int, pattern: str) -> None:
    parameters = {"CQS": str(cqs), "PATTERN": pattern}
    run_cocotb(RingNotifier(RnicConfig(cqs=cqs)), __name__, parameters=parameters)


@dataclass
class Ring:
    """What a ring is to the host; all numbers count for ever."""

    visible: int = 0
    solicited: int = 0  # entries up to the last solicited one
    consumed: int = 0
    armed: set[bool] = field(default_factory=set)  # with `solicited`, or without

    def _wake(self, newest: int) -> bool:
        wakes = newest > self.consumed
        if wakes:
            self.armed.clear()
        return wakes

    def entry(self, solicited: bool) -> bool:
        """Whether the host is told of an entry that came."""
        self.visible += 1
        if solicited:
            self.solicited = self.visible
        return (False in self.armed or (solicited and True in self.armed)) and self._wake(
            self.visible
        )

    def arm(self, solicited: bool) -> bool:
        """Whether the host is told at once."""
        if self._wake(self.solicited if solicited else self.visible):
            return True
        self.armed.add(solicited)
        return False


class Bench:
    """Streams of doorbells and entries, the table of what is consumed, and the model."""

    def __init__(self, dut: Any) -> None:
        self.dut, self.rng = dut, seeded_random(parameter("CQS"), parameter("PATTERN"))
        self.cqs = int(parameter("CQS"))
        self.doorbell = Layouts(RnicConfig(cqs=self.cqs)).cq_doorbell
        self.entry = data.StructLayout({"ring": range(self.cqs + 1), "solicited": 1})
        options: Any = {"rng": self.rng, "pattern": parameter("PATTERN")}
        self.doorbells = StreamSource(dut, "doorbell", self.doorbell, **options)
        self.entries = StreamSource(dut, "done", self.entry, **options)
        self.rings = [Ring() for _ in range(self.cqs + 1)]
        self.chosen = [0, self.cqs, self.cqs // 2]  # few, so that they meet
        self.consumers: deque[int] = deque()  # of the doorbells that were not taken
        for name in ("hold", "busy", "wipe", "wipe_ring", "query_ring", "consumed"):
            getattr(dut, name).value = 0
        self.told = 0

    def ring_doorbell(self) -> None:
        """The host consumes some entries; it may see them before the device has the response."""
        rng, ring = self.rng, self.rng.choice(self.chosen)
        known = self.rings[ring]
        consumer = max(known.consumed, known.visible + rng.choice([-3, -1, 0, 0, 0, 1]))
        arm, solicited = rng.random() < 0.7, rng.getrandbits(1)
        self.consumers.append(consumer)
        item = {"cq": ring, "consumer": consumer % NUMBERS, "arm": arm, "solicited": solicited}
        self.doorbells.put(item)

    async def watch(self) -> None:
        """Answers lookups, and checks each interrupt in its cycle."""
        dut, rng = self.dut, self.rng
        left = 0  # cycles until what was taken has ended
        ring, wakes, busy = 0, False, False
        while True:
            await RisingEdge(dut.clk)
            assert bool(dut.looks.value) == (left == CYCLES and not busy)
            if left and not (left == CYCLES and busy):
                left -= 1
            due = wakes and not left
            assert bool(dut.completion_interrupt.value) == (due and ring != self.cqs)
            assert bool(dut.event_interrupt.value) == (due and ring == self.cqs)
            self.told += due
            wakes &= not due
            doorbell = bool(dut.doorbell__valid.value and dut.doorbell__ready.value)
            entry = bool(dut.done__valid.value and dut.done__ready.value)
            assert not (doorbell or entry) or not left
            assert not entry or not dut.doorbell__valid.value or dut.hold.value
            assert not doorbell or not dut.hold.value
            consumed = rng.getrandbits(16)
            if dut.looks.value:
                assert int(dut.ring.value) == ring
                consumed = self.rings[ring].consumed % NUMBERS
            if doorbell:
                item = unpack(self.doorbell, int(dut.doorbell__payload.value))
                ring = item["cq"]
                self.rings[ring].consumed = self.consumers.popleft()
                if item["arm"]:
                    wakes, left = self.rings[ring].arm(bool(item["solicited"])), CYCLES
            if entry:
                item = unpack(self.entry, int(dut.done__payload.value))
                ring = item["ring"]
                wakes, left = self.rings[ring].entry(bool(item["solicited"])), CYCLES
            busy = rng.random() < 0.2
            dut.busy.value, dut.consumed.value = int(busy), consumed

    async def rest(self) -> None:
        """Waits until everything was taken and has ended; looks at all rings that count."""
        await self.doorbells.wait_idle()
        await self.entries.wait_idle()
        await cycles(self.dut, 30)
        assert self.dut.settled.value
        for ring in self.chosen:
            self.dut.query_ring.value = ring
            await cycles(self.dut, 1 + TO_ANSWER)
            assert int(self.dut.query_answered.value) == self.rings[ring].visible % NUMBERS

    async def run(self, turns: int) -> None:
        """Entries and doorbells at random, then rest."""
        rng = self.rng
        for _ in range(turns):
            if rng.random() < 0.5:
                self.ring_doorbell()
            for _ in range(rng.choice([0, 0, 1, 1, 3])):
                self.entries.put(
                    {"ring": rng.choice(self.chosen), "solicited": int(rng.random() < 0.3)}
                )
            await cycles(self.dut, rng.choice([0, 5, 20]))
        await self.rest()

    async def wipe(self, ring: int) -> None:
        """Forgets a ring when nothing is under way."""
        dut = self.dut
        dut.hold.value = 1
        await cycles(dut, 20)
        assert dut.settled.value
        dut.wipe.value, dut.wipe_ring.value = 1, ring
        await RisingEdge(dut.clk)
        self.rings[ring] = Ring()
        dut.wipe.value = dut.hold.value = 0

    async def start(self) -> None:
        """Reset; what a memory holds is not reset with the rest."""
        await start_clock_and_reset(self.dut)
        cocotb.start_soon(self.watch())
        for ring in self.chosen:
            await self.wipe(ring)


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_the_host_is_told_of_what_it_has_not_consumed(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    await bench.run(250)
    assert bench.told > 40


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_a_wiped_ring_begins_anew(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    for turn in range(9):
        await bench.run(20)
        dut.hold.value = 1  # a doorbell of another ring waits meanwhile
        ring, other = bench.chosen[turn % 3], bench.chosen[(turn + 1) % 3]
        consumer = bench.rings[other].consumed
        bench.consumers.append(consumer)
        bench.doorbells.put({"cq": other, "consumer": consumer % NUMBERS, "arm": 1, "solicited": 0})
        await bench.wipe(ring)
        await bench.rest()


@cocotb.test(timeout_time=40, timeout_unit="ms")
async def check_numbers_wrap(dut: Any) -> None:
    """The rings begin with many entries."""
    if parameter("PATTERN") != "always":
        return
    for name in ("doorbell__valid", "hold", "busy", "wipe", "done__valid"):
        getattr(dut, name).value = 0
    await start_clock_and_reset(dut)
    cqs = int(parameter("CQS"))
    entry = data.StructLayout({"ring": range(cqs + 1), "solicited": 1})
    dut.hold.value, dut.wipe.value = 1, 1
    for ring in range(cqs + 1):
        dut.wipe_ring.value = ring
        await RisingEdge(dut.clk)
    dut.hold.value = dut.wipe.value = 0
    dut.done__payload.value, dut.done__valid.value = pack(entry, ring=cqs, solicited=1), 1
    await Timer(CYCLES * (NUMBERS - 40) * CLOCK_PERIOD_NS, unit="ns")
    await RisingEdge(dut.clk)
    dut.done__valid.value = 0
    await cycles(dut, 20)
    bench = Bench(dut)
    bench.dut.query_ring.value = cqs
    await cycles(dut, 1 + TO_ANSWER)
    visible = int(dut.query_answered.value)
    assert NUMBERS - 50 < visible < NUMBERS - 30
    bench.rings[cqs] = Ring(visible, visible, visible)
    cocotb.start_soon(bench.watch())
    await bench.run(250)
    assert bench.rings[cqs].visible > NUMBERS > visible
