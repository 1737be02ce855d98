"""The receive CQ of a QP is the one that its last CREATE named, a cycle after it is asked for."""

import pytest
from amaranth.sim import Simulator

from stagecoach.gateware.layouts import Layouts, QpCommandKind
from stagecoach.gateware.queues.cq_map import CqMap
from stagecoach.sim.cosim.streams import pack, seeded_random
from tests.support.sizes import LARGEST, SMALLEST

CYCLES = 2000


@pytest.mark.parametrize("config", [SMALLEST, LARGEST], ids=["smallest", "largest"])
def test_cq_map(config):
    dut, rng = CqMap(config), seeded_random(config.qps)
    command = Layouts(config).qp_command
    kinds = [QpCommandKind.CREATE, *QpCommandKind]

    async def bench(ctx):
        cqs = {}  # by QP, of those that were created
        asked = expected = None
        answers = 0
        for _ in range(CYCLES):
            if expected is not None:
                assert ctx.get(dut.cq) == expected, asked
                answers += 1
            asked, created = rng.randrange(config.qps), rng.randrange(config.qps)
            kind, cq, taken = rng.choice(kinds), rng.randrange(config.cqs), rng.getrandbits(1)
            fields = {"kind": kind.value, "qp": created, "receive_cq": cq}
            fields["send_cq"] = rng.randrange(config.cqs)
            ctx.set(dut.qp, asked)
            ctx.set(dut.taken, taken)
            ctx.set(dut.command.as_value(), pack(command, fields))
            changes = taken and kind is QpCommandKind.CREATE
            # What a memory answers about a word that is written is not said.
            expected = None if changes and created == asked else cqs.get(asked)
            if changes:
                cqs[created] = cq
            await ctx.tick()
        assert answers > CYCLES // 3

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
