"""Whoever has a deadline is told when it has come, and nobody else."""

from collections.abc import Callable
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.tcp.layouts import DEADLINE, DEADLINES, due_layout
from stagecoach.gateware.tcp.timers import DUES, Timers
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
)
from tests.support.runner import parameter, run_cocotb
from tests.support.verdicts import Verdicts, each_check, simulate

SPACE = 1 << 32
AHEAD = (1 << 30) - 1
SMALLEST, LARGEST = 2, 256
PATTERNS = ("always", "random")
BEGINS_AFTER, WRITE_BEGINS_AFTER, TOLD_AFTER, AGAIN_AFTER = 2, 7, 4, 8
KINDS = ("resend", "acknowledge")


class Bench:
    """Time that has no end, the deadlines that were set, and who has to be told."""

    def __init__(self, dut: Any) -> None:
        pattern = parameter("PATTERN")
        self.dut = dut
        self.connections = int(parameter("CONNECTIONS", str(LARGEST)))
        self.rng = seeded_random(pattern, self.connections)
        layout = due_layout((self.connections - 1).bit_length())
        self.due = StreamSink(dut, "due", layout, rng=self.rng, pattern=pattern)
        StreamMonitor(dut, "due", keep=False)
        self.deadlines: dict[tuple[int, str], int] = {}
        self.now = SPACE - self.rng.randrange(1, 2000)
        # When a deadline that had come stood last, in cycles.
        self.came: dict[tuple[int, str], int] = {}
        self.cycle = 0
        dut.write.value = 0
        dut.connection.value = dut.deadlines.value = 0
        dut.time.value = self.now % SPACE
        cocotb.start_soon(self._count())

    async def _count(self) -> None:
        while True:
            await RisingEdge(self.dut.clk)
            self.cycle += 1
            for key in self.late:
                self.came[key] = self.cycle

    @property
    def late(self) -> list[tuple[int, str]]:
        """What has come and was not set anew."""
        return [key for key, at in self.deadlines.items() if at <= self.now]

    @property
    def earliest(self) -> dict[str, int] | None:
        shown: dict[str, int] = unpack(DEADLINE, int(self.dut.earliest.value))
        return shown if shown["armed"] else None

    def move(self, now: int) -> None:
        """From the next cycle on it is so late."""
        self.now = now
        self.dut.time.value = now % SPACE

    async def write(self, connection: int, **deadlines: int | None) -> None:
        """Set both deadlines of a connection; those that are not named are disarmed."""
        for kind in KINDS:
            self.deadlines.pop((connection, kind), None)
            at = deadlines.get(kind)
            if at is not None:
                self.deadlines[connection, kind] = at
        # What is not armed means nothing.
        row = {kind: {"at": self.rng.getrandbits(32)} for kind in KINDS}
        for kind, at in deadlines.items():
            if at is not None:
                row[kind] = {"armed": 1, "at": at % SPACE}
        self.dut.connection.value = connection
        self.dut.deadlines.value = pack(DEADLINES, row)
        self.dut.write.value = 1
        await RisingEdge(self.dut.clk)
        self.dut.write.value = 0
        self.dut.deadlines.value = self.rng.getrandbits(66)

    @property
    def sweep(self) -> int:
        """Cycles of two, each with some for a write."""
        return 2 * (self.connections + AGAIN_AFTER + TOLD_AFTER) + 40

    async def take(
        self, again: Callable[[], int | None] = lambda: None, *, exact: bool = False
    ) -> tuple[int, str]:
        """The next that is due, which then has another deadline."""
        due = await self.due.get()
        connection = due["connection"]
        told = [kind for kind in KINDS if due[kind]]
        assert told
        row = {kind: self.deadlines.get((connection, kind)) for kind in KINDS}
        for kind in told:
            # It has come; or had, before it was set anew in the sweep, or while this waited.
            late = self.came.get((connection, kind), -SPACE)
            assert late >= self.cycle - 4 * self.sweep - 8 * DUES, due
            at = row[kind]
            if at is not None and at <= self.now:
                row[kind] = again()
            else:
                assert not exact
        await self.write(connection, **row)
        return connection, told[0]

    async def settle(self) -> None:
        """Whatever is due was told."""
        await ClockCycles(self.dut.clk, self.sweep)


