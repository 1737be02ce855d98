"""The four Sends: how they are posted, how they complete, and what an invalidated STag is then."""

import re

import pytest

from stagecoach.host_driver import (
    MR,
    PD,
    QP,
    SGE,
    AccessFlags,
    Context,
    QPCap,
    QPInitAttr,
    RecvWR,
    ResourceError,
    SendFlags,
    SendWR,
    WCFlags,
    WCOpcode,
    WROpcode,
    registers,
)
from stagecoach.host_driver.device import CommandOpcode
from stagecoach.hw.interface import queue_entries
from stagecoach.hw.interface.queue_entries import CompletionFlags, CompletionOpcode, SendOpcode
from tests.host_driver.fake_device import STAGS_LOG2, FakeDevice, send_entry

SIGNALED, SOLICITED = SendFlags.SIGNALED, SendFlags.SOLICITED
RECEIVE = CompletionOpcode.RECEIVE


@pytest.mark.requirement("RDMAP-3.2-01")
@pytest.mark.parametrize(
    ("opcode", "flags", "expected"),
    [
        (WROpcode.SEND, SIGNALED, SendOpcode.SEND),
        (WROpcode.SEND, SOLICITED, SendOpcode.SEND_WITH_SE),
        (WROpcode.SEND_WITH_INV, SIGNALED, SendOpcode.SEND_WITH_INVALIDATE),
        (
            WROpcode.SEND_WITH_INV,
            SIGNALED | SOLICITED,
            SendOpcode.SEND_WITH_SE_AND_INVALIDATE,
        ),
        (WROpcode.RDMA_WRITE, SIGNALED, SendOpcode.RDMA_WRITE),
        (WROpcode.RDMA_READ, SIGNALED, SendOpcode.RDMA_READ),
    ],
)
def test_operation_and_flags_choose_the_message(connected, opcode, flags, expected):
    request = SendWR(7, opcode, [SGE(0x1000, 5, 0xA1)], flags, rkey=0x11223344)
    connected.qp.post_send(request)
    entry = send_entry(connected, 0)
    assert entry["opcode"] == expected
    assert entry["remote_stag"] == 0x11223344
    # What is solicited is in the opcode; the device has one flag.
    signaled = queue_entries.SendFlags.SIGNALED if flags & SIGNALED else 0
    assert entry["flags"] == signaled
    connected.device.complete(0, 0, 0, expected, 5)
    (completion,) = connected.cq.wait()
    kinds = {WROpcode.RDMA_WRITE: WCOpcode.RDMA_WRITE, WROpcode.RDMA_READ: WCOpcode.RDMA_READ}
    assert completion.opcode == kinds.get(opcode, WCOpcode.SEND)
    assert (completion.wc_flags, completion.invalidated_rkey) == (0, 0)
    assert completion.describe() == f"{completion.opcode.name} 7 of QP 0: SUCCESS, 5 bytes"


@pytest.mark.parametrize("opcode", [WROpcode.RDMA_WRITE, WROpcode.RDMA_READ])
def test_only_sends_are_solicited(connected, opcode):
    wrong = SendWR(2, opcode, send_flags=SIGNALED | SOLICITED)
    message = f"{opcode.name} with SOLICITED; allowed: with SEND, SEND_WITH_INV"
    with pytest.raises(ValueError, match=re.escape(message)):
        connected.qp.post_send(SendWR(1), wrong)
    assert connected.device.doorbells == []


@pytest.mark.parametrize("flags", [16, 1 << 20 | SIGNALED, -1])
def test_flags_that_do_not_exist_are_not_ignored(connected, flags):
    message = f"SendWR.send_flags is {flags:#x}; allowed: SIGNALED, SOLICITED, FENCE, INLINE"
    with pytest.raises(ValueError, match=re.escape(message)):
        connected.qp.post_send(SendWR(1, send_flags=flags))
    assert connected.device.doorbells == []


@pytest.mark.requirement("RDMAP-3.2-02")
@pytest.mark.parametrize("solicited", [False, True])
@pytest.mark.parametrize("invalidated", [None, 0, 0xABCD0123])
def test_a_receive_says_what_kind_of_send_it_was(connected, solicited, invalidated):
    connected.qp.post_recv(RecvWR(5))
    flags = CompletionFlags.SOLICITED if solicited else CompletionFlags(0)
    if invalidated is not None:
        flags |= CompletionFlags.INVALIDATED
    # Without the flag the field means nothing.
    stag = 0xFFFFFFFF if invalidated is None else invalidated
    connected.device.complete(0, 0, 0, RECEIVE, 9, flags=flags, invalidated_stag=stag)
    (completion,) = connected.cq.wait()
    assert completion.opcode == WCOpcode.RECV
    assert bool(completion.wc_flags & WCFlags.SOLICITED) == solicited
    assert bool(completion.wc_flags & WCFlags.WITH_INV) == (invalidated is not None)
    assert completion.invalidated_rkey == (invalidated or 0)
    text = "RECV 5 of QP 0: SUCCESS, 9 bytes"
    text += ", solicited" if solicited else ""
    text += "" if invalidated is None else f", STag 0x{invalidated:08x} invalidated"
    assert completion.describe() == text


