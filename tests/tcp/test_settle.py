"""Nothing is acknowledged before memory answered for it and for all before it, in order."""

from collections import deque
from random import Random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.tcp.layouts import settled_layout, written_note
from stagecoach.gateware.tcp.settle import NOTES, SETTLED, Settle
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
    unpack,
)
from tests.support.runner import parameter, run_cocotb
from tests.support.verdicts import Verdicts, each_check, simulate

SMALLEST, LARGEST = 2, 256
PATTERNS = ("always", "random")
LATENCY = 3


class Bench:
    """Notes, a memory that answers when it is told to, and what may be said."""

    def __init__(self, dut: Any, rng: Random, pattern: str) -> None:
        self.dut, self.rng = dut, rng
        self.connections = int(parameter("CONNECTIONS", str(LARGEST)))
        bits = (self.connections - 1).bit_length()
        self.notes = StreamSource(dut, "note", written_note(bits), rng=rng, pattern=pattern)
        layout = settled_layout(bits)
        self.said = StreamSink(dut, "o", layout, rng=rng, pattern=pattern)
        StreamMonitor(dut, "o", layout, keep=False)
        dut.done.value = dut.error.value = dut.connection_read.value = 0
        self.pending: deque[dict[str, Any]] = deque()  # not said yet, with what is not answered
        self.expected: list[dict[str, Any]] = []
        self.failed: set[int] = set()
        self.settled: dict[int, dict[str, int]] = {}

    def put(self, connection: int, writes: int, begin: bool = False) -> None:
        rng = self.rng
        note = {"connection": connection, "number": rng.getrandbits(32)}
        note |= {"edge": rng.getrandbits(32), "due": rng.randrange(3)}
        note |= {"fin": rng.getrandbits(1), "begin": int(begin)}
        self.notes.put({"writes": writes, "note": note})
        self.pending.append({"writes": writes, "note": note, "failed": 0})
        self.follow()

    async def answer(self, error: bool = False) -> None:
        """Memory answers for the first command of all that wait for it."""
        self.dut.done.value, self.dut.error.value = 1, int(error)
        await RisingEdge(self.dut.clk)
        # Without `done` the error means nothing.
        self.dut.done.value, self.dut.error.value = 0, self.rng.getrandbits(1)
        self.pending[0]["writes"] -= 1
        self.pending[0]["failed"] |= error
        self.follow()

    def follow(self) -> None:
        """What may be said now."""
        while self.pending and not self.pending[0]["writes"]:
            item = self.pending.popleft()
            note, connection = item["note"], item["note"]["connection"]
            if note["begin"]:
                self.failed.discard(connection)
            if connection not in self.failed:
                self.expected.append({"failed": item["failed"], "note": note})
                if not item["failed"]:
                    names = SETTLED.members
                    self.settled[connection] = {name: note[name] for name in names}
            if item["failed"]:
                self.failed.add(connection)

    async def check(self) -> None:
        """All that may be said is said, and no more; the numbers can be read."""
        await self.notes.wait_idle()
        await ClockCycles(self.dut.clk, 3 * NOTES if len(self.expected) > 1 else 20)
        assert self.said.take_all() == self.expected
        self.expected.clear()
        for connection, settled in self.settled.items():
            self.dut.connection_read.value = connection
            await ClockCycles(self.dut.clk, 2)
            assert unpack(SETTLED, self.dut.settled.value) == settled
            assert int(self.dut.lost.value) == (connection in self.failed)


async def begin(dut: Any) -> Bench:
    pattern = parameter("PATTERN")
    bench = Bench(dut, seeded_random(pattern), pattern)
    await start_clock_and_reset(dut)
    for connection in range(min(bench.connections, NOTES - 1)):
        bench.put(connection, 0, begin=True)
    await bench.check()
    return bench


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_a_note_waits_for_its_answers_and_those_before(dut: Any) -> None:
    bench = await begin(dut)
    rng = bench.rng
    last = bench.connections - 1
    for _ in range(120):
        for _ in range(rng.randrange(4)):
            if len(bench.pending) < NOTES:
                bench.put(rng.choice([0, 1, last]), rng.randrange(3))
        if bench.pending and rng.random() < 0.8:
            await bench.answer()
        if rng.random() < 0.5:
            await bench.check()


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_an_error_ends_one_connection(dut: Any) -> None:
    """It is said once, the number stays, others go on, and a new connection is told of again."""
    bench = await begin(dut)
    for first, second in ((True, False), (False, True)):
        bench.put(1, 1)
        await bench.answer()
        bench.put(1, 2)
        await bench.answer(first)
        await bench.answer(second)
        for connection in (1, 0, 1):
            bench.put(connection, 1)
            await bench.answer()
        bench.put(1, 0)
        await bench.check()
        bench.put(1, 0, begin=True)
        bench.put(1, 1)
        await bench.answer()
        await bench.check()


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_notes_wait_when_memory_does_not_answer(dut: Any) -> None:
    """So many are taken, and the answers come all at once, when nobody takes what is said."""
    bench = await begin(dut)
    bench.said.paused = True
    await ClockCycles(dut.clk, 2)
    for number in range(2 * NOTES):
        bench.put(number % 2, 2)
    await ClockCycles(dut.clk, 8 * NOTES)
    taken = 2 * NOTES - bench.notes.pending
    assert taken == NOTES
    for _ in range(2 * taken):
        await bench.answer(bench.rng.random() < 0.02)
    assert bench.notes.pending
    bench.said.paused = False
    while bench.pending:
        await bench.answer()
        await ClockCycles(dut.clk, 6)
    await bench.check()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_latency_and_rate(dut: Any) -> None:
    bench = await begin(dut)
    for end in (bench.notes, bench.said):
        end.set_pattern("always")
    bench.put(0, 1)
    await ClockCycles(dut.clk, 10)
    await bench.answer()
    cycles = 0
    while not dut.o__valid.value:
        await RisingEdge(dut.clk)
        cycles += 1
    assert cycles == LATENCY
    await bench.check()
    for _ in range(20):
        bench.put(0, 1)
    await ClockCycles(dut.clk, 30)
    for _ in range(20):
        await bench.answer()
        await RisingEdge(dut.clk)
    await ClockCycles(dut.clk, LATENCY + 1)
    assert len(bench.said) == 20
    await bench.check()


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    block = Settle(LARGEST)
    return simulate(tmp_path_factory, block, __name__, request.param, PATTERNS)


@each_check(globals())
def test_settle(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)


def test_settle_of_the_smallest_size() -> None:
    run_cocotb(
        Settle(SMALLEST),
        __name__,
        test_filter="check_an_error",
        parameters={"PATTERN": "random", "CONNECTIONS": str(SMALLEST)},
    )


@pytest.mark.parametrize("connections", [1, 257])
def test_sizes_that_are_not_allowed(connections: int) -> None:
    with pytest.raises(ValueError, match="2 to 256"):
        Settle(connections)