async def begin(dut: Any) -> Bench:
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    await ClockCycles(dut.clk, bench.connections)
    return bench


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_random_deadlines(dut: Any) -> None:
    """Time moves on, or jumps, while they are set and told; nothing stays untold for two sweeps."""
    bench = await begin(dut)
    rng = bench.rng
    told = 0

    def deadline() -> int | None:
        ahead = rng.choice([0, rng.randrange(100), rng.randrange(3000), rng.randrange(AHEAD)])
        return rng.choice([None, bench.now + ahead, bench.now + ahead])

    for _ in range(400):
        for _ in range(rng.choice([0, 0, 1, 3])):
            connection = rng.choice([0, bench.connections - 1, rng.randrange(bench.connections)])
            await bench.write(connection, resend=deadline(), acknowledge=deadline())
            await ClockCycles(dut.clk, rng.choice([0, 0, 1, 7]))
        while len(bench.due):
            await bench.take(deadline)
            told += 1
        shown = bench.earliest
        nearest = (shown["at"] - bench.now) % SPACE if shown else 0
        steps = [0, 0, 1, rng.randrange(50), rng.randrange(3000)]
        if nearest < SPACE // 2:
            steps += [nearest, nearest, max(nearest - 1, 0)]
        bench.move(bench.now + rng.choice(steps))
        await ClockCycles(dut.clk, rng.choice([0, 1, 10, bench.connections]))
        if rng.random() < 0.1:
            await settle_all(bench)
    await settle_all(bench)
    assert told > 100
    assert bench.now > SPACE


