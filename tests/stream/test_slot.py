"""A stream slot keeps order, loses nothing, and shows nothing of its inputs within a cycle."""

import pytest
from amaranth.hdl import Value
from amaranth.lib import data
from amaranth.sim import Simulator

from stagecoach.gateware.stream.slot import StreamSlot
from stagecoach.sim.cosim.streams import active_cycles, seeded_random, width_of

ITEM = data.StructLayout({"a": 9, "b": 5})
CYCLES = 400


@pytest.mark.parametrize("shape", [1, ITEM], ids=["one bit", "a structure"])
@pytest.mark.parametrize("sink", ["always", "random", "bursty"])
@pytest.mark.parametrize("source", ["always", "random", "bursty"])
def test_items_leave_in_order_a_cycle_after_they_came(source, sink, shape):
    dut, rng = StreamSlot(shape), seeded_random(source, sink, shape)
    source_active, sink_active = active_cycles(source, rng), active_cycles(sink, rng)
    taken, left = [], []

    async def bench(ctx):
        i_payload, o_payload = (Value.cast(port.payload) for port in (dut.i, dut.o))
        kept = None  # the item in the slot
        for cycle in range(CYCLES):
            coming, ready = int(next(source_active)), int(next(sink_active))
            # Whatever else is at the inputs before the end of the cycle changes no output.
            for _ in range(3):
                ctx.set(dut.i.valid, rng.getrandbits(1))
                ctx.set(i_payload, item := rng.getrandbits(width_of(shape)))
                ctx.set(dut.o.ready, rng.getrandbits(1))
                assert ctx.get(dut.i.ready) == (kept is None)
                assert ctx.get(dut.o.valid) == (kept is not None)
                assert kept in (None, ctx.get(o_payload))
            ctx.set(dut.i.valid, coming)
            ctx.set(dut.o.ready, ready)
            if kept is None and coming:
                kept = item
                taken.append(cycle)
            elif kept is not None and ready:
                left.append(cycle)
                kept = None
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert len(left) >= CYCLES // 20
    if source == sink == "always":
        assert taken == list(range(0, CYCLES, 2))
        assert left == list(range(1, CYCLES, 2))
