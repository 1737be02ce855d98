"""A prompt FIFO keeps order, loses nothing, and costs one cycle."""

import cocotb
import pytest
from amaranth.lib import data
from cocotb.triggers import ClockCycles

from stagecoach.gateware.stream.prompt_fifo import PromptFifo
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb
from tests.support.timeline import Timeline, high, passes

ITEM = data.StructLayout({"a": 9, "b": 5})


@pytest.mark.parametrize("depth", [2, 4])
@pytest.mark.parametrize("pattern", ["always", "random", "bursty", "slow"])
def test_prompt_fifo(pattern, depth):
    parameters = {"PATTERN": pattern, "DEPTH": str(depth)}
    run_cocotb(PromptFifo(ITEM, depth), __name__, parameters=parameters)


def test_depth_is_checked():
    with pytest.raises(ValueError, match="depth is 1"):
        PromptFifo(ITEM, 1)


def items_of(rng, count):
    return [{"a": rng.randrange(512), "b": rng.randrange(32)} for _ in range(count)]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_items_leave_in_order(dut):
    rng = seeded_random()
    pattern = parameter("PATTERN")
    source = StreamSource(dut, "i", ITEM, rng=rng, pattern=pattern)
    sink = StreamSink(dut, "o", ITEM, rng=rng, pattern=pattern)
    StreamMonitor(dut, "o")
    await start_clock_and_reset(dut)
    for source_pattern, sink_pattern in (
        (pattern, pattern),
        ("always", pattern),
        (pattern, "always"),
    ):
        source.set_pattern(source_pattern, rng)
        sink.set_pattern(sink_pattern, rng)
        items = items_of(rng, 200)
        source.put_all(items)
        assert await sink.get_many(len(items)) == items


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_it_holds_its_depth_and_costs_one_cycle(dut):
    rng, depth = seeded_random(), int(parameter("DEPTH"))
    source = StreamSource(dut, "i", ITEM)
    sink = StreamSink(dut, "o", ITEM)
    time = Timeline(dut, i=passes(dut, "i"), o=high(dut.o__valid))
    await start_clock_and_reset(dut)
    sink.paused = True
    items = items_of(rng, depth + 3)
    source.put_all(items)
    await ClockCycles(dut.clk, 20)
    assert (source.sent, int(dut.level.value)) == (depth, depth - 1)
    assert time.latency("i", "o") == 1
    sink.paused = False
    assert await sink.get_many(len(items)) == items
    await ClockCycles(dut.clk, 5)
    time.clear()
    source.put_all(items)
    await time.wait_for("o", len(items))
    assert time.at["o"] == [cycle + 1 for cycle in time.at["i"]]
    assert time.interval("i") == 1
