"""Each record leaves with the connection of its ends; what is deleted is not named any more."""

from itertools import pairwise
from random import Random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.tcp.demultiplexer import Demultiplexer
from stagecoach.gateware.tcp.layouts import SEGMENT, received_segment
from stagecoach.gateware.tcp.lookup import SECRET_BITS, lookup_command, lookup_result
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
    unpack,
)
from tests.support.runner import parameter
from tests.support.verdicts import Verdicts, each_check, simulate

CONNECTIONS, BITS, SLOTS_BITS = 16, 4, 5
PATTERNS = ("always", "random")
LATENCY = PERIOD = 10


class Bench:
    """The block, and which connection has which ends."""

    def __init__(self, dut: Any, pattern: str) -> None:
        self.dut, self.rng = dut, seeded_random(pattern)
        options: dict[str, Any] = {"rng": self.rng, "pattern": pattern}
        self.records = StreamSource(dut, "i", SEGMENT, **options)
        self.placed = StreamSource(dut, "placed", received_segment(BITS), **options)
        self.commands = StreamSource(dut, "command", lookup_command(BITS), **options)
        self.done = StreamSink(dut, "done", lookup_result(BITS), **options)
        self.segments = StreamSink(dut, "o", received_segment(BITS), **options)
        for name in ("o", "done"):
            StreamMonitor(dut, name, keep=False)
        dut.secret.value = self.rng.getrandbits(SECRET_BITS)
        self.keys: dict[int, dict[str, int]] = {}

    async def insert(self, connection: int) -> bool:
        key = unpack(SEGMENT, self.rng.getrandbits(SEGMENT.size))["key"]
        self.commands.put({"connection": connection, "key": key})
        found = bool((await self.done.get())["found"])
        if found:
            self.keys[connection] = key
        return found

    def record(self, connection: int | None) -> dict[str, Any]:
        """One of a connection, or of none."""
        record: dict[str, Any] = unpack(SEGMENT, self.rng.getrandbits(SEGMENT.size))
        if connection is not None:
            record["key"] = self.keys[connection]
        return record


async def start(dut: Any) -> Bench:
    bench = Bench(dut, parameter("PATTERN"))
    await start_clock_and_reset(dut)
    while len(bench.keys) < CONNECTIONS // 2:
        await bench.insert(len(bench.keys))
    return bench


def random_owner(bench: Bench, rng: Random) -> int | None:
    return rng.choice([None, *bench.keys])


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_records_and_segments_of_the_driver_leave_in_order(dut: Any) -> None:
    bench = await start(dut)
    rng = bench.rng
    records, placed = [], []
    for _ in range(150):
        owner = random_owner(bench, rng)
        record = bench.record(owner)
        records.append((owner, record))
        bench.records.put(record)
        if rng.random() < 0.3:
            item = unpack(received_segment(BITS), rng.getrandbits(received_segment(BITS).size))
            placed.append(item)
            bench.placed.put(item)
    for item in await bench.segments.get_many(len(records) + len(placed)):
        if item["placed"]:
            known = placed.pop(0)
            assert item["found"] and item["connection"] == known["connection"]
            assert item["segment"] == {**known["segment"], "raw": 0}
        else:
            owner, record = records.pop(0)
            assert item["segment"] == record
            assert bool(item["found"]) == (owner is not None)
            assert owner is None or item["connection"] == owner
    await ClockCycles(dut.clk, 2 * PERIOD)
    assert not len(bench.segments)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_deletion_ends_when_nothing_names_the_connection(dut: Any) -> None:
    """Records that were looked up before it have left by then; none finds it after it."""
    bench = await start(dut)
    rng = bench.rng
    for connection in [*bench.keys]:
        bench.segments.paused = True
        count = rng.choice([1, 4])  # one waits there, or others, too, wherever they can
        for _ in range(count):
            bench.records.put(bench.record(connection))
        while not dut.o__valid.value:
            await RisingEdge(dut.clk)
        await ClockCycles(dut.clk, rng.randrange(4 * PERIOD))
        bench.commands.put({"delete": 1, "key": bench.keys[connection]})
        for _ in range(rng.randrange(3)):
            other = {"connection": rng.randrange(CONNECTIONS), "segment": bench.record(None)}
            bench.placed.put(other)
        await ClockCycles(dut.clk, 8 * PERIOD)
        assert not len(bench.done)
        bench.segments.paused = False
        done = await bench.done.get()
        assert done == {"found": 1, "connection": connection}
        seen = bench.segments.take_all()
        assert sum(not item["placed"] for item in seen) <= count
        await bench.placed.wait_idle()
        await bench.records.wait_idle()
        await ClockCycles(dut.clk, 2 * PERIOD)
        after = [item for item in bench.segments.take_all() if not item["placed"]]
        assert not any(item["found"] for item in after)
        assert sum(not item["placed"] for item in seen) + len(after) == count


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_rate_and_latency(dut: Any) -> None:
    """Also after segments have waited: those that follow come no slower."""
    bench = await start(dut)
    bench.records.set_pattern("always")
    bench.segments.set_pattern("always")
    for paused in (False, True):
        bench.segments.paused = paused
        await ClockCycles(dut.clk, 2)
        for _ in range(8):
            bench.records.put(bench.record(random_owner(bench, bench.rng)))
        first, left, cycle = None, list[int](), 0
        while len(left) < 8:
            await RisingEdge(dut.clk)
            cycle += 1
            bench.segments.paused = paused and cycle < 50
            if first is None and dut.i__valid.value:
                first = cycle
            left += [cycle] * int(dut.o__valid.value and dut.o__ready.value)
        assert first is not None
        if not paused:
            assert left[0] - first == LATENCY
        assert [after - before for before, after in pairwise(left[paused + 1 :])] == [PERIOD] * (
            6 - paused
        )
        bench.segments.take_all()


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    block = Demultiplexer(CONNECTIONS, SLOTS_BITS)
    return simulate(tmp_path_factory, block, __name__, request.param, PATTERNS)


@each_check(globals())
def test_demultiplexer(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)
