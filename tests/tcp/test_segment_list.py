"""Segments keep their boundaries; FPDUs that wait share segments as those of the reference TCP."""

from collections import deque
from random import Random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles

from stagecoach.gateware.tcp.segment_list import (
    PLACES,
    SEGMENTS,
    SegmentList,
    SegmentOperation,
)
from stagecoach.sim.cosim.streams import pack, seeded_random, start_clock_and_reset, unpack
from stagecoach.sim.model.tcp.segment import Flags
from stagecoach.sim.model.tcp.sender import Sender
from stagecoach.sim.model.tcp.state import Settings
from tests.support.runner import parameter, run_cocotb

SPACE = 1 << 32
SMALLEST, LARGEST = 2, 256
LONGEST = (1 << 14) - 1
CYCLES = 4
Operation = SegmentOperation


class Connection:
    """What a connection has sent, as positions from its first octet, and its row of the block."""

    def __init__(self, number: int, base: int, place: int) -> None:
        self.connection, self.base = number, base
        self.segments: deque[list[int]] = deque()  # start, end, whether it consists of FPDUs
        self.una = self.next = self.max = self.end = 0
        self.state: Any = dict.fromkeys(("first", "current", "head"), place)
        self.state |= dict.fromkeys(("first_start", "current_start"), base)

    def number(self, position: int) -> int:
        return (self.base + position) % SPACE

    @property
    def free(self) -> int:
        return PLACES - 1 - len(self.segments)