async def settle_all(bench: Bench) -> None:
    """All that has come is told, and nothing is told for ever; the earliest one is shown."""
    for _ in range(4 * bench.connections):
        if not bench.late and not len(bench.due):
            # Something may be told once more.
            await bench.settle()
            if not len(bench.due):
                break
        waits = 0
        while not len(bench.due):
            await RisingEdge(bench.dut.clk)
            waits += 1
            assert waits < bench.sweep, bench.late
        await bench.take()
    assert not bench.late
    assert not len(bench.due)
    shown, first = bench.earliest, min(bench.deadlines.values(), default=None)
    if first is not None:
        # One that was set anew may be remembered.
        assert shown is not None
        assert (first - shown["at"]) % SPACE < SPACE // 2


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_time_jumps_to_the_earliest(dut: Any) -> None:
    """As a simulation does: each deadline is told when it comes, and no time before it."""
    bench = await begin(dut)
    rng = bench.rng
    for round in range(3):
        for connection in rng.sample(range(bench.connections), min(bench.connections, 12)):
            ahead = rng.choice([1000, AHEAD])
            times = [bench.now + rng.randrange(1, ahead) for _ in KINDS]
            await bench.write(connection, **dict(zip(KINDS, times, strict=True)))
        await bench.settle()
        while bench.deadlines:
            assert not len(bench.due)
            shown = bench.earliest
            assert shown is not None
            bench.move(bench.now + (shown["at"] - bench.now) % SPACE)
            wanted = len({connection for connection, _ in bench.late})
            await bench.settle()
            assert len(bench.due) == wanted, round
            for _ in range(wanted):
                await bench.take(exact=True)
            # What was set just before a sweep begins may be told twice.
            await ClockCycles(dut.clk, 4)
        # The last one that was told is set anew, so that nothing is left.
        await bench.settle()
        assert bench.earliest is None
        bench.move(bench.now + SPACE // 2)  # it does not matter if none is set
        await bench.settle()
        assert not len(bench.due)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_what_is_not_taken_waits(dut: Any) -> None:
    """The sweep stops, deadlines are set, and all are told in the end."""
    bench = await begin(dut)
    bench.due.paused = True
    for connection in range(bench.connections):
        await bench.write(connection, resend=bench.now + 5, acknowledge=bench.now + 5)
    await bench.settle()  # so that there is one sweep
    bench.move(bench.now + 5)
    await bench.settle()
    assert not len(bench.due)
    last = bench.connections - 1
    await bench.write(last, resend=bench.now + 900)
    await bench.settle()
    bench.due.paused = False
    await bench.settle()
    # Those that were told before it was set anew.
    early = bench.connections <= DUES
    assert len(bench.due) == bench.connections - (not early)
    told = [(await bench.take())[0] for _ in range(len(bench.due))]
    assert sorted(told) == list(range(bench.connections - (not early)))
    await settle_all(bench)
    shown = bench.earliest
    assert shown is not None
    assert shown["at"] == (bench.now + 900) % SPACE


@cocotb.test(timeout_time=40, timeout_unit="ms")
async def check_a_deadline_set_anew_during_a_sweep(dut: Any) -> None:
    """In any cycle of it: what is set counts, in its row and in those before and after it."""
    bench = await begin(dut)
    rows = sorted({0, 1, bench.connections // 2, bench.connections - 1})
    cycles = range(bench.connections + 14)
    if bench.connections > 8:
        cycles = range(0, 0)
    ends = [*range(12), *(bench.connections + at for at in range(-4, 14))]
    for cycle in [*cycles] or ends:
        for row in rows:
            for ahead in (40, 0, -7):
                await bench.write(0, resend=bench.now + 10)
                await bench.write(bench.connections // 2, resend=bench.now + 500)
                await ClockCycles(dut.clk, 12)
                bench.move(bench.now + 10)
                await ClockCycles(dut.clk, cycle)
                wanted = bench.now + ahead
                await bench.write(row, acknowledge=wanted)
                await settle_all(bench)
                if ahead > 0:
                    shown = bench.earliest
                    assert shown is not None
                    assert shown["at"] == wanted % SPACE, (cycle, row)
                for connection in rows:
                    await bench.write(connection)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_reset_forgets_deadlines(dut: Any) -> None:
    bench = await begin(dut)
    for connection in (0, bench.connections - 1):
        await bench.write(connection, resend=bench.now + 5)
    await bench.settle()
    dut.rst.value = 1
    await RisingEdge(dut.clk)
    dut.rst.value = 0
    bench.deadlines.clear()
    await ClockCycles(dut.clk, bench.connections + 1)
    assert bench.earliest is None
    bench.move(bench.now + 5)
    await bench.write(0, resend=bench.now)
    await bench.take(exact=True)
    await bench.settle()
    assert not len(bench.due)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_latency(dut: Any) -> None:
    """Of a sweep, of what it tells, and of the one after it."""
    bench = await begin(dut)
    bench.due.set_pattern("always")
    last = bench.connections - 1

    async def told_after() -> int:
        cycles = 0
        while not dut.due__valid.value:
            await RisingEdge(dut.clk)
            cycles += 1
        return cycles - 1  # what is driven after an edge is there in the next cycle

    for connection in (0, last):
        await bench.write(connection, resend=bench.now + 5)
        await bench.settle()
        bench.move(bench.now + 5)
        assert await told_after() == BEGINS_AFTER + connection + TOLD_AFTER
        await bench.take(exact=True)
        await bench.settle()
    # One that came before it was set.
    writing = cocotb.start_soon(bench.write(last, acknowledge=bench.now))
    assert await told_after() == WRITE_BEGINS_AFTER + last + TOLD_AFTER
    await writing
    await bench.take(exact=True)
    await bench.settle()
    # One that comes when its row was looked at waits for the next sweep.
    await bench.write(0, resend=bench.now + 6)
    await bench.write(last, resend=bench.now + 5)
    await bench.settle()
    bench.move(bench.now + 5)
    await ClockCycles(dut.clk, 1 + BEGINS_AFTER + bench.connections)
    bench.move(bench.now + 1)
    rest = TOLD_AFTER + AGAIN_AFTER - 1
    await ClockCycles(dut.clk, TOLD_AFTER)
    assert len(bench.due) <= 1
    assert await told_after() + TOLD_AFTER <= rest + 1
    await bench.take()
    await bench.take()


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    return simulate(tmp_path_factory, Timers(LARGEST), __name__, request.param, PATTERNS)


@each_check(globals())
def test_timers(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)


@pytest.mark.parametrize("connections", [SMALLEST, 5])
def test_timers_of_few_connections(connections: int) -> None:
    run_cocotb(
        Timers(connections),
        __name__,
        parameters={"PATTERN": "random", "CONNECTIONS": str(connections)},
    )


@pytest.mark.parametrize("connections", [1, 257])
def test_sizes_that_are_not_allowed(connections: int) -> None:
    with pytest.raises(ValueError, match="2 to 256"):
        Timers(connections)
