"""Who says something of a connection never waits for who hears it, and the last word is heard."""

from collections import deque
from random import Random
from typing import Any

import cocotb
import pytest
from amaranth.lib import data
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.tcp.layouts import NoticeKind, notice_layout
from stagecoach.gateware.tcp.pending import Pending
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb
from tests.support.verdicts import Verdicts, each_check, simulate

SMALLEST, LARGEST = 2, 256
PATTERNS = ("always", "random")
TAKEN_AFTER, THERE_AFTER, NEXT_AFTER = 2, 5, 3


class Bench:
    """Items, and those that wait."""

    def __init__(self, dut: Any, rng: Random, pattern: str) -> None:
        self.dut, self.rng = dut, rng
        self.connections = int(parameter("CONNECTIONS", str(LARGEST)))
        self.layout = notice_layout((self.connections - 1).bit_length())
        options: dict[str, Any] = {"rng": rng, "pattern": pattern}
        self.source = StreamSource(dut, "i", self.layout, **options)
        self.sink = StreamSink(dut, "o", self.layout, **options)
        StreamMonitor(dut, "o", keep=False)

    def item(self, connection: int) -> dict[str, int]:
        rng = self.rng
        kind = rng.randrange(len(NoticeKind))
        return {"connection": connection, "kind": kind, "number": rng.getrandbits(32)}


async def begin(dut: Any) -> Bench:
    pattern = parameter("PATTERN")
    bench = Bench(dut, seeded_random(pattern, parameter("CONNECTIONS", "")), pattern)
    await start_clock_and_reset(dut)
    await ClockCycles(dut.clk, bench.connections + 2)
    return bench


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_the_last_item_of_each_leaves(dut: Any) -> None:
    """In the order in which they began to wait; and nobody waits to say one."""
    bench = await begin(dut)
    rng = bench.rng
    for _ in range(4):
        bench.sink.paused = True
        await ClockCycles(dut.clk, 8)
        # The first one leaves its place, and is not changed any more.
        first = bench.item(rng.randrange(bench.connections))
        bench.source.put(first)
        await ClockCycles(dut.clk, 40)
        last: dict[int, dict[str, int]] = {}
        for _ in range(3 * bench.connections):
            item = bench.item(rng.randrange(bench.connections))
            bench.source.put(item)
            last[item["connection"]] = item
        await bench.source.wait_idle()
        bench.sink.paused = False
        assert await bench.sink.get_many(1 + len(last)) == [first, *last.values()]
        await ClockCycles(dut.clk, 50)
        assert not len(bench.sink)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_none_is_lost_while_they_leave(dut: Any) -> None:
    """Of few connections, so that they meet: none is older than one before it, the last one is."""
    bench = await begin(dut)
    rng = bench.rng
    some = [0, bench.connections - 1]
    said: dict[int, deque[dict[str, int]]] = {connection: deque() for connection in some}
    left = 0
    for _ in range(60):
        for _ in range(rng.choice([1, 1, 2, 8])):
            item = bench.item(rng.choice(some))
            bench.source.put(item)
            said[item["connection"]].append(item)
        await ClockCycles(dut.clk, rng.randrange(40))
        for item in bench.sink.take_all():
            known = said[item["connection"]]
            while known.popleft() != item:
                pass
            left += 1
    await bench.source.wait_idle()
    await ClockCycles(dut.clk, 50)
    for item in bench.sink.take_all():
        known = said[item["connection"]]
        while known.popleft() != item:
            pass
    assert not any(said.values())
    assert left > 20


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_reset_forgets(dut: Any) -> None:
    bench = await begin(dut)
    bench.sink.paused = True
    for connection in range(bench.connections):
        bench.source.put(bench.item(connection))
    await bench.source.wait_idle()
    dut.rst.value = 1
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0
    bench.sink.paused = False
    items = [bench.item(connection) for connection in range(bench.connections)]
    bench.source.put_all(items)
    assert await bench.sink.get_many(len(items)) == items
    await ClockCycles(dut.clk, 50)
    assert not len(bench.sink)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_rate_and_latency(dut: Any) -> None:
    bench = await begin(dut)
    for end in (bench.source, bench.sink):
        end.set_pattern("always")
    await ClockCycles(dut.clk, 2)

    async def until(signal: Any, level: int = 1) -> int:
        cycles = 0
        while signal.value != level:
            await RisingEdge(dut.clk)
            cycles += 1
        return cycles

    bench.source.put(bench.item(1))
    await until(dut.i__valid)
    assert await until(dut.o__valid) == THERE_AFTER
    await bench.sink.get()
    await ClockCycles(dut.clk, 20)
    for connection in range(2):
        bench.source.put(bench.item(connection))
    await until(dut.o__valid)
    await until(dut.o__valid, 0)
    # That was the cycle after it was taken.
    assert await until(dut.o__valid) == NEXT_AFTER
    await ClockCycles(dut.clk, 20)
    for connection in [0, 1] * 20:
        bench.source.put(bench.item(connection))
    waited = 0
    while bench.source.pending:
        await RisingEdge(dut.clk)
        waited = waited + 1 if not dut.i__ready.value else 0
        assert waited <= TAKEN_AFTER


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    block = Pending(LARGEST, notice_layout(8))
    return simulate(tmp_path_factory, block, __name__, request.param, PATTERNS)


@each_check(globals())
def test_pending(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)


def test_pending_of_the_smallest_size() -> None:
    run_cocotb(
        Pending(SMALLEST, notice_layout(1)),
        __name__,
        test_filter="check_(the|none|a)",
        parameters={"PATTERN": "random", "CONNECTIONS": str(SMALLEST)},
    )


@pytest.mark.parametrize("connections", [1, 257])
def test_sizes_that_are_not_allowed(connections: int) -> None:
    with pytest.raises(ValueError, match="2 to 256"):
        Pending(connections, data.StructLayout({"connection": 8}))