class Bench:
    """The block, and connections that are held against what it says."""

    def __init__(self, dut: Any, rng: Random) -> None:
        self.dut, self.rng = dut, rng
        dut.take.value = 0
        self.connections: dict[int, Connection] = {}

    def begin(self, connection: int) -> Connection:
        base = self.rng.choice([0, SPACE - 1, SPACE - 30_000, self.rng.getrandbits(32)])
        mine = Connection(connection, base, self.rng.randrange(PLACES))
        self.connections[connection] = mine
        return mine

    async def step(
        self,
        mine: Connection,
        operation: Operation,
        position: int,
        most: int = 1,
        *,
        octets: int = 1,
        whole: bool = False,
    ) -> None:
        """An operation, and its outputs; what it is not told to take changes nothing."""
        dut, rng = self.dut, self.rng
        dut.operation.value, dut.connection.value = operation.value, mine.connection
        dut.number.value, dut.end.value = mine.number(position), mine.number(mine.end)
        dut.octets.value, dut.whole.value, dut.most.value = octets, whole, most
        dut.segments.value = pack(SEGMENTS, mine.state)
        # Good in the fourth cycle, at whose end it is looked at.
        await ClockCycles(dut.clk, CYCLES - 1)
        dut.take.value = 1
        await ClockCycles(dut.clk, 1)
        self.after = unpack(SEGMENTS, int(dut.segments_after.value))
        self.sent, self.more = int(dut.sent.value), bool(dut.more.value)
        self.free = int(dut.free.value)
        dut.take.value = 0
        if rng.random() < 0.1:
            dut.operation.value, dut.octets.value = Operation.APPEND.value, rng.getrandbits(14)
            await ClockCycles(dut.clk, rng.randrange(1, 6))

    async def append(self, mine: Connection, octets: int, emss: int, *, whole: bool = True) -> None:
        await self.step(mine, Operation.APPEND, mine.max, emss, octets=octets, whole=whole)
        last = mine.segments[-1] if mine.segments else [0, 0, 0]
        untouched = bool(mine.segments) and mine.max <= last[0]
        if whole and last[2] and untouched and last[1] - last[0] + octets <= emss:
            last[1] += octets
        else:
            mine.segments.append([mine.end, mine.end + octets, int(whole)])
        mine.end += octets
        mine.state = self.after
        assert self.free == mine.free

    async def acknowledge(self, mine: Connection, position: int) -> int:
        """SND.UNA moves; how many operations that took."""
        mine.una = position
        mine.max = max(mine.max, position)
        freed = 0
        while mine.segments and mine.segments[0][1] <= position:
            mine.segments.popleft()
            freed += 1
        start = mine.segments[0][0] if mine.segments else mine.end
        # One more if it is known too late that the third segment is not acknowledged whole.
        partial = freed and freed % 2 == 0 and bool(mine.segments) and start < position
        expected = max(freed + 1, 2) // 2 + int(partial)
        for number in range(expected):
            await self.step(mine, Operation.FREE, position)
            mine.state = self.after
            assert self.more == (number < expected - 1)
        mine.next = max(mine.next, position)
        assert self.free == mine.free
        assert self.after["first_start"] == mine.number(start)
        return expected

    def segment(self, mine: Connection, position: int) -> list[int] | None:
        return next((each for each in mine.segments if each[0] <= position < each[1]), None)

    async def send(self, mine: Connection, most: int, *, take: bool = True) -> int:
        """What follows SND.NXT; if it is not taken, it is left there."""
        await self.step(mine, Operation.SEND, mine.next, most)
        found = self.segment(mine, mine.next)
        assert self.sent == (min(found[1] - mine.next, most) if found else 0)
        if take:
            mine.state = self.after
            mine.next += self.sent
            mine.max = max(mine.max, mine.next)
            self.check_current(mine)
        return self.sent

    async def resend(self, mine: Connection, emss: int, *, take: bool) -> None:
        """The first segment again, and SND.NXT with it if that is taken."""
        most = min(emss, mine.max - mine.una)
        await self.step(mine, Operation.RESEND, mine.una, most)
        found = self.segment(mine, mine.una)
        assert found
        assert self.sent == min(found[1] - mine.una, most)
        if take:
            mine.state = self.after
            mine.next = mine.una + self.sent
            self.check_current(mine)

    def check_current(self, mine: Connection) -> None:
        found = self.segment(mine, mine.next)
        assert self.after["current_start"] == mine.number(found[0] if found else mine.end)
        place = mine.segments.index(found) if found else len(mine.segments)
        assert (self.after["current"] - self.after["first"]) % PLACES == place
        assert (self.after["head"] - self.after["first"]) % PLACES == len(mine.segments)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_random_events(dut: Any) -> None:
    """Of a few connections by turns; ACKs of anything, other segment sizes, losses."""
    rng = seeded_random(parameter("CONNECTIONS"))
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    numbers = [0, 1, int(parameter("CONNECTIONS")) - 1]
    for turn in range(int(parameter("ROUNDS"))):
        for number in numbers:
            bench.begin(number)
        eager = (0.2, 0.35, 0.8)[turn % 3]  # to append
        emss = rng.choice([100, 1460, 8960])
        for _ in range(300):
            mine = bench.connections[rng.choice(numbers)]
            kind = rng.random()
            if rng.random() < 0.02:
                emss = rng.choice([100, 536, 1460, LONGEST])
            if rng.random() < eager and mine.free:
                small, large = rng.randint(1, 40), rng.choice([emss, emss, LONGEST])
                octets = rng.choice([small, small, large, rng.randint(1, emss)])
                await bench.append(mine, octets, emss, whole=rng.random() < 0.9)
            elif kind < 0.5:
                most = rng.choice([emss, emss, rng.randint(1, emss)])
                await bench.send(mine, most, take=rng.random() < 0.9)
            elif mine.una == mine.max:
                continue
            elif kind < 0.8:
                edges = [each[1] for each in mine.segments if each[1] <= mine.max]
                near = [*edges[:3], *edges[-1:], mine.max]
                anywhere = rng.randint(mine.una + 1, mine.max)
                await bench.acknowledge(mine, rng.choice([*near, anywhere]))
            else:
                await bench.resend(mine, emss, take=rng.random() < 0.5)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_two_segments_are_freed_by_an_operation(dut: Any) -> None:
    bench = Bench(dut, seeded_random())
    await start_clock_and_reset(dut)
    mine = bench.begin(1)
    for segments, octets in ((1, 0), (2, 0), (3, 0), (PLACES - 1, 0), (2, 1), (3, 1)):
        for _ in range(segments + 1):
            if mine.free:
                await bench.append(mine, LONGEST, LONGEST)
        while await bench.send(mine, LONGEST):
            pass
        # Two, and one more if that ends inside a third one.
        operations = max(1, -(-segments // 2)) + (octets > 0 and segments == 2)
        assert await bench.acknowledge(mine, mine.una + segments * LONGEST + octets) == operations
        await bench.acknowledge(mine, mine.end)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_what_waits_is_packed_as_the_reference_packs_it(dut: Any) -> None:
    """FPDUs that wait for the window, and go when it opens: the same segments."""
    rng = seeded_random(parameter("CONNECTIONS"))
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    for smss in (100, 1460):
        emitted: list[tuple[int, int]] = []

        def emit(
            _now: int, position: int, _flags: Flags, payload: bytes, into: Any = emitted
        ) -> None:
            into.append((position, len(payload)))

        reference = Sender(Settings(mss=smss), emit)
        reference.next = reference.max = 0
        reference.smss = smss
        reference.establish(0, None, 0)
        mine = bench.begin(0)
        for _ in range(20):
            for _ in range(rng.randint(1, 12)):
                octets = rng.choice([8, 24, 96, rng.randint(1, smss // 4) * 4])
                octets = min(octets, smss)
                reference.queue(bytes(octets), whole=True)
                await bench.append(mine, octets, smss)
            reference.window = reference.congestion.cwnd = 1 << 20
            reference.push(0)
            reference.window = 0
            sent = []
            while octets := await bench.send(mine, smss):
                sent.append((mine.next - octets, octets))
            assert sent == emitted
            emitted.clear()
            await bench.acknowledge(mine, mine.end)


@pytest.mark.parametrize(("connections", "rounds"), [(LARGEST, 6), (SMALLEST, 1)])
def test_segment_list(connections: int, rounds: int) -> None:
    run_cocotb(
        SegmentList(connections),
        __name__,
        parameters={"CONNECTIONS": str(connections), "ROUNDS": str(rounds)},
    )


@pytest.mark.parametrize("connections", [1, 257])
def test_sizes_that_are_not_allowed(connections: int) -> None:
    with pytest.raises(ValueError, match="2 to 256"):
        SegmentList(connections)
