"""LOCAL_INV, REG_MR and FENCE: what the driver writes for them, and what it refuses."""

import re

import pytest

from stagecoach.host_driver import (
    MR,
    PD,
    SGE,
    AccessFlags,
    Cause,
    FastMR,
    SendFlags,
    SendWR,
    WCOpcode,
    WCStatus,
    WROpcode,
    entries,
    inc_rkey,
    registers,
)
from stagecoach.hw.interface import queue_entries
from stagecoach.hw.interface.queue_entries import CompletionOpcode, Rights, SendOpcode
from tests.host_driver.fake_device import send_entry

ACCESS = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_READ


def element(entry: dict, number: int = 0) -> dict:
    size = queue_entries.SCATTER_GATHER_ELEMENT_OCTETS
    return entries.ELEMENT.unpack_from(entry["elements"], number * size)


def test_the_key_counts_and_wraps():
    assert inc_rkey(0x12345600) == 0x12345601
    assert inc_rkey(0xFFFFFFFF) == 0xFFFFFF00


@pytest.mark.parametrize("scoped", [False, True])
def test_a_fast_region_begins_invalid(connected, scoped):
    device = connected.device
    MR(connected.pd, bytearray(8))
    assert device.field(registers.STAG_ACCESS, "fast") == 0
    region = FastMR(connected.pd, bytearray(8), qp=connected.qp if scoped else None)
    assert device.field(registers.STAG_ACCESS, "fast") == 1
    assert device.field(registers.STAG_ACCESS, "scoped") == scoped
    assert region.invalidated


def test_a_registration_by_work_request(connected):
    region = FastMR(connected.pd, bytearray(100), addr=0x7000, stag=0xABCDEFFF)
    request = SendWR(3, WROpcode.REG_MR, mr=region, rkey=inc_rkey(region.rkey), access=ACCESS)
    connected.qp.post_send(request)
    entry = send_entry(connected, 0)
    assert entry["opcode"] == SendOpcode.FAST_REGISTER
    assert (entry["element_count"], entry["length"]) == (1, 100)
    assert (entry["remote_stag"], entry["remote_tagged_offset"]) == (0xABCDEF00, 0x7000)
    assert element(entry) == {
        "tagged_offset": region.host_address,
        "length": 100,
        "stag": Rights.LOCAL_READ | Rights.LOCAL_WRITE | Rights.REMOTE_READ,
    }
    assert (region.lkey, region.access, region.invalidated) == (0xABCDEF00, ACCESS, False)
    connected.device.complete(0, 0, 0, CompletionOpcode.FAST_REGISTER, 100)
    (completion,) = connected.cq.wait()
    assert (completion.wr_id, completion.opcode) == (3, WCOpcode.REG_MR)
    assert completion.status == WCStatus.SUCCESS
    region.close()
    assert not connected.context.mrs


def test_a_local_invalidation(connected):
    region = MR(connected.pd, bytearray(8))
    connected.qp.post_send(SendWR(4, WROpcode.LOCAL_INV, rkey=region.rkey))
    entry = send_entry(connected, 0)
    assert entry["opcode"] == SendOpcode.LOCAL_INVALIDATE
    assert (entry["element_count"], entry["length"]) == (0, 0)
    assert entry["remote_stag"] == region.rkey
    assert region.invalidated
    connected.device.complete(0, 0, 0, CompletionOpcode.LOCAL_INVALIDATE)
    (completion,) = connected.cq.wait()
    assert (completion.wr_id, completion.opcode) == (4, WCOpcode.LOCAL_INV)
    region.close()


def test_a_region_of_another_pd_is_not_marked_as_invalidated(connected):
    region = MR(PD(connected.context), bytearray(8))
    connected.qp.post_send(SendWR(4, WROpcode.LOCAL_INV, rkey=region.rkey))
    assert not region.invalidated


