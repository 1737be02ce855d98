"""What is kept of a connection comes back, and its copies say what is known of it."""

from typing import Any

import pytest
from amaranth.hdl import ResetInserter, Signal, Value
from amaranth.sim import Simulator

from stagecoach.gateware.tcp.layouts import DEADLINES, LIMITS
from stagecoach.gateware.tcp.transmit_state import TRANSMIT_STATE
from stagecoach.gateware.tcp.transmit_table import ROWS, TransmitTable
from stagecoach.sim.cosim.streams import pack, seeded_random, unpack

SPACE = 1 << 32
SMALLEST, LARGEST = 2, 256
EVENTS = 60
PARTS = list(TRANSMIT_STATE.members)


class Bench:
    """The table, a register with the state, and what was kept."""

    def __init__(self, ctx: Any, dut: TransmitTable) -> None:
        self.ctx, self.dut, self.rng = ctx, dut, seeded_random(dut.connection.shape())
        self.state: Any = unpack(TRANSMIT_STATE, 0)
        self.kept: dict[int, Any] = {}
        self.deadlines: dict[int, Any] = {}
        self.limits: dict[int, Any] = {}
        self.cycle = 0
        self.deadlines_cycle = -1

    async def tick(self) -> None:
        """Look at the copies, and go on by a cycle."""
        ctx, dut = self.ctx, self.dut
        assert ctx.get(dut.deadlines_write) == (self.cycle == self.deadlines_cycle)
        if ctx.get(dut.deadlines_write):
            found = unpack(DEADLINES, ctx.get(Value.cast(dut.deadlines)))
            self.deadlines[ctx.get(dut.deadlines_connection)] = found
        if ctx.get(dut.limits_write):
            found = unpack(LIMITS, ctx.get(Value.cast(dut.limits)))
            self.limits[ctx.get(dut.limits_connection)] = found
        await ctx.tick()
        self.cycle += 1

    def show(self) -> None:
        self.ctx.set(Value.cast(self.dut.state), pack(TRANSMIT_STATE, self.state))

    async def fetch(self, connection: int) -> None:
        """Fetch a connection; each row replaces that of the state in the cycle after it came."""
        ctx, dut = self.ctx, self.dut
        ctx.set(dut.connection, connection)
        ctx.set(dut.fetches, 1)
        await self.tick()
        ctx.set(dut.fetches, 0)
        for place, name in enumerate(PARTS):
            assert ctx.get(dut.loads) == 1 << place
            shape = TRANSMIT_STATE[name].shape
            part = unpack(shape, ctx.get(dut.word) & ((1 << shape.size) - 1))
            if connection in self.kept:
                assert part == self.kept[connection][name]
            elif name == "numbers":
                assert not part["alive"]  # it is forgotten
            await self.tick()
            self.state[name] = part
            self.show()
        assert ctx.get(dut.loads) == 0

    def change(self) -> None:
        """Another state, with numbers around the end of all numbers."""
        rng = self.rng
        self.state = state = unpack(TRANSMIT_STATE, rng.getrandbits(TRANSMIT_STATE.size))
        base = rng.choice([0, SPACE - 1, rng.getrandbits(32)])
        sent = rng.choice([0, 0, 1, rng.getrandbits(30)])
        state["numbers"] |= {"una": base, "max": (base + sent) % SPACE}
        state["windows"]["max_window"] = rng.choice([0, 1, rng.getrandbits(30)])
        self.show()

    async def event(self, connection: int) -> None:
        """From the fetch to two cycles after it is kept, when the next fetch may be."""
        ctx, dut, rng = self.ctx, self.dut, self.rng
        await self.fetch(connection)
        ctx.set(dut.holds, 1)
        for _ in range(rng.randrange(4)):
            self.change()
            await self.tick()
        await self.tick()
        ctx.set(dut.keeps, 1)
        self.deadlines_cycle = self.cycle + 2
        await self.tick()
        ctx.set(dut.keeps, 0)
        ctx.set(dut.holds, 0)
        # The state stays, but for deadlines.
        deadlines = unpack(DEADLINES, rng.getrandbits(DEADLINES.size))
        self.state["times"]["deadlines"] = deadlines
        self.show()
        await self.tick()
        self.kept[connection] = state = dict(self.state)
        self.wanted = connection, deadlines if state["numbers"]["alive"] else unpack(DEADLINES, 0)

    def check_copies(self) -> None:
        """Of the last event, which are there three cycles after it was kept."""
        connection, deadlines = self.wanted
        numbers, windows = (self.kept[connection][name] for name in ("numbers", "windows"))
        assert self.deadlines[connection] == deadlines
        # RFC 5961, 5.2: SND.UNA - MAX.SND.WND is the least; a probe's byte counts as sent.
        ahead = numbers["probed"] and numbers["una"] == numbers["max"]
        assert self.limits[connection] == {
            "oldest": (numbers["una"] - windows["max_window"]) % SPACE,
            "highest": (numbers["max"] + ahead) % SPACE,
            "ended": not numbers["alive"],
        }


def simulate(dut: Any, bench: Any) -> None:
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("connections", [SMALLEST, LARGEST])
def test_rows_and_copies(connections: int) -> None:
    """Of one connection again and again, and of others between."""
    dut = TransmitTable(connections)

    async def run(ctx: Any) -> None:
        bench = Bench(ctx, dut)
        rng = bench.rng
        while not ctx.get(dut.ready):
            await bench.tick()
        assert bench.cycle == connections
        connection = 0
        for _ in range(EVENTS):
            limits = dict(bench.limits)
            connection = rng.choice([connection, 0, connections - 1, rng.randrange(connections)])
            limits.pop(connection, None)
            await bench.event(connection)
            if rng.random() < 0.5:
                await bench.tick()
                bench.check_copies()
                # Nothing was said of others.
                assert limits == {each: bench.limits[each] for each in limits}
            for _ in range(rng.choice([0, 0, rng.randrange(9)])):
                await bench.tick()

    simulate(dut, run)


@pytest.mark.parametrize("connections", [SMALLEST, LARGEST])
def test_a_reset_forgets_all_connections(connections: int) -> None:
    """One cycle for each, before `ready` rises."""
    dut, reset = TransmitTable(connections), Signal()

    async def run(ctx: Any) -> None:
        bench = Bench(ctx, dut)
        while not ctx.get(dut.ready):
            await bench.tick()
        some = sorted({0, 1, connections - 1})
        for connection in some:
            await bench.event(connection)
            while not bench.kept[connection]["numbers"]["alive"]:
                await bench.event(connection)
        await ctx.tick().repeat(ROWS)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        for _ in range(connections):
            assert not ctx.get(dut.ready)
            await ctx.tick()
        assert ctx.get(dut.ready)
        bench.kept.clear()
        bench.deadlines_cycle = -1
        for connection in some:
            await bench.fetch(connection)

    simulate(ResetInserter(reset)(dut), run)
