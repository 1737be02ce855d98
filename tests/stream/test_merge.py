"""Every item of every input leaves a merge once, in order, and inputs take turns."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.stream.merge import Merge
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb

ITEMS = 200


@pytest.mark.parametrize("inputs", [1, 2, 3])
@pytest.mark.parametrize("pattern", ["always", "random", "bursty"])
def test_merge(pattern: str, inputs: int) -> None:
    parameters = {"PATTERN": pattern, "INPUTS": str(inputs)}
    run_cocotb(Merge(16, inputs), __name__, parameters=parameters)


def test_merge_needs_an_input() -> None:
    with pytest.raises(ValueError, match="inputs is 0"):
        Merge(8, 0)


def ends(dut: Any, pattern: str) -> tuple[list[StreamSource], StreamSink]:
    rng, inputs = seeded_random(), int(parameter("INPUTS"))
    sources = [
        StreamSource(dut, f"i__{number}", 16, rng=rng, pattern=pattern) for number in range(inputs)
    ]
    StreamMonitor(dut, "o")
    return sources, StreamSink(dut, "o", 16, rng=rng, pattern=pattern)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_every_item_leaves_once(dut: Any) -> None:
    sources, sink = ends(dut, parameter("PATTERN"))
    await start_clock_and_reset(dut)
    for number, source in enumerate(sources):
        source.put_all(number << 8 | item for item in range(ITEMS))
    found = await sink.get_many(ITEMS * len(sources))
    for number in range(len(sources)):
        assert [item & 0xFF for item in found if item >> 8 == number] == list(range(ITEMS))
    await ClockCycles(dut.clk, 5)
    assert not len(sink)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_inputs_take_turns_and_no_cycle_is_lost(dut: Any) -> None:
    """While all inputs have items; the first one leaves a cycle after it came."""
    sources, sink = ends(dut, "always")
    await start_clock_and_reset(dut)
    for number, source in enumerate(sources):
        source.put_all(number << 8 | item for item in range(20))
    cycle, came = 0, None
    while len(sink) < 20 * len(sources):
        await RisingEdge(dut.clk)
        cycle += 1
        if dut.i__0__valid.value and came is None:
            came = cycle
    assert came is not None
    assert cycle - came <= 20 * len(sources) + 2
    owners = [item >> 8 for item in sink.take_all()]
    for at in range(0, len(owners), len(sources)):
        assert sorted(owners[at : at + len(sources)]) == list(range(len(sources)))