def test_libibverbs_has_the_same_number_for_an_invalidation():
    assert WCFlags.WITH_INV == 1 << 3


@pytest.mark.requirement("RDMAP-3.2-04", "DDP-8.2-04", "DDP-8.3-03", "SEC-6.1.1-01")
def test_only_a_region_of_one_qp_is_told_to_the_device_as_such(connected):
    other = QP(connected.pd, QPInitAttr(connected.cq, connected.cq, QPCap(4, 4)))
    device = connected.device
    for qp, scoped in ((None, 0), (connected.qp, 1), (other, 1)):
        MR(connected.pd, bytearray(8), AccessFlags.REMOTE_WRITE, qp=qp)
        assert device.field(registers.STAG_ACCESS, "scoped") == scoped
        number = 0 if qp is None else qp.qp_num
        assert device.field(registers.STAG_QP, "qp") == number
    assert other.qp_num == 1


@pytest.mark.requirement("SEC-A-01")
def test_a_region_knows_that_the_peer_has_invalidated_it(connected):
    mine = MR(connected.pd, bytearray(8), qp=connected.qp)
    other = MR(connected.pd, bytearray(8), qp=connected.qp)
    connected.qp.post_recv(RecvWR(1))
    connected.device.receive_invalidating(0, 0, 0, mine.rkey)
    assert not mine.invalidated
    (completion,) = connected.cq.wait()
    assert completion.invalidated_rkey == mine.rkey
    assert (mine.invalidated, other.invalidated) == (True, False)


def test_the_slot_of_an_invalidated_stag_is_free_only_after_the_close(connected):
    stag = 0x12345601
    region = MR(connected.pd, bytearray(8), qp=connected.qp, stag=stag)
    others = [MR(connected.pd, bytearray(8)) for _ in range((1 << STAGS_LOG2) - 1)]
    connected.qp.post_recv(RecvWR(1))
    connected.device.receive_invalidating(0, 0, 0, stag)
    connected.cq.wait()
    with pytest.raises(ResourceError, match="its slot 6 is in use"):
        MR(connected.pd, bytearray(8), stag=stag + 1)
    with pytest.raises(ResourceError, match="all 16 STags"):
        MR(connected.pd, bytearray(8))
    region.close()
    region.close()
    # What was on its way to or from the buffer is over: the device was asked.
    assert connected.device.commands.count(CommandOpcode.STAG_INVALIDATE) == 1
    assert region.addr not in connected.device.mapped
    after = MR(connected.pd, bytearray(8), stag=stag)
    assert not after.invalidated
    assert set(connected.device.stags) == {stag, *(each.rkey for each in others)}


def test_an_invalidated_region_ends_with_its_qp(connected):
    region = MR(connected.pd, bytearray(8), qp=connected.qp)
    connected.qp.post_recv(RecvWR(1))
    connected.device.receive_invalidating(0, 0, 0, region.rkey)
    connected.cq.wait()
    connected.qp.close()
    assert region.addr not in connected.device.mapped
    assert not connected.context.mrs
    region.close()


@pytest.mark.parametrize("owner", ["no QP", "the same QP", "another QP"])
def test_a_late_completion_does_not_invalidate_the_next_region_of_that_stag(connected, owner):
    connected.qp.post_recv(RecvWR(1))
    with MR(connected.pd, bytearray(8), qp=connected.qp, stag=0x700):
        connected.device.receive_invalidating(0, 0, 0, 0x700)
    other = QP(connected.pd, QPInitAttr(connected.cq, connected.cq, QPCap(4, 4)))
    qp = {"no QP": None, "the same QP": connected.qp, "another QP": other}[owner]
    after = MR(connected.pd, bytearray(8), qp=qp, stag=0x700)
    (completion,) = connected.cq.wait()
    assert completion.invalidated_rkey == 0x700
    assert not after.invalidated


def test_a_hidden_receive_invalidates_too(connected):
    region = MR(connected.pd, bytearray(8), qp=connected.qp)
    connected.qp._post_hidden_recv(RecvWR())
    connected.device.receive_invalidating(0, 0, 0, region.rkey)
    assert connected.cq.poll() == []
    assert region.invalidated


@pytest.mark.requirement("RDMAP-8.1.1-02", "DDP-8.3-03")
def test_a_region_of_one_qp_wants_a_qp_of_its_pd(verbs, device):
    with pytest.raises(ValueError, match=r"QP 0 belongs to PD 0, the region to PD 1; allowed: a"):
        MR(PD(verbs.context), bytearray(8), qp=verbs.qp)
    with Context(FakeDevice()) as other:
        with pytest.raises(ValueError, match=r"QP 0 belongs to another device, the region to PD 0"):
            MR(PD(other), bytearray(8), qp=verbs.qp)
    with pytest.raises(TypeError, match="qp is a int; allowed: QP"):
        MR(verbs.pd, bytearray(8), qp=0)
    assert not device.stags
    assert MR(verbs.pd, bytearray(8), qp=verbs.qp).rkey in device.stags
