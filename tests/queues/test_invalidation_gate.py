"""The end of a local invalidation comes when nothing is placed by its STag any more."""

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.queues.drain import COUNT_BITS
from stagecoach.gateware.queues.invalidation_gate import InvalidationGate
from stagecoach.hw.interface.queue_entries import SendOpcode
from stagecoach.sim.cosim.signals import cycles
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.queues.ports import Pulses
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig(qps=4)
ITEM = Layouts(CONFIG).sent_item
INVALIDATION = SendOpcode.LOCAL_INVALIDATE.value


@pytest.mark.requirement("RDMAP-8.1.1-06", "SEC-6.2.2-01")
@pytest.mark.parametrize("pattern", ["always", "random", "slow"])
@pytest.mark.parametrize("count_bits", [4, COUNT_BITS])
def test_gate(pattern, count_bits):
    parameters = {"PATTERN": pattern, "COUNT_BITS": str(count_bits)}
    run_cocotb(InvalidationGate(CONFIG, count_bits), __name__, parameters=parameters)


async def start(dut, rng):
    pattern = parameter("PATTERN")
    source = StreamSource(dut, "i", ITEM, rng=rng, pattern=pattern)
    sink = StreamSink(dut, "o", ITEM, rng=rng, pattern=pattern)
    StreamMonitor(dut, "o", ITEM)
    for name in ("placing", "begun", "placed"):
        getattr(dut, name).value = 0
    dut.passed.value = 1
    await start_clock_and_reset(dut)
    return source, sink


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_reports_keep_their_order_and_invalidations_wait(dut):
    """The model: when a report leaves, what was being placed when it came has been placed."""
    rng = seeded_random(parameter("COUNT_BITS"))
    most = (1 << int(parameter("COUNT_BITS"))) - 1
    source, sink = await start(dut, rng)
    missing = {}  # index of an invalidation: placements begun before it came
    placing_since = {}  # and whether the receiver still holds addresses from then
    state = {"begun": 0, "placed": 0, "placing": 0}
    taken = left = 0

    async def watch():
        nonlocal taken, left
        while True:
            await RisingEdge(dut.clk)
            if not state["placing"]:
                for index in placing_since:
                    # What the segment began meanwhile counts too.
                    if placing_since[index]:
                        missing[index] = max(missing[index], state["begun"])
                    placing_since[index] = False
            if dut.i__valid.value and dut.i__ready.value:
                missing[taken] = state["begun"]
                placing_since[taken] = bool(state["placing"])
                taken += 1
            if dut.o__valid.value and dut.o__ready.value:
                if int(dut.o__payload.value) >> 2 + 16 & 0xF == INVALIDATION:
                    assert not placing_since[left], f"report {left} before its segment ended"
                    assert state["placed"] >= missing[left], f"report {left} is too early"
                left += 1

    cocotb.start_soon(watch())
    opcodes = [rng.choice([INVALIDATION, 3]) for _ in range(60)]
    source.put_all({"index": index, "opcode": opcode} for index, opcode in enumerate(opcodes))
    got = []
    while len(got) < len(opcodes):
        under_way = state["begun"] - state["placed"]
        begun = state["placing"] and under_way < most and rng.random() < 0.3
        placed = state["placed"] < state["begun"] and rng.random() < 0.3
        dut.begun.value, dut.placed.value = int(begun), int(placed)
        dut.placing.value = state["placing"]
        await RisingEdge(dut.clk)
        state["begun"] += begun
        state["placed"] += placed
        if rng.random() < 0.1:
            state["placing"] ^= 1
        got += sink.take_all()
    assert [item["index"] for item in got] == list(range(len(opcodes)))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_an_invalidation_waits_for_the_receiver_and_for_what_it_began(dut):
    source, sink = await start(dut, seeded_random())
    dut.placing.value = 1
    source.put_all([{"index": 1, "opcode": INVALIDATION}, {"index": 2, "opcode": 3}])
    await cycles(dut, 100)
    assert not len(sink)
    dut.begun.value = 1
    await ClockCycles(dut.clk, 2)
    dut.begun.value, dut.placing.value = 0, 0
    for _ in range(2):
        await cycles(dut, 100)
        assert not len(sink)
        dut.placed.value = 1
        await RisingEdge(dut.clk)
        dut.placed.value = 0
    # What begins now is none of its business.
    dut.begun.value = 1
    await RisingEdge(dut.clk)
    dut.begun.value = 0
    assert [item["index"] for item in await sink.get_many(2)] == [1, 2]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_an_invalidation_waits_for_the_atomics_of_then(dut):
    source, sink = await start(dut, seeded_random())
    marks = Pulses(dut, dut.mark)
    source.put_all([{"index": 1, "opcode": 3}, {"index": 2, "opcode": 3}])
    await sink.get_many(2)
    assert marks.count == 0
    for index in range(5):
        dut.placing.value = 1
        source.put_all([{"index": index, "opcode": INVALIDATION}, {"index": 9, "opcode": 3}])
        await cycles(dut, 100)
        # Atomics that begin meanwhile count.
        assert marks.count == index
        dut.placing.value = 0
        while not dut.mark.value:
            await RisingEdge(dut.clk)
        dut.passed.value = 0
        await cycles(dut, 100)
        assert not len(sink) and marks.count == index + 1
        dut.passed.value = 1
        assert [item["index"] for item in await sink.get_many(2)] == [index, 9]


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def check_an_invalidation_leaves_after_any_number_of_placements(dut):
    """It is held by an atomic while more is placed than any count holds, up to 16 bits."""
    source, sink = await start(dut, seeded_random())
    most = (1 << int(parameter("COUNT_BITS"))) - 1
    for number, turns in enumerate((most // 2 + 2, most + 2, (1 << 15) + 2, (1 << 16) + 2)):
        dut.begun.value = 1
        await cycles(dut, most)
        dut.begun.value = dut.passed.value = 0
        source.put({"index": number, "opcode": INVALIDATION})
        await cycles(dut, 40)
        dut.placed.value = 1
        await RisingEdge(dut.clk)
        dut.begun.value = 1
        await cycles(dut, turns)
        dut.begun.value = 0
        await cycles(dut, most - 1)
        dut.placed.value = 0
        assert not len(sink)
        dut.passed.value = 1
        assert (await sink.get())["index"] == number
