"""A stream FIFO keeps order and loses nothing."""

import cocotb
import pytest
from amaranth.lib import data

from stagecoach.gateware.stream.fifo import StreamFifo
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb

ITEM = data.StructLayout({"a": 9, "b": 5})


@pytest.mark.parametrize("depth", [2, 4])
@pytest.mark.parametrize("pattern", ["always", "random", "slow"])
def test_stream_fifo(pattern, depth):
    run_cocotb(StreamFifo(ITEM, depth), __name__, parameters={"PATTERN": pattern})


def test_depth_is_checked():
    with pytest.raises(ValueError, match="depth is 1"):
        StreamFifo(ITEM, 1)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_items_leave_in_order(dut):
    rng = seeded_random()
    pattern = parameter("PATTERN")
    source = StreamSource(dut, "i", ITEM, rng=rng, pattern=pattern)
    sink = StreamSink(dut, "o", ITEM, rng=rng, pattern=pattern)
    StreamMonitor(dut, "o")
    await start_clock_and_reset(dut)
    items = [{"a": rng.randrange(512), "b": rng.randrange(32)} for _ in range(200)]
    source.put_all(items)
    assert await sink.get_many(len(items)) == items
