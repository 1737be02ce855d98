"""Ranges out of order are those of the reference TCP, which keeps the octets themselves."""

from collections.abc import Iterator
from random import Random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.tcp.ranges import RANGES, Ranges, no_ranges, ranges_layout
from stagecoach.sim.cosim.streams import pack, seeded_random, start_clock_and_reset, unpack
from stagecoach.sim.model.tcp.reassembly import Reassembly
from tests.support.runner import parameter, run_cocotb

SPACE = 1 << 32
COUNTS = (1, RANGES)


@pytest.mark.requirement("TCP-SHLD-31", "TCP-3.4-01")
@pytest.mark.parametrize("count", COUNTS)
def test_ranges(count: int) -> None:
    run_cocotb(Ranges(count=count), __name__, parameters={"COUNT": str(count)})


class Bench:
    """The block, and what a connection knows: RCV.NXT and ranges as the block left them."""

    def __init__(self, dut: Any, base: int) -> None:
        self.dut = dut
        self.count = int(parameter("COUNT"))
        self.layout = ranges_layout(count=self.count)
        self.base = base
        self.following = base
        self.ranges: Any = no_ranges(self.count)

    async def add(self, position: int, octets: int, adds: int = 1) -> bool:
        """Add octets at a position of the stream; whether they were taken."""
        dut = self.dut
        dut.first.value = (self.base + position) % SPACE
        dut.end.value = (self.base + position + octets) % SPACE
        dut.following.value = self.following
        dut.ranges.value = pack(self.layout, self.ranges)
        dut.adds.value = 1 - adds
        await RisingEdge(dut.clk)
        dut.adds.value = adds
        await ClockCycles(dut.clk, 2)
        early = int(dut.following_after.value), int(dut.taken.value)
        await RisingEdge(dut.clk)
        following, taken = int(dut.following_after.value), int(dut.taken.value)
        assert early == (following, taken)
        self.following = following
        self.ranges = unpack(self.layout, int(dut.ranges_after.value))
        return bool(taken)

    @property
    def position(self) -> int:
        """RCV.NXT as a position."""
        return (self.following - self.base) % SPACE

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """The ranges as positions, the newest first."""
        places = self.ranges["order"][: self.ranges["used"]]
        used = [self.ranges["list"][place] for place in places]
        return [
            ((each["first"] - self.base) % SPACE, (each["end"] - self.base) % SPACE)
            for each in used
        ]


def segments(rng: Random, model: Reassembly, rounds: int) -> Iterator[tuple[int, int]]:
    """Position and octets: at edges of what is known, one beside them, and anywhere."""
    for _ in range(rounds):
        edges = [model.next, *(edge for block in model.blocks() for edge in block)]
        near = rng.choice(edges) + rng.randint(-2, 2)
        anywhere = model.next + rng.randint(-20, 150)
        position = max(rng.choice([near, anywhere]), 0)
        other = rng.choice(edges) + rng.randint(-1, 1)
        octets = other - position if rng.random() < 0.4 else rng.randint(1, 30)
        if octets > 0:
            yield position, octets


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_random_segments_leave_what_the_reference_keeps(dut: Any) -> None:
    rng = seeded_random(parameter("COUNT"))
    await start_clock_and_reset(dut)
    refused = joined = 0
    for base in (0, SPACE - 100, rng.randrange(SPACE)):
        bench, model = Bench(dut, base), Reassembly(int(parameter("COUNT")))
        for position, octets in segments(rng, model, 1500):
            before = model.next, model.blocks()
            if rng.random() < 0.1:
                assert not await bench.add(position, octets, adds=0)
                assert (bench.position, bench.blocks) == before
            model.take(position, bytes(octets))
            taken = await bench.add(position, octets)
            assert bench.position == model.next, (position, octets)
            assert bench.blocks == model.blocks(), (position, octets)
            # What lies inside a range is taken and changes nothing but the order.
            changed = (model.next, model.blocks()) != before
            assert taken or not changed
            refused += not taken and position + octets > model.next
            joined += len(model.blocks()) < len(before[1])
    assert refused > 20
    assert joined > 20


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_the_newest_range_stands_first(dut: Any) -> None:
    """RFC 2018, 4: the first block holds the segment that came last, also one that came again."""
    await start_clock_and_reset(dut)
    bench = Bench(dut, SPACE - 15)
    places = [10 * (number + 1) for number in range(bench.count)]
    for number, position in enumerate(places):
        assert await bench.add(position, 5)
        expected = [(each, each + 5) for each in reversed(places[: number + 1])]
        assert bench.blocks == expected
    assert not await bench.add(1000, 5)
    assert bench.blocks == [(each, each + 5) for each in reversed(places)]
    assert await bench.add(places[0] + 1, 2)
    assert bench.blocks[0] == (10, 15)
    assert await bench.add(0, 10)
    assert bench.position == 15
    assert (10, 15) not in bench.blocks
