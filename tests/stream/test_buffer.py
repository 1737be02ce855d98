"""A stream buffer keeps order, loses nothing, and cuts every path between its two ends."""

import cocotb
import pytest
from amaranth.lib import data
from cocotb.triggers import RisingEdge, Timer

from stagecoach.gateware.stream.buffer import StreamBuffer
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb

ITEM = data.StructLayout({"a": 9, "b": 5})


@pytest.mark.parametrize("sink", ["always", "random", "bursty"])
@pytest.mark.parametrize("source", ["always", "random", "bursty"])
def test_items(source, sink):
    parameters = {"SOURCE": source, "SINK": sink}
    run_cocotb(StreamBuffer(ITEM), __name__, test_filter="check_items", parameters=parameters)


def test_outputs_come_from_registers():
    run_cocotb(StreamBuffer(ITEM), __name__, test_filter="check_no_output")


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_items_leave_in_order(dut):
    rng = seeded_random(parameter("SOURCE"), parameter("SINK"))
    source = StreamSource(dut, "i", ITEM, rng=rng, pattern=parameter("SOURCE"))
    sink = StreamSink(dut, "o", ITEM, rng=rng, pattern=parameter("SINK"))
    monitor = StreamMonitor(dut, "o")
    await start_clock_and_reset(dut)
    items = [{"a": rng.randrange(512), "b": rng.randrange(32)} for _ in range(300)]
    source.put_all(items)
    assert await sink.get_many(len(items)) == items
    if parameter("SOURCE") == parameter("SINK") == "always":
        assert monitor.cycles <= len(items) + 5


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_no_output_changes_with_an_input_inside_a_cycle(dut):
    rng = seeded_random()
    dut.i__valid.value = dut.i__payload.value = dut.o__ready.value = 0
    await start_clock_and_reset(dut)
    seen = set()
    for _ in range(300):
        outputs = set()
        for _ in range(3):
            dut.i__valid.value = rng.getrandbits(1)
            dut.i__payload.value = rng.getrandbits(14)
            dut.o__ready.value = rng.getrandbits(1)
            await Timer(1, "ns")
            outputs.add(
                (int(dut.i__ready.value), int(dut.o__valid.value), int(dut.o__payload.value))
            )
        assert len(outputs) == 1, outputs
        seen |= {(ready, valid) for ready, valid, _ in outputs}
        await RisingEdge(dut.clk)
    assert seen == {(1, 0), (0, 1), (1, 1)}
