"""Entries are written as they came, and each is told of when its write response is there."""

from collections import deque
from typing import Any

import cocotb
import pytest
from amaranth.lib import data
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.host_memory import MEMORY_COMMAND
from stagecoach.gateware.queues.entry_writer import (
    ENTRY_OCTETS,
    OUTSTANDING,
    EntryWriter,
    entry_tag,
)
from stagecoach.sim.cosim.signals import cycles
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
)
from tests.queues.ports import WriteMemory
from tests.support.runner import parameter, run_cocotb

CYCLES_PER_ENTRY = 5


@pytest.mark.parametrize(
    ("qps", "cqs", "pattern"), [(64, 16, "random"), (2, 2, "always"), (256, 256, "slow")]
)
def test_entry_writer(qps: int, cqs: int, pattern: str) -> None:
    parameters = {"QPS": str(qps), "CQS": str(cqs), "PATTERN": pattern}
    run_cocotb(EntryWriter(RnicConfig(qps=qps, cqs=cqs)), __name__, parameters=parameters)


class Bench:
    """Gives entries as `RingWriter` does, who looks at `room` in the cycle after an entry."""

    def __init__(self, dut: Any) -> None:
        self.dut, self.rng = dut, seeded_random(parameter("PATTERN"))
        config = RnicConfig(qps=int(parameter("QPS")), cqs=int(parameter("CQS")))
        self.config, self.tag = config, entry_tag(config)
        self.layout = data.StructLayout({"address": 64, "entry": 8 * ENTRY_OCTETS, "tag": self.tag})
        done = data.StructLayout({"tag": self.tag, "failed": 1})
        pattern = parameter("PATTERN")
        self.done = StreamSink(dut, "done", done, rng=self.rng, pattern=pattern)
        for name in ("write__command", "write__data", "done"):
            StreamMonitor(dut, name)
        dut.i__valid.value = dut.write__done.value = dut.write__error.value = 0
        self.given: deque[dict[str, Any]] = deque()

    def entry(self) -> dict[str, Any]:
        rng = self.rng
        tag = {
            "ring": rng.choice([0, self.config.cqs, rng.randrange(self.config.cqs)]),
            "qp": rng.choice([0, self.config.qps - 1]),
            "solicited": rng.getrandbits(1),
        }
        address = rng.getrandbits(64) & -ENTRY_OCTETS
        return {"address": address, "entry": rng.getrandbits(8 * ENTRY_OCTETS), "tag": tag}

    async def give(self, entry: dict[str, Any], pause: int = 0, patience: int = 2000) -> bool:
        """Gives an entry if there is room; it is looked for after `pause` cycles, for a while."""
        dut = self.dut
        await cycles(dut, pause)
        for _ in range(patience):
            await RisingEdge(dut.clk)
            if dut.room.value:
                break
        else:
            return False
        dut.i__valid.value, dut.i__payload.value = 1, pack(self.layout, entry)
        await RisingEdge(dut.clk)
        while not dut.i__ready.value:
            await RisingEdge(dut.clk)
        dut.i__valid.value = 0
        dut.i__payload.value = self.rng.getrandbits(self.layout.size)
        self.given.append(entry)
        return True

    async def check_done(self, memory: WriteMemory, failing: set[int]) -> None:
        """All that were given are there, in order, or failed."""
        while self.given:
            entry = self.given.popleft()
            failed = entry["address"] in failing
            assert await self.done.get() == {"tag": entry["tag"], "failed": int(failed)}
            octets = int.from_bytes(memory.octets(entry["address"], ENTRY_OCTETS), "little")
            assert octets == (0 if failed else entry["entry"])
        await RisingEdge(self.dut.clk)
        await RisingEdge(self.dut.clk)
        assert self.dut.idle.value and not len(self.done)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_entries_are_written_and_told_of_in_order(dut: Any) -> None:
    bench = Bench(dut)
    memory, rng = WriteMemory(dut, "write", bench.rng), bench.rng
    await start_clock_and_reset(dut)
    for turn in range(6):
        for _ in range(40):
            entry = bench.entry()
            if rng.random() < 0.2:
                memory.failing.add(entry["address"])
            assert await bench.give(entry, pause=rng.randrange(turn + 1))
        await bench.check_done(memory, memory.failing)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_no_more_are_outstanding_than_there_is_room_for(dut: Any) -> None:
    """The last one only for who looks in the cycle after an entry: all others see that it came."""
    bench = Bench(dut)
    memory = WriteMemory(dut, "write", bench.rng)
    await start_clock_and_reset(dut)
    for pause, most in ((0, OUTSTANDING), (20, OUTSTANDING - 1)):
        memory.held = True
        while await bench.give(bench.entry(), pause, patience=200):
            assert len(bench.given) <= most
        assert len(bench.given) == most and not len(bench.done)
        memory.held = False
        await bench.check_done(memory, set())


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_what_was_written_waits_until_it_is_taken(dut: Any) -> None:
    bench = Bench(dut)
    memory = WriteMemory(dut, "write", bench.rng)
    await start_clock_and_reset(dut)
    bench.done.paused = True
    while await bench.give(bench.entry(), patience=300):
        pass
    assert len(bench.given) == OUTSTANDING and memory.writes == OUTSTANDING
    assert dut.done__valid.value and not dut.idle.value
    bench.done.paused = False
    await bench.check_done(memory, set())


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_commands_and_words_come_in_time_and_do_not_wait_for_ready(dut: Any) -> None:
    bench = Bench(dut)
    dut.write__command__ready.value = dut.write__data__ready.value = 0
    await start_clock_and_reset(dut)
    entries = [bench.entry() for _ in range(3)]
    dut.i__valid.value, dut.i__payload.value = 1, pack(bench.layout, entries[0])
    await RisingEdge(dut.clk)
    dut.i__valid.value = 0
    for cycle in range(1, 8):
        await RisingEdge(dut.clk)
        assert dut.write__command__valid.value == 1
        command = unpack(MEMORY_COMMAND, int(dut.write__command__payload.value))
        assert command == {"address": entries[0]["address"], "octets": ENTRY_OCTETS}
        assert dut.write__data__valid.value == (cycle >= 3)
        assert not dut.i__ready.value and not dut.idle.value
    dut.write__command__ready.value = dut.write__data__ready.value = 1
    await cycles(dut, 10)
    dut.i__valid.value, dut.i__payload.value = 1, pack(bench.layout, entries[1])
    taken = []
    for cycle in range(3 * CYCLES_PER_ENTRY):
        await RisingEdge(dut.clk)
        if dut.i__ready.value:
            taken.append(cycle)
    dut.i__valid.value = 0
    assert taken == [0, CYCLES_PER_ENTRY, 2 * CYCLES_PER_ENTRY]
