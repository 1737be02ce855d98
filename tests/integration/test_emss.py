"""The EMSS of a connection changes while FPDUs leave (RFC 5044, 4.5)."""

import itertools

import cocotb
import pytest

from stagecoach.gateware.rnic import JOBS_AHEAD
from stagecoach.host_driver import WROpcode
from stagecoach.sim.cosim.device import CocotbDevice, start_clock
from stagecoach.sim.cosim.runner import run_cocotb
from stagecoach.sim.model import mpa
from tests.integration.pair_traffic import REGION_OCTETS, Operation, run_ends
from tests.integration.test_pair import PAIR

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

EMSS = (512, 1460, 536)
WRITES = 20
FPDUS_AHEAD = JOBS_AHEAD + 4
"""FPDUs that may be on their way to the LLP with the MULPDU that held before: in the queues of
jobs, in the two halves of the transmitter, in assembler and framer."""

CHANGE_AFTER = 2 * FPDUS_AHEAD


@pytest.mark.requirement("DDP-3-02", "DDP-3-03", "MPA-3-02")
def test_the_mulpdu_follows_the_emss():
    run_cocotb(PAIR, __name__, ports_only=True)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_emss_changes_while_fpdus_leave(dut):
    announced = itertools.cycle([*EMSS[1:], EMSS[0]])
    devices = [CocotbDevice(dut, prefix, emss=EMSS[0]) for prefix in ("a_", "b_")]
    llp = devices[0].llp
    now = [EMSS[0], 0]  # what holds, and FPDUs since
    counts = dict.fromkeys(EMSS, 0)  # FPDUs that were as long as they might be

    def see(connection: int, fpdu: bytes) -> None:
        emss, since = now
        ulpdu_length = int.from_bytes(fpdu[:2], "big")
        longest = mpa.mulpdu(emss)
        if since > FPDUS_AHEAD:
            assert ulpdu_length <= longest, (ulpdu_length, emss)
            counts[emss] += ulpdu_length == longest
        now[1] += 1
        if since == CHANGE_AFTER:
            now[:] = next(announced), 0
            llp.announce_emss(connection, now[0])

    llp.on_fpdu = see
    writes = [Operation(WROpcode.RDMA_WRITE, REGION_OCTETS, 0, 0)] * WRITES
    doing = [[*writes, Operation(WROpcode.SEND, 1, 0, 0)]]
    await start_clock(dut)
    for device in devices:
        device.start()
    await run_ends(devices, (1, 2), (doing, [[]]))
    print(f"FPDUs of MULPDU octets by EMSS: {counts}")
    assert all(counts.values())