def test_a_region_lives_under_its_new_key(connected):
    region = FastMR(connected.pd, bytearray(8), qp=connected.qp)
    first = region.rkey
    for _ in range(3):
        register = SendWR(1, WROpcode.REG_MR, mr=region, rkey=inc_rkey(region.rkey))
        connected.qp.post_send(register)
        assert list(connected.context.mrs) == [region.rkey]
        invalidate = SendWR(2, WROpcode.LOCAL_INV, rkey=region.rkey)
        connected.qp.post_send(invalidate)
        assert region.invalidated
        for index in (len(connected.device.doorbells) - 2, len(connected.device.doorbells) - 1):
            connected.device.complete(0, 0, index, CompletionOpcode.FAST_REGISTER)
        connected.cq.wait(2)
        connected.device.doorbells = [d for d in connected.device.doorbells if d[0][0] == "S"]
    assert region.rkey == inc_rkey(inc_rkey(inc_rkey(first)))


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (SendFlags(0), 0),
        (SendFlags.FENCE, queue_entries.SendFlags.FENCE),
        (
            SendFlags.FENCE | SendFlags.SIGNALED,
            queue_entries.SendFlags.FENCE | queue_entries.SendFlags.SIGNALED,
        ),
        (SendFlags.FENCE | SendFlags.SOLICITED, queue_entries.SendFlags.FENCE),
    ],
)
def test_the_fence_is_told_to_the_device(connected, flags, expected):
    connected.qp.post_send(SendWR(1, send_flags=flags))
    assert send_entry(connected, 0)["flags"] == expected


def test_what_no_device_takes_is_refused(connected):
    pd = connected.pd
    region, closed = FastMR(pd, bytearray(8), stag=0x12345678), FastMR(pd, bytearray(8), stag=0x500)
    closed.close()
    plain = MR(pd, bytearray(8))
    sge = SGE(0, 1, 2)
    wrong = [
        (SendWR(0, WROpcode.REG_MR), TypeError, "REG_MR of None; allowed: a FastMR"),
        (SendWR(0, WROpcode.REG_MR, mr=plain, rkey=plain.rkey), TypeError, "allowed: a FastMR"),
        (
            SendWR(0, WROpcode.REG_MR, mr=region, rkey=0x12345778),
            ValueError,
            "REG_MR as STag 0x12345778; allowed: 0x12345600 to 0x123456ff",
        ),
        (SendWR(0, WROpcode.REG_MR, mr=closed, rkey=0x501), ValueError, "is closed; allowed"),
        (
            SendWR(0, WROpcode.REG_MR, [sge], mr=region, rkey=region.rkey),
            ValueError,
            "REG_MR with 1 elements; allowed: none",
        ),
        (
            SendWR(0, WROpcode.REG_MR, mr=region, rkey=region.rkey, access=AccessFlags(8)),
            ValueError,
            "access is 8; allowed",
        ),
        (SendWR(0, WROpcode.LOCAL_INV, [sge]), ValueError, "LOCAL_INV with 1 elements"),
        (
            SendWR(0, WROpcode.LOCAL_INV, send_flags=SendFlags.SOLICITED),
            ValueError,
            "LOCAL_INV with SOLICITED",
        ),
    ]
    for request, kind, text in wrong:
        with pytest.raises(kind, match=re.escape(text)):
            connected.qp.post_send(SendWR(1), request)
    assert connected.device.doorbells == []
    assert region.invalidated and region.rkey == 0x12345678


def test_a_refused_operation_completes_with_its_own_status(connected):
    for number in range(3):
        connected.qp.post_send(SendWR(number, WROpcode.LOCAL_INV, rkey=5))
    connected.device.event(0, Cause.LOCAL_STAG_OPERATION, index=1)
    completions = connected.cq.wait(3)
    assert [(wc.wr_id, wc.status) for wc in completions] == [
        (0, WCStatus.WR_FLUSH_ERR),
        (1, WCStatus.MW_BIND_ERR),
        (2, WCStatus.WR_FLUSH_ERR),
    ]
    (event,) = connected.context.events
    assert "entry 1 of the send queue" in event.describe()
