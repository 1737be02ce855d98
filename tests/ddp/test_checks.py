"""The checks of a DDP Segment give the cause whose code the reference model gives."""

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import Timer

from stagecoach.gateware.ddp.checks import (
    CAUSE_BITS,
    first_cause,
    header_checks,
    queue_checks,
    tagged_status_checks,
    untagged_checks,
)
from stagecoach.gateware.ddp.headers import UNTAGGED_HEADER
from stagecoach.gateware.layouts import StagStatus
from stagecoach.hw.interface.causes import CODES, Cause
from stagecoach.hw.interface.wire import UNTAGGED_HEADER_OCTETS
from stagecoach.sim.cosim.streams import seeded_random
from stagecoach.sim.model import checks, rdmap
from stagecoach.sim.model.ddp import FLAG_TAGGED
from stagecoach.sim.model.errors import StreamError
from stagecoach.sim.model.rdmap import Opcode
from stagecoach.sim.model.sink import check_header
from tests.support.runner import run_cocotb

LAST_QN = 2
# The opcode of each queue, so that no check of RDMAP fails.
QUEUE_OPCODES = (Opcode.SEND, Opcode.RDMA_READ_REQUEST, Opcode.TERMINATE)
HEADERS = 1000


class Checks(wiring.Component):
    """Each list of `ddp/checks.py` with its inputs and the first cause."""

    header: In(8 * UNTAGGED_HEADER_OCTETS)
    ulpdu_length: In(16)
    header_cause: Out(CAUSE_BITS)
    failed: In(data.StructLayout({"msn": 1, "buffer": 1, "mo": 1}))
    untagged_cause: Out(CAUSE_BITS)
    status: In(StagStatus)
    status_cause: Out(CAUSE_BITS)

    def elaborate(self, platform):
        m = Module()
        header = data.View(UNTAGGED_HEADER, self.header)
        header_list = [
            *header_checks(header.control, self.ulpdu_length),
            *queue_checks(header, LAST_QN),
        ]
        untagged_list = untagged_checks(
            wrong_msn=self.failed.msn,
            no_buffer=self.failed.buffer,
            no_buffer_cause=Cause.UNTAGGED_NO_BUFFER,
            wrong_mo=self.failed.mo,
        )
        status_list = tagged_status_checks(self.status, Cause.WRITE_NOT_PERMITTED)
        m.d.comb += [
            self.header_cause.eq(first_cause(header_list)),
            self.untagged_cause.eq(first_cause(untagged_list)),
            self.status_cause.eq(first_cause(status_list)),
        ]
        return m


@pytest.mark.requirement("DDP-4.1-08", "DDP-4.1-10", "DDP-7.1-01", "DDP-7.2-01")
def test_checks():
    run_cocotb(Checks(), __name__)


def code_of(signal):
    """The Terminate code of a cause at an output."""
    return CODES[Cause(int(signal.value))][0]


def random_segment(rng):
    """A ULPDU in which nothing of DDP, or one or two things, are wrong."""
    version = 1 if rng.random() < 0.7 else rng.randrange(4)
    control = rng.choice([0, FLAG_TAGGED]) | rng.getrandbits(5) << 2 | version
    qn = rng.choice([rng.randrange(LAST_QN + 1), 3, 1 << rng.randrange(32), rng.getrandbits(32)])
    opcode = QUEUE_OPCODES[qn] if qn <= LAST_QN else Opcode.SEND
    if control & FLAG_TAGGED:
        opcode = Opcode.RDMA_WRITE
    octets = bytes([control, rdmap.control_octet(opcode)]) + rng.randbytes(4)
    octets += qn.to_bytes(4, "big") + rng.randbytes(40)
    return octets[: rng.choice([rng.randint(0, 20), len(octets)])]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_headers(dut):
    rng = seeded_random()
    seen = set()
    for _ in range(HEADERS):
        segment = random_segment(rng)
        try:
            check_header(segment)
            expected = None
        except StreamError as failure:
            expected = failure.error
        whole = segment + rng.randbytes(UNTAGGED_HEADER_OCTETS)
        dut.header.value = int.from_bytes(whole[:UNTAGGED_HEADER_OCTETS], "little")
        dut.ulpdu_length.value = len(segment)
        await Timer(1, "ns")
        assert code_of(dut.header_cause) == expected, segment.hex()
        seen.add(expected)
    order = (
        checks.ULPDU_HAS_HEADER,
        checks.TAGGED_VERSION,
        checks.UNTAGGED_VERSION,
        checks.QUEUE,
    )
    assert seen == {None, *(check.error for check in order)}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_untagged_order(dut):
    order = [checks.MSN, checks.RECEIVE_BUFFER, checks.MO]
    assert order == [check for check in checks.SEND_ORDER if check in order]
    for failed in range(1 << len(order)):
        dut.failed.value = failed
        await Timer(1, "ns")
        failing = [check.error for bit, check in enumerate(order) if failed >> bit & 1]
        assert code_of(dut.untagged_cause) == (failing[0] if failing else None)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_stag_status(dut):
    expected = [None, *(check.error for check in checks.TARGET.order)]
    for status, error in zip(StagStatus, expected, strict=True):
        dut.status.value = status.value
        await Timer(1, "ns")
        assert code_of(dut.status_cause) == error, status
