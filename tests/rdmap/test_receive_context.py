"""The receiver finds again what it kept of every QP."""

import cocotb
from cocotb.triggers import RisingEdge

from gateware.config import RnicConfig
from gateware.interfaces import Layouts
from gateware.rdmap.receive_context import CONTEXT, ReceiveContexts
from tests.support.runner import run_cocotb
from tests.support.streams import pack, seeded_random, start_clock_and_reset, width_of

CONFIG = RnicConfig(qps=4)
COMMAND = Layouts(CONFIG).qp_command
CYCLES = 2000


def test_receive_contexts():
    run_cocotb(ReceiveContexts(CONFIG), __name__)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_every_qp_has_its_own(dut):
    rng = seeded_random()
    dut.write.value = dut.set_pd.value = dut.set_ird.value = 0
    await start_clock_and_reset(dut)
    contexts, pds, irds = ([0] * CONFIG.qps for _ in range(3))
    # What the outputs must be: driven after an edge, in them two cycles later.
    expected = []
    for cycle in range(CYCLES):
        if cycle >= 3:
            found = int(dut.found.value), int(dut.pd.value), int(dut.ird.value)
            assert found == expected[cycle - 3]
        next_qp, qp = rng.randrange(CONFIG.qps), rng.randrange(CONFIG.qps)
        dut.next_qp.value, dut.qp.value = next_qp, qp
        expected.append((contexts[next_qp], pds[qp], irds[qp]))

        write_qp, context = rng.randrange(CONFIG.qps), rng.getrandbits(width_of(CONTEXT))
        command_qp, pd = rng.randrange(CONFIG.qps), rng.getrandbits(16)
        ird = rng.randint(0, CONFIG.read_queue_depth)
        write, set_pd, set_ird = (rng.random() < 0.3 for _ in range(3))
        dut.write_qp.value, dut.context.value = write_qp, context
        dut.command.value = pack(COMMAND, qp=command_qp, pd=pd, ird=ird)
        dut.write.value = int(write)
        dut.set_pd.value, dut.set_ird.value = int(set_pd), int(set_ird)
        if write:
            contexts[write_qp] = context
        if set_pd:
            pds[command_qp] = pd
        if set_ird:
            irds[command_qp] = ird
        await RisingEdge(dut.clk)
