"""The gateware's opcodes and Terminates are the RFCs' own octets, whatever the model says."""

import cocotb
import pytest
from cocotb.triggers import ClockCycles

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import TERMINATED_HEADER_OCTETS, Layouts
from stagecoach.gateware.rdmap.checks import QUEUES, TAGGED_OPCODES
from stagecoach.gateware.rdmap.headers import Opcode
from stagecoach.gateware.rdmap.transmit.terminate import TransmitTerminate
from stagecoach.hw.interface.causes import Cause
from stagecoach.sim.cosim.streams import pack, seeded_random, start_clock_and_reset
from tests.sim.model.rfc_octets import OPCODES, TERMINATES, ulpdu_of
from tests.support.runner import run_cocotb

CONFIG = RnicConfig()
TERMINATION = Layouts(CONFIG).termination


@pytest.mark.requirement("RDMAP-4.8-01", "RDMAP-4.8-02", "RDMAP-4.8-03", "DDP-7.2-01")
@pytest.mark.requirement("EXT-8.1-01", "EXT7306-8.2-01")
def test_terminates_of_the_gateware() -> None:
    run_cocotb(TransmitTerminate(CONFIG), __name__)


@pytest.mark.parametrize("name", OPCODES)
def test_opcodes_of_the_gateware(name: str) -> None:
    row = OPCODES[name]
    assert Opcode[name].value == row.opcode, row.section
    assert QUEUES.get(Opcode[name]) == row.queue
    assert (Opcode[name] in TAGGED_OPCODES) == (row.controls[0] == "c")


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_terminates_are_the_octets_of_the_rfcs(dut):
    rng = seeded_random()
    await start_clock_and_reset(dut)
    for cause in Cause:
        row = TERMINATES.get(cause.name)
        ulpdu = ulpdu_of(row) if row else rng.randbytes(60)
        header = ulpdu[:TERMINATED_HEADER_OCTETS]
        header += rng.randbytes(TERMINATED_HEADER_OCTETS - len(header))
        dut.termination.value = pack(
            TERMINATION,
            qp=rng.randrange(CONFIG.qps),
            may_send=1,
            cause=int(cause),
            ulpdu_length=len(ulpdu),
            header=int.from_bytes(header, "little"),
        )
        await ClockCycles(dut.clk, 3)
        if row is None:
            assert not dut.speak.value, cause.name
            continue
        assert dut.speak.value, cause.name
        octets = int(dut.octets.value)
        sent = int(dut.header.value).to_bytes(len(dut.header) // 8, "little")[:octets]
        assert sent.hex() == row.terminate, (cause.name, row.section)
