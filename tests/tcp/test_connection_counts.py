"""Segments are counted by connection and kind, however those of both directions meet."""

from collections import Counter
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.tcp.connection_counts import ConnectionCounts, Count
from stagecoach.sim.cosim.signals import cycles
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.support.runner import parameter, run_cocotb

SPACE = 1 << 32
GAP = 8
"""Cycles between two segments of a direction, at least."""

COUNTED = 6
SEGMENTS = 800


class Bench:
    """Counts in Python what the block counts, from what it had in the beginning on."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.connections = int(parameter("CONNECTIONS"))
        self.rng = seeded_random(self.connections)
        self.seen: Counter[tuple[int, Count]] = Counter()
        self.before: dict[tuple[int, Count], int] = {}

    async def begin(self) -> None:
        for name in ("received", "sent", "connection", "count"):
            getattr(self.dut, name).value = 0
        await start_clock_and_reset(self.dut)
        self.before = await self.counts()

    async def counts(self) -> dict[tuple[int, Count], int]:
        return {
            (connection, count): await self.count(connection, count)
            for connection in range(self.connections)
            for count in Count
        }

    async def count(self, connection: int, count: Count) -> int:
        """As a reader gets it: two cycles after it asked, or three."""
        self.dut.connection.value, self.dut.count.value = connection, count.value
        await RisingEdge(self.dut.clk)
        for _ in range(2):
            await RisingEdge(self.dut.clk)
            if self.dut.shown.value:
                return int(self.dut.word.value)
        raise AssertionError("not shown in two cycles")

    async def segments(self, number: int, gaps: tuple[int, ...], few: bool) -> None:
        """Of both directions, each with gaps of its own."""
        dut, rng = self.dut, self.rng
        waits = [0, 0]
        while number:
            comes = [wait == 0 for wait in waits]
            most = 2 if few else self.connections
            whose = [rng.randrange(most) for _ in waits]
            again = rng.getrandbits(1)
            dut.received.value, dut.sent.value = comes
            dut.received_connection.value, dut.sent_connection.value = whose
            dut.again.value = again
            if comes[0]:
                self.seen[whose[0], Count.RECEIVED] += 1
            if comes[1]:
                self.seen[whose[1], Count.AGAIN if again else Count.SENT] += 1
            number -= min(number, sum(comes))
            waits = [
                rng.choice(gaps) - 1 if came else wait - 1
                for came, wait in zip(comes, waits, strict=True)
            ]
            await RisingEdge(dut.clk)
        dut.received.value = dut.sent.value = 0
        await cycles(dut, COUNTED)

    async def compare(self) -> None:
        found = await self.counts()
        for key, value in found.items():
            assert (value - self.before[key]) % SPACE == self.seen[key], key


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_segments_are_counted(dut: Any) -> None:
    """As fast as they come, of a few connections or of all, and with pauses."""
    bench = Bench(dut)
    await bench.begin()
    for gaps in ((GAP,), (GAP, GAP + 1), (GAP, 11, 40)):
        for few in (False, True):
            await bench.segments(SEGMENTS, gaps, few)
    await bench.compare()


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_counts_are_shown_while_others_come(dut: Any) -> None:
    """A count that is asked for is never that of another connection or kind."""
    bench = Bench(dut)
    await bench.begin()
    await bench.segments(SEGMENTS, (GAP,), few=False)
    quiet = bench.connections - 1
    own = await bench.counts()
    busy = cocotb.start_soon(noise(bench, quiet))
    while not busy.done():
        count = bench.rng.choice([*Count])
        assert await bench.count(quiet, count) == own[quiet, count]
        await cycles(dut, bench.rng.randrange(1, 4))


async def noise(bench: Bench, quiet: int) -> None:
    for number in range(SEGMENTS):
        bench.dut.received.value = number % GAP == 0
        bench.dut.sent.value = number % (GAP + 1) == 0
        bench.dut.received_connection.value = bench.dut.sent_connection.value = number % quiet
        await RisingEdge(bench.dut.clk)
    bench.dut.received.value = bench.dut.sent.value = 0


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_counts_outlast_a_reset(dut: Any) -> None:
    bench = Bench(dut)
    await bench.begin()
    await bench.segments(100, (GAP,), few=False)
    dut.rst.value = 1
    await RisingEdge(dut.clk)
    dut.rst.value = 0
    await bench.compare()


@pytest.mark.parametrize("connections", [2, 64])
def test_connection_counts(connections: int) -> None:
    run_cocotb(
        ConnectionCounts(connections), __name__, parameters={"CONNECTIONS": str(connections)}
    )


@pytest.mark.parametrize("connections", [1, 257])
def test_what_is_not_allowed(connections: int) -> None:
    with pytest.raises(ValueError, match=f"connections is {connections}; allowed: 2 to 256"):
        ConnectionCounts(connections)
