"""Reads of rings leave packed, in order: as a ring in memory has the octets."""

from collections import deque
from random import Random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.tcp.ring_gather import RingGather, ring_beat, ring_read
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter
from tests.support.verdicts import Verdicts, each_check, simulate
from tests.tcp.read_memory import Memory, octet_at

PATTERNS = ("always", "random", "bursty")
READS, TAG_BITS = 8, 6
MOST = (1 << 16) - 1
"""Octets of the longest read."""

COMMAND_AFTER, BEAT_AFTER = 1, 2


class Bench:
    """Reads, and the beats that have to leave."""

    def __init__(self, dut: Any, rng: Random, pattern: str) -> None:
        self.dut, self.rng = dut, rng
        options: dict[str, Any] = {"rng": rng, "pattern": pattern}
        self.memory = Memory(dut, rng, pattern)
        self.reads = StreamSource(dut, "i", ring_read(TAG_BITS), **options)
        self.beats = StreamSink(dut, "o", ring_beat(TAG_BITS), **options)
        for name in ("o", "read__command"):
            StreamMonitor(dut, name, keep=False)
        self.expected: deque[tuple[bytes, int, int]] = deque()
        self.commands: list[tuple[int, int]] = []

    def read(self, begin: int, octets: int, size: int = 1 << 17, inline: int = 0) -> None:
        """One of a ring that is a `size` of 2 to some power, from octet `begin` of it on."""
        rng = self.rng
        ring = rng.randrange(1 << 47) & -size
        wrapped = max(0, begin + octets - size)
        fields = {"address": ring + begin, "octets": octets, "wrapped": wrapped, "ring": ring}
        tag = rng.randrange(1 << TAG_BITS)
        self.reads.put({**fields, "inline": inline, "tag": tag})
        if inline:
            self.expected.append((bytes(octets), 0, tag))
            return
        found = bytes(octet_at(ring + (begin + each) % size) for each in range(octets))
        parts = [(ring + begin, octets - wrapped), *([(ring, wrapped)] if wrapped else [])]
        self.commands += parts
        touched = {
            word for address, count in parts for word in range(address & ~7, address + count, 8)
        }
        bad = rng.random() < 0.1
        if bad:
            self.memory.bad.add(rng.choice(sorted(touched)))
        self.expected.append((found, int(bad), tag))

    async def done(self) -> None:
        """All beats have left, each with as many octets as it should have."""
        while self.expected:
            octets, error, tag = self.expected.popleft()
            beats = await self.beats.get_until()
            data = b"".join(beat["data"].to_bytes(8, "little") for beat in beats)
            assert data[: len(octets)] == octets
            counts = [8] * (-(-len(octets) // 8) - 1)
            assert [beat["octets"] for beat in beats] == [*counts, len(octets) - 8 * len(counts)]
            assert [beat["error"] for beat in beats] == [*(0 for _ in counts), error]
            assert {beat["tag"] for beat in beats} == {tag}
        await ClockCycles(self.dut.clk, 20)
        assert not len(self.beats)
        assert self.memory.commands == self.commands


async def begin(dut: Any) -> Bench:
    pattern = parameter("PATTERN")
    bench = Bench(dut, seeded_random(pattern), pattern)
    await start_clock_and_reset(dut)
    return bench


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_every_lane_and_length(dut: Any) -> None:
    """Within the ring, and over its end at each octet."""
    bench = await begin(dut)
    for octets in range(1, 28):
        for lane in range(8):
            bench.read(64 + lane, octets)
        for after in range(octets):
            bench.read((1 << 17) - octets + after, octets)
        bench.read(3, octets, inline=1)
    await bench.done()


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_reads_anywhere(dut: Any) -> None:
    """Short and long ones, up to the end of the ring, past it, and anywhere; some are inline."""
    bench = await begin(dut)
    rng = bench.rng
    for _ in range(300):
        size = 1 << rng.randint(17, 24)
        octets = rng.choice([1, 2, 8, 9, rng.randint(1, 64), rng.randint(1, 1500)])
        close = [size - octets, size - octets + 1, size - 1, rng.randrange(size - octets)]
        bench.read(rng.choice(close), octets, size, int(rng.random() < 0.1))
    bench.read(5, MOST)
    bench.read((1 << 17) - 9, MOST)
    await bench.done()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_neighbour_that_waits_for_ever(dut: Any) -> None:
    """Commands go out as long as there is room for the reads; then reads wait, and none is lost."""
    bench = await begin(dut)
    bench.beats.paused = True
    for number in range(4 * READS):
        bench.read(8 * number, 64)
    await ClockCycles(dut.clk, 1000)
    assert READS <= len(bench.memory.commands) <= READS + 3
    words = bench.memory.words.sent
    await ClockCycles(dut.clk, 100)
    assert bench.memory.words.sent == words <= 3
    bench.beats.paused = False
    await bench.done()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_rate_and_latency(dut: Any) -> None:
    bench = await begin(dut)
    memory = bench.memory
    for end in (bench.reads, bench.beats, memory.sink, memory.words):
        end.set_pattern("always")
    for begins, octets, count, cost in ((0, 64, 20, 8), (3, 64, 20, 9), (5, 67, 20, 10)):
        memory.latency = 150
        for _ in range(count):
            bench.read(begins, octets)
        first: dict[str, int] = {}
        beats: list[int] = []
        cycle = 0
        while len(beats) < count * -(-octets // 8):
            await RisingEdge(dut.clk)
            cycle += 1
            for name in ("i", "read__command", "read__data"):
                if getattr(dut, f"{name}__valid").value:
                    first.setdefault(name, cycle)
            beats += [cycle] * int(dut.o__valid.value)
        assert first["read__command"] - first["i"] == COMMAND_AFTER
        assert beats[0] - first["read__data"] == BEAT_AFTER + (begins != 0)
        assert beats[-1] - beats[0] <= count * cost
        await bench.done()


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    return simulate(
        tmp_path_factory, RingGather(READS, TAG_BITS), __name__, request.param, PATTERNS
    )


@each_check(globals())
def test_ring_gather(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)
