"""Every unit that a QP may have on chip has a place of its own, and the memory has no other one."""

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.queues.prefetch_memory import LANE_UNITS, PrefetchMemory

LAST = 2**16 - 1
"""After this number of a unit comes 0."""


# 64 QPs with 8 units each have as much as 16 lanes with 32.
@pytest.mark.parametrize("own_units", [2, 4, 8])
@pytest.mark.parametrize("lanes", [2, 16])
@pytest.mark.parametrize("qps", [2, 64, 256])
def test_prefetch_memory(qps, lanes, own_units):
    memory = PrefetchMemory(RnicConfig(qps=qps, prefetch_lanes=lanes), own_units)
    in_lane, is_in_lane = Signal(), Signal()
    lane, lane_of = Signal(range(lanes)), Signal(range(lanes))
    qp, number = Signal(range(qps)), Signal(16)
    address = Signal(memory.address_bits)
    m = Module()
    given = memory.address(in_lane, lane, qp, number)
    m.d.comb += [
        address.eq(given),
        is_in_lane.eq(memory.is_in_lane(address)),
        lane_of.eq(memory.lane(address)),
    ]
    assert len(given) == memory.address_bits

    async def bench(ctx):
        def place(first, count):
            """Addresses of `count` units of the chosen QP or lane."""
            found = []
            for one in range(first, first + count):
                ctx.set(number, one % (LAST + 1))
                found.append(ctx.get(address))
                assert ctx.get(is_in_lane) == ctx.get(in_lane)
                assert not ctx.get(in_lane) or ctx.get(lane_of) == ctx.get(lane)
            return found

        places = []
        for chosen, owner, owners, units in (
            (0, qp, qps, own_units),
            (1, lane, lanes, LANE_UNITS),
        ):
            ctx.set(in_lane, chosen)
            for each in range(owners):
                ctx.set(owner, each)
                # Neither the other owner nor the numbers before or after a wrap matter.
                ctx.set(lane if owner is qp else qp, each % 2)
                places.append(place(0, units))
                assert sorted(place(LAST, units)) == sorted(places[-1])
        taken = [one for owned in places for one in owned]
        # The highest bit of an address says in which part it is; the larger part comes first.
        own, in_lanes = qps * own_units, lanes * LANE_UNITS
        assert memory.parts == (max(own, in_lanes), min(own, in_lanes))
        first, second = memory.parts
        begin = 1 << (memory.address_bits - 1)
        assert first <= begin
        assert sorted(taken) == [*range(first), *range(begin, begin + second)]
        ctx.set(in_lane, int(in_lanes >= own))
        assert max(place(0, own_units)) < begin

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()
