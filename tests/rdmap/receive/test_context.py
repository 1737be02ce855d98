"""The receiver finds again what it kept of every QP."""

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.rdmap.receive.context import CONTEXT, ReceiveContexts
from stagecoach.sim.cosim.streams import pack, seeded_random, start_clock_and_reset, width_of
from tests.support.runner import run_cocotb

CONFIG = RnicConfig(qps=4)
COMMAND = Layouts(CONFIG).qp_command
CYCLES = 2000


def test_receive_contexts():
    run_cocotb(ReceiveContexts(CONFIG), __name__)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_every_qp_has_its_own(dut):
    rng = seeded_random()
    dut.write.value = dut.set_pd.value = dut.connect.value = 0
    await start_clock_and_reset(dut)
    contexts, pds, irds, extended = ([0] * CONFIG.qps for _ in range(4))
    # What the outputs must be: driven after an edge, in them two cycles later, `rfc7306` one.
    expected = []
    opcodes = []
    for cycle in range(CYCLES):
        if cycle >= 3:
            found = int(dut.found.value), int(dut.pd.value), int(dut.ird.value)
            assert found == expected[cycle - 3]
            assert int(dut.rfc7306.value) == opcodes[cycle - 2]
        next_qp, qp = rng.randrange(CONFIG.qps), rng.randrange(CONFIG.qps)
        dut.next_qp.value, dut.qp.value = next_qp, qp
        expected.append((contexts[next_qp], pds[qp], irds[qp]))
        opcodes.append(extended[next_qp])

        write_qp, context = rng.randrange(CONFIG.qps), rng.getrandbits(width_of(CONTEXT))
        command_qp, pd = rng.randrange(CONFIG.qps), rng.getrandbits(16)
        ird, rfc7306 = rng.randint(0, CONFIG.read_queue_depth), rng.getrandbits(1)
        write, set_pd, connect = (rng.random() < 0.3 for _ in range(3))
        dut.write_qp.value, dut.context.value = write_qp, context
        dut.command.value = pack(COMMAND, qp=command_qp, pd=pd, ird=ird, rfc7306=rfc7306)
        dut.write.value = int(write)
        dut.set_pd.value, dut.connect.value = int(set_pd), int(connect)
        if write:
            contexts[write_qp] = context
        if set_pd:
            pds[command_qp] = pd
        if connect:
            irds[command_qp], extended[command_qp] = ird, rfc7306
        await RisingEdge(dut.clk)
