"""Every output of a fork gets every item once, in order, whatever the others do."""

import cocotb
import pytest

from stagecoach.gateware.stream.fork import Fork
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("pattern", ["always", "random", "bursty"])
def test_fork(pattern, outputs):
    parameters = {"PATTERN": pattern, "OUTPUTS": str(outputs)}
    run_cocotb(Fork(8, outputs), __name__, parameters=parameters)


def test_fork_needs_an_output():
    with pytest.raises(ValueError, match="outputs is 0"):
        Fork(8, 0)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_every_output_gets_every_item_once(dut):
    rng = seeded_random()
    pattern, outputs = parameter("PATTERN"), int(parameter("OUTPUTS"))
    source = StreamSource(dut, "i", 8, rng=rng, pattern=pattern)
    sinks = [
        StreamSink(dut, f"o__{number}", 8, rng=rng, pattern=pattern) for number in range(outputs)
    ]
    for number in range(outputs):
        StreamMonitor(dut, f"o__{number}")
    await start_clock_and_reset(dut)
    items = [rng.randrange(256) for _ in range(200)]
    source.put_all(items)
    for sink in sinks:
        assert await sink.get_many(len(items)) == items
    await source.wait_idle()
    assert all(len(sink) == 0 for sink in sinks)
