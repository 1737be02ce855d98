"""Events of the LLP are merged while they wait, and none is lost."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, LlpEventKind
from stagecoach.gateware.mpa.receive_events import ReceiveEvents
from stagecoach.sim.cosim.streams import (
    StreamSource,
    active_cycles,
    seeded_random,
    start_clock_and_reset,
    unpack,
)
from tests.support.runner import parameter, run_cocotb
from tests.support.verdicts import PATTERNS

CONFIG = RnicConfig(qps=4)
EVENT = Layouts(CONFIG).llp_event
WRAP = 1 << 32


class Bench:
    """The LLP and the table."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.rng = seeded_random(parameter("PATTERN"))
        self.source = StreamSource(dut, "i", EVENT, rng=self.rng, pattern=parameter("PATTERN"))
        self.taken: list[dict[str, int]] = []
        self.paused = False
        dut.taken.value = 0

    async def start(self) -> None:
        await start_clock_and_reset(self.dut)
        cocotb.start_soon(self._take())

    async def _take(self) -> None:
        """Takes an event now and then, every second cycle at most, like the table."""
        dut = self.dut
        willing = active_cycles(parameter("PATTERN"), self.rng)
        while True:
            await RisingEdge(dut.clk)
            dut.taken.value = 0
            if dut.waiting.value and not self.paused and next(willing):
                dut.taken.value = 1
                await RisingEdge(dut.clk)
                self.taken.append(unpack(EVENT, dut.event.value))
                dut.taken.value = 0

    def put(self, connection: int, kind: LlpEventKind, value: int) -> None:
        self.source.put({"connection": connection, "kind": kind.value, "value": value % WRAP})

    async def settle(self) -> None:
        await self.source.wait_idle()
        for _ in range(40):
            await RisingEdge(self.dut.clk)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_last_position_and_close_of_each_connection_arrive(dut: Any) -> None:
    bench = Bench(dut)
    rng = bench.rng
    await bench.start()
    positions = [WRAP - 5000 + 1000 * number for number in range(CONFIG.qps)]
    furthest = list(positions)
    closes = 0
    for _ in range(600):
        connection = rng.choice([0, 0, 0, *range(CONFIG.qps)])
        kind = rng.choice([LlpEventKind.RX_AVAILABLE] * 8 + list(LlpEventKind))
        value = rng.getrandbits(32)
        if kind == LlpEventKind.RX_AVAILABLE:
            # Now and then one that goes back
            positions[connection] = furthest[connection] + rng.choice([0, 4, 300, -200])
            furthest[connection] = max(furthest[connection], positions[connection])
            value = positions[connection]
        closes += kind == LlpEventKind.CLOSED
        bench.put(connection, kind, value)
    await bench.settle()
    kinds = {item["kind"] for item in bench.taken}
    assert kinds == {LlpEventKind.RX_AVAILABLE.value, LlpEventKind.CLOSED.value}
    assert sum(item["kind"] == LlpEventKind.CLOSED.value for item in bench.taken) == closes
    for number in range(CONFIG.qps):
        values = [
            (item["value"] + 10000) % WRAP
            for item in bench.taken
            if item["connection"] == number and item["kind"] == LlpEventKind.RX_AVAILABLE.value
        ]
        assert max(values) == (furthest[number] + 10000) % WRAP


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_events_of_one_connection_merge_while_nobody_takes_them(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    bench.paused = True
    for position in (100, 200, 300, 160):
        bench.put(2, LlpEventKind.RX_AVAILABLE, position)
    await bench.settle()
    assert not bench.source.pending
    # An event of another kind or connection waits after it, and what follows waits, too.
    bench.put(2, LlpEventKind.CLOSED, 0)
    bench.put(2, LlpEventKind.RX_AVAILABLE, 400)
    for _ in range(100):
        await RisingEdge(dut.clk)
    assert bench.source.pending
    bench.paused = False
    await bench.settle()
    kinds = [(item["kind"], item["value"]) for item in bench.taken]
    available, closed = LlpEventKind.RX_AVAILABLE.value, LlpEventKind.CLOSED.value
    assert kinds == [(available, 300), (closed, 0), (available, 400)]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_receive_events(pattern: str) -> None:
    run_cocotb(ReceiveEvents(CONFIG), __name__, parameters={"PATTERN": pattern})
