"""The bit of a QP comes two cycles after it was asked for, as it was then."""

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from stagecoach.gateware.queues.qp_choice import GROUP, bit_of_qp
from stagecoach.sim.cosim.streams import seeded_random

CYCLES = 600


@pytest.mark.parametrize("announced", [False, True], ids=["stands", "announced"])
@pytest.mark.parametrize("qps", [2, GROUP, 2 * GROUP, 256])
def test_bit_of_qp(qps, announced):
    """A QP stands for two cycles, or is announced by `coming` and may be another one in each."""
    rng = seeded_random(qps, announced)
    bits, qp, coming = Signal(qps), Signal(range(qps)), Signal(range(qps))
    m = Module()
    chosen = bit_of_qp(m, bits, qp, coming if announced else None)

    async def bench(ctx):
        asked = 0
        expected = []
        for cycle in range(CYCLES):
            ctx.set(bits, value := rng.getrandbits(qps))
            ctx.set(qp, asked)
            if announced:
                # What is asked for now is at `qp` in the next cycle.
                asked = rng.randrange(qps)
                ctx.set(coming, asked)
                expected.append(value >> asked & 1)
            else:
                expected.append(value >> asked & 1 if cycle % 2 == 0 else None)
                asked = rng.randrange(qps) if cycle % 2 else asked
            if cycle >= 2 and expected[cycle - 2] is not None:
                assert ctx.get(chosen) == expected[cycle - 2], cycle
            await ctx.tick()

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
