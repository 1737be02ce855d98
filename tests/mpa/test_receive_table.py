"""The connection table says whom to visit, and what of it, whatever overlaps."""

from collections import deque
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, LlpEventKind, QpCommandKind
from stagecoach.gateware.mpa.layouts import MpaLayouts
from stagecoach.gateware.mpa.receive_table import BEGINS, EVENTS_IN_A_ROW, ReceiveTable
from stagecoach.sim.cosim.streams import (
    StreamSink,
    StreamSource,
    pack,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb

WRAP = 1 << 32
END_CYCLES = 2
COMMAND_CYCLES = 4


@pytest.mark.parametrize("qps", [2, 4])
def test_receive_table(qps: int) -> None:
    run_cocotb(ReceiveTable(RnicConfig(qps=qps)), __name__, parameters={"QPS": str(qps)})


class Bench:
    """Commands, events and ends at random; visits have to begin as the model says."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.rng = seeded_random()
        self.qps = int(parameter("QPS"))
        config = RnicConfig(qps=self.qps)
        self.layouts, self.mpa = Layouts(config), MpaLayouts(config)
        self.commands = StreamSource(dut, "command", self.layouts.qp_command)
        self.begins = StreamSink(dut, "begin", self.mpa.begin, rng=self.rng, pattern="always")
        for name in ("waiting", "event", "end_waiting", "end", "closed__taken"):
            getattr(dut, name).value = 0
        self.events: deque[dict[str, int]] = deque()
        self.ends: deque[dict[str, int]] = deque()
        self.begun: list[int] = []
        self.closed: list[tuple[int, int]] = []
        self.close_paused = False  # none is taken
        self.forgotten = 0
        self.ended = 0  # ends that were taken
        self.waits = 0  # cycles in which one command was not taken, at most

    async def start(self) -> None:
        await start_clock_and_reset(self.dut)
        for task in (self._event, self._end, self._watch, self._close):
            cocotb.start_soon(task())

    async def _event(self) -> None:
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            if dut.taken.value:
                self.events.popleft()
            dut.waiting.value = int(bool(self.events))
            if self.events:
                dut.event.value = pack(self.layouts.llp_event, self.events[0])

    async def _end(self) -> None:
        """Ends, the next one four cycles after one at the earliest."""
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            if not self.ends:
                continue
            dut.end.value = pack(self.mpa.visit_end, self.ends.popleft())
            dut.end_waiting.value = 1
            waited = 0
            await RisingEdge(dut.clk)
            while not dut.end_taken.value:
                waited += 1
                await RisingEdge(dut.clk)
            assert waited < END_CYCLES
            self.ended += 1
            dut.end_waiting.value = 0
            for _ in range(2):
                await RisingEdge(dut.clk)

    async def _watch(self) -> None:
        dut = self.dut
        waits = 0
        while True:
            await RisingEdge(dut.clk)
            waits = waits + 1 if dut.command__valid.value and not dut.command__ready.value else 0
            self.waits = max(self.waits, waits)
            self.forgotten += int(dut.forget.value)
            if dut.begun.value:
                self.begun.append(int(dut.number.value))

    async def _close(self) -> None:
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            dut.closed__taken.value = 0
            if dut.closed__valid.value and not self.close_paused and self.rng.random() < 0.2:
                self.closed.append((int(dut.closed__qp.value), int(dut.closed__inside.value)))
                dut.closed__taken.value = 1
                await RisingEdge(dut.clk)
                dut.closed__taken.value = 0
                await RisingEdge(dut.clk)

    def announce(self, qp: int, position: int) -> None:
        available = LlpEventKind.RX_AVAILABLE.value
        self.events.append({"connection": qp, "kind": available, "value": position % WRAP})

    def close(self, qp: int) -> None:
        self.events.append({"connection": qp, "kind": LlpEventKind.CLOSED.value, "value": 0})

    def end(self, qp: int, consumed: int, needed: int = 8, dead: int = 0) -> None:
        fields = {"qp": qp, "consumed": consumed % WRAP, "needed": needed, "dead": dead}
        self.ends.append(fields)

    async def command(self, qp: int, kind: QpCommandKind, **fields: int) -> None:
        await self.commands.send({"kind": kind.value, "qp": qp, **fields})

    async def connect(self, qp: int, **fields: int) -> None:
        await self.command(qp, QpCommandKind.CREATE)
        await self.command(qp, QpCommandKind.CONNECT, **fields)

    async def cycles(self, count: int) -> None:
        for _ in range(count):
            await RisingEdge(self.dut.clk)


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_operations_seem_to_follow_each_other(dut: Any) -> None:
    """Bursts on few connections; what begins fits what was announced and consumed before."""
    bench = Bench(dut)
    rng = bench.rng
    await bench.start()
    announced, consumed = [0] * bench.qps, [0] * bench.qps
    needed = [8] * bench.qps
    for qp in range(bench.qps):
        await bench.connect(qp, crc=qp & 1, receive_markers=qp >> 1)
    for _ in range(300):
        few = rng.choice([[rng.randrange(bench.qps)], range(bench.qps)])
        for _ in range(rng.randint(1, 6)):
            qp = rng.choice(few)
            announced[qp] += 4 * rng.choice([0, 1, 2, 100, 20000])
            bench.announce(qp, announced[qp])
            if rng.random() < 0.2:
                bench.announce(qp, announced[qp] - 4)  # goes back: ignored
        await bench.cycles(rng.choice([0, 3, 20]))
        for visit in bench.begins.take_all():
            qp = visit["qp"]
            assert (visit["crc"], visit["markers"]) == (qp & 1, qp >> 1)
            assert visit["position"] == consumed[qp]
            assert consumed[qp] + needed[qp] <= visit["available"] <= announced[qp]
            backlog = visit["available"] - consumed[qp]
            consumed[qp] += 4 * rng.randint(0, backlog // 4)
            needed[qp] = rng.choice([8, 8, 400, 100000])
            bench.end(qp, consumed[qp], needed[qp])
    # In the end nobody is left who has enough.
    for _ in range(200):
        await bench.cycles(20)
        for visit in bench.begins.take_all():
            qp = visit["qp"]
            assert visit["position"] == consumed[qp]
            assert visit["available"] >= consumed[qp] + needed[qp]
            consumed[qp] = visit["available"]
            needed[qp] = 8
            bench.end(qp, consumed[qp])
    for qp in range(bench.qps):
        assert announced[qp] - consumed[qp] < needed[qp]
    assert not bench.closed


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_command_forgets_and_next_visit_waits_for_the_end(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    for wait in range(12):
        forgotten = bench.forgotten
        await bench.connect(1)
        bench.announce(1, 4000)
        await bench.begins.get()
        await bench.command(1, QpCommandKind.DESTROY)
        await bench.connect(1)
        bench.announce(1, 64)
        await bench.cycles(60)
        assert not len(bench.begins)
        # What the old visit comes to means nothing, also among other things.
        bench.end(1, 4000, needed=900, dead=wait % 2)
        await bench.cycles(wait)
        bench.announce(1, 128)
        visit = await bench.begins.get()
        assert visit["position"] == 0
        assert visit["available"] in (64, 128)
        assert bench.forgotten == forgotten + 5
        bench.end(1, visit["available"])
        await bench.cycles(40)
        await bench.command(1, QpCommandKind.DESTROY)
        if visit["available"] == 64:
            bench.begins.take_all()
            bench.end(1, 128)
        await bench.cycles(40)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_wrong_fpdu_ends_the_connection(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    qp = bench.qps - 1
    await bench.connect(qp)
    bench.announce(qp, 4000)
    await bench.begins.get()
    bench.end(qp, 400, dead=1)
    bench.close(qp)
    bench.announce(qp, 8000)
    await bench.cycles(100)
    assert not len(bench.begins)
    assert not bench.closed


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_closed_is_told_once_after_all_that_is_whole(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    for qp in range(bench.qps):
        await bench.connect(qp)
        bench.announce(qp, 100)
    for _ in range(bench.qps):
        await bench.begins.get()
    for qp in range(bench.qps):
        bench.close(qp)
        bench.end(qp, 100 - 4 * qp, needed=40)
    await bench.cycles(400)
    told = [(qp, int(qp > 0)) for qp in range(bench.qps)]
    assert sorted(bench.closed) == told
    assert not len(bench.begins)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_closed_that_is_not_told_is_forgotten_with_its_connection(dut: Any) -> None:
    """By a command for it, and by no other."""
    bench = Bench(dut)
    await bench.start()
    for kind in (QpCommandKind.CREATE, QpCommandKind.STOP, QpCommandKind.DESTROY):
        bench.close_paused = True
        await bench.connect(1)
        bench.close(1)
        await bench.cycles(40)
        assert dut.closed__valid.value and int(dut.closed__qp.value) == 1
        await bench.command(0, kind)
        await bench.cycles(40)
        assert dut.closed__valid.value
        await bench.command(1, kind)
        await bench.cycles(20)
        assert not dut.closed__valid.value
        bench.close_paused = False
        await bench.cycles(100)
        assert not bench.closed
        await bench.command(1, QpCommandKind.DESTROY)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_visits_and_ends_of_connections_that_wait_hold_up_nothing_else(dut: Any) -> None:
    """While `begin` is not taken all else goes on; while `closed` is not, none begins, too."""
    bench = Bench(dut)
    await bench.start()
    for held_up in ("begin", "closed"):
        for qp in range(bench.qps):
            await bench.connect(qp)
        begun, ended = len(bench.begun), bench.ended
        bench.announce(0, 8)
        visit = await bench.begins.get()
        assert (visit["qp"], visit["available"]) == (0, 8)
        bench.begins.paused = held_up == "begin"
        if held_up == "closed":
            bench.close_paused = True
            bench.close(1)
            await bench.cycles(40)
            assert dut.closed__valid.value
        # Events ...
        for position in range(16, 16 + 8 * 40, 8):
            bench.announce(0, position)
            bench.announce(bench.qps - 1, position)
        await bench.cycles(300)
        assert not bench.events
        # ... ends, of the visit and, if one connection has none, such as mean nothing ...
        bench.end(0, 8)
        meaningless = 20 * (bench.qps > 2)
        for _ in range(meaningless):
            bench.end(1, 0)
        await bench.cycles(150)
        assert bench.ended == ended + 1 + meaningless
        # ... and commands are taken.
        bench.waits = 0
        for _ in range(20):
            await bench.command(0, QpCommandKind.STOP)
        assert bench.waits < COMMAND_CYCLES
        found = len(bench.begun) - begun - 1
        if held_up == "begin":
            assert 0 < found <= BEGINS and not len(bench.begins)
            bench.begins.paused = False
            await bench.cycles(40)
            visits = bench.begins.take_all()
            assert [visit["qp"] for visit in visits].count(bench.qps - 1) == 1
            while visits:
                for visit in visits:
                    bench.end(visit["qp"], visit["available"])
                await bench.cycles(40)
                visits = bench.begins.take_all()
        else:
            assert found == 0 and not len(bench.begins) and not bench.closed
            bench.close_paused = False
            await bench.cycles(60)
            assert bench.closed == [(1, 0)]
            visits = [visit["qp"] for visit in bench.begins.take_all()]
            assert visits == [bench.qps - 1] * (bench.qps > 2)
        for qp in range(bench.qps):
            await bench.command(qp, QpCommandKind.DESTROY)
        await bench.cycles(100)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_commands_are_taken_while_ends_and_events_come(dut: Any) -> None:
    """Ends as often as they may come; of no visit, so they change nothing."""
    bench = Bench(dut)
    rng = bench.rng
    await bench.start()
    await bench.connect(0)
    bench.waits = 0
    for number in range(200):
        while len(bench.ends) < 8:
            bench.end(0, 0)
        while len(bench.events) < 16:
            bench.announce(0, 4)
        await bench.command(rng.randrange(bench.qps), QpCommandKind.STOP)
        await bench.cycles(rng.randrange(8) if number % 2 else 0)
    assert bench.ended > 200
    assert bench.waits < COMMAND_CYCLES


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_events_without_end_starve_nobody(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    for qp in range(bench.qps):
        await bench.connect(qp)
    position = 0
    counts = [0] * bench.qps
    events = stopped = 0
    for cycle in range(2000):
        if len(bench.events) < 4:
            position += 8
            events += 1
            bench.announce(events % bench.qps, position)
        for visit in bench.begins.take_all():
            counts[visit["qp"]] += 1
            bench.end(visit["qp"], visit["available"])
        await RisingEdge(dut.clk)
        if cycle == 500:
            # A command is taken all the same.
            cocotb.start_soon(bench.command(0, QpCommandKind.STOP))
        if cycle == 540:
            assert not bench.commands.pending
            stopped = counts[0]
    most = max(counts[1:])
    assert min(counts[1:]) > most * 0.8 > 40
    assert counts[0] == stopped > 10
    # Of each begin, end and events in a row, two cycles each
    assert events > 0.95 * 2000 / 2 * EVENTS_IN_A_ROW / (1 + 1 + EVENTS_IN_A_ROW)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_an_idle_table_takes_as_long_in_every_cycle(dut: Any) -> None:
    """So the cycles of a run depend on what comes, and not on when it began."""
    bench = Bench(dut)
    await bench.start()
    await bench.connect(1)
    await bench.cycles(2 * bench.qps + 20)
    took = set()
    position = 0
    for gap in (20, 21, 22, 23, 21, 20):
        position += 8
        bench.announce(1, position)
        cycles = 0
        while not (visits := bench.begins.take_all()):
            await RisingEdge(dut.clk)
            cycles += 1
        took.add(cycles)
        bench.end(1, visits[0]["available"])
        await bench.cycles(gap)
    assert len(took) == 1, took
