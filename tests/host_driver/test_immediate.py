"""Immediate Data: how it is posted, alone and after an RDMA Write, and how it completes."""

import re
from dataclasses import replace

import pytest

from stagecoach.host_driver import (
    QP,
    SGE,
    Cause,
    QPCap,
    QPInitAttr,
    RecvWR,
    ResourceError,
    SendFlags,
    SendWR,
    WCFlags,
    WCOpcode,
    WCStatus,
    WROpcode,
)
from stagecoach.hw.interface import queue_entries
from stagecoach.hw.interface.queue_entries import CompletionFlags, CompletionOpcode, SendOpcode
from tests.host_driver.fake_device import NoStream, send_entry

SIGNALED, SOLICITED, FENCE = SendFlags.SIGNALED, SendFlags.SOLICITED, SendFlags.FENCE
NONE = SendFlags(0)
OCTETS = b"\x01OPAQUE\xfe"
SGES = (SGE(0x1000, 5, 0xA1), SGE(0x2000, 7, 0xA2))


def producer(verbs) -> int:
    name, fields = verbs.device.doorbells[-1]
    assert name == "SEND_DOORBELL"
    return fields["producer"]


def with_immediate(wr_id: int, flags: SendFlags = SIGNALED, opcode=WROpcode.RDMA_WRITE_WITH_IMM):
    sg = SGES if opcode == WROpcode.RDMA_WRITE_WITH_IMM else ()
    return SendWR(wr_id, opcode, sg, flags, remote_addr=0x77, rkey=0x88, imm_data=OCTETS)


def octets_of(entry: dict) -> bytes:
    return entry["immediate_data"].to_bytes(8, "little")


@pytest.mark.requirement("EXT-6.3-06")
@pytest.mark.parametrize(
    ("flags", "opcode", "told"),
    [
        (NONE, SendOpcode.IMMEDIATE, 0),
        (SIGNALED, SendOpcode.IMMEDIATE, queue_entries.SendFlags.SIGNALED),
        (SOLICITED, SendOpcode.IMMEDIATE_WITH_SE, 0),
        (FENCE | SOLICITED, SendOpcode.IMMEDIATE_WITH_SE, queue_entries.SendFlags.FENCE),
    ],
)
def test_immediate_data_is_one_entry_without_elements(connected, flags, opcode, told):
    connected.qp.post_send(SendWR(7, WROpcode.IMM_DATA, send_flags=flags, imm_data=OCTETS))
    entry = send_entry(connected, 0)
    assert (entry["opcode"], entry["flags"]) == (opcode, told)
    assert (entry["element_count"], entry["length"]) == (0, 8)
    assert octets_of(entry) == OCTETS
    assert producer(connected) == 1
    connected.device.complete(0, 0, 0, CompletionOpcode(opcode), 8)
    (completion,) = connected.cq.wait()
    assert (completion.opcode, completion.byte_len) == (WCOpcode.IMM_DATA, 8)
    assert completion.describe() == "IMM_DATA 7 of QP 0: SUCCESS, 8 bytes"


@pytest.mark.parametrize("flags", [NONE, SIGNALED, SOLICITED | SIGNALED, FENCE, FENCE | SIGNALED])
def test_a_write_with_immediate_data_is_two_entries(connected, flags):
    connected.qp.post_send(with_immediate(7, flags))
    write, immediate = send_entry(connected, 0), send_entry(connected, 1)
    assert producer(connected) == 2
    fence = queue_entries.SendFlags.FENCE if flags & FENCE else 0
    assert (write["opcode"], write["flags"]) == (SendOpcode.RDMA_WRITE, fence)
    assert (write["element_count"], write["length"]) == (2, 12)
    assert (write["remote_stag"], write["remote_tagged_offset"]) == (0x88, 0x77)
    assert octets_of(write) == bytes(8)
    solicited = SendOpcode.IMMEDIATE_WITH_SE if flags & SOLICITED else SendOpcode.IMMEDIATE
    signaled = queue_entries.SendFlags.SIGNALED if flags & SIGNALED else 0
    assert (immediate["opcode"], immediate["flags"]) == (solicited, signaled)
    assert (immediate["element_count"], immediate["length"]) == (0, 8)
    assert octets_of(immediate) == OCTETS


def test_a_write_with_immediate_data_has_one_completion(connected):
    connected.qp.post_send(with_immediate(7), SendWR(8))
    # That of the second entry comes after the Write, too.
    connected.device.complete(0, 0, 1, CompletionOpcode.IMMEDIATE, 8)
    (completion,) = connected.cq.wait()
    known = (completion.wr_id, completion.opcode, completion.byte_len, completion.status)
    assert known == (7, WCOpcode.RDMA_WRITE, 12, WCStatus.SUCCESS)
    connected.device.complete(0, 0, 2, CompletionOpcode.SEND, 0)
    assert [wc.wr_id for wc in connected.cq.wait()] == [8]


def test_an_unsignaled_one_completes_silently_with_what_comes_behind(connected):
    connected.qp.post_send(with_immediate(7, NONE), SendWR(8))
    connected.device.complete(0, 0, 2, CompletionOpcode.SEND, 0)
    assert [wc.wr_id for wc in connected.cq.wait()] == [8]
    # All of the queue is free again.
    connected.qp.post_send(with_immediate(9), with_immediate(10))


def test_it_counts_as_two_work_requests(connected):
    connected.qp.post_send(with_immediate(1), SendWR(2))
    message = "2 more work requests for a send queue that holds 4 and has 3; allowed: 1"
    with pytest.raises(ResourceError, match=message):
        connected.qp.post_send(with_immediate(3))
    connected.qp.post_send(SendWR(4))
    connected.device.complete(0, 0, 1, CompletionOpcode.IMMEDIATE, 8)
    connected.cq.wait()
    connected.qp.post_send(with_immediate(5))
    assert producer(connected) == 6


def test_the_numbers_of_its_entries_wrap(connected):
    connected.qp._queues.send.producer = first = (1 << 16) - 10
    for sent in range(first, first + 30, 3):
        connected.qp.post_send(with_immediate(sent, SIGNALED), SendWR(sent + 2))
        connected.device.complete(0, 0, sent + 1 & 0xFFFF, CompletionOpcode.IMMEDIATE, 8)
        connected.device.complete(0, 0, sent + 2 & 0xFFFF, CompletionOpcode.SEND, 0)
        assert [wc.wr_id for wc in connected.cq.wait(2)] == [sent, sent + 2]
    assert not connected.qp._queues.send.posted


@pytest.mark.parametrize("at_fault", [1, 2])
@pytest.mark.parametrize(
    ("cause", "status"),
    [
        (Cause.LOCAL_SEND_PROTECTION, WCStatus.LOC_PROT_ERR),
        (Cause.LOCAL_BAD_ENTRY, WCStatus.LOC_QP_OP_ERR),
        (Cause.UNTAGGED_MSN, WCStatus.WR_FLUSH_ERR),
    ],
)
def test_an_error_in_either_entry_gives_one_completion(connected, at_fault, cause, status):
    connected.qp.post_send(SendWR(1), with_immediate(2), SendWR(3))
    connected.device.event(0, cause, index=at_fault)
    completions = connected.cq.wait(3)
    assert [(wc.wr_id, wc.status) for wc in completions] == [
        (1, WCStatus.WR_FLUSH_ERR),
        (2, status),
        (3, WCStatus.WR_FLUSH_ERR),
    ]
    assert connected.cq.poll() == []


def test_it_is_flushed_once_after_an_error(connected):
    connected.device.event(0, Cause.LLP_CLOSED)
    connected.context.process_events()
    connected.qp.post_send(with_immediate(1), with_immediate(2, NONE))
    found = [(wc.wr_id, wc.status, wc.opcode) for wc in connected.cq.wait(2)]
    assert found == [(n, WCStatus.WR_FLUSH_ERR, WCOpcode.RDMA_WRITE) for n in (1, 2)]
    assert connected.cq.poll() == []


@pytest.mark.requirement("EXT-6-01")
@pytest.mark.parametrize("solicited", [False, True])
def test_a_receive_brings_the_octets(connected, solicited):
    connected.qp.post_recv(RecvWR(5, SGES))
    flags = CompletionFlags.IMMEDIATE | (CompletionFlags.SOLICITED if solicited else 0)
    connected.device.complete(
        0,
        0,
        0,
        CompletionOpcode.RECEIVE,
        8,
        flags=flags,
        # Without its flag the field means nothing.
        invalidated_stag=0x77777777,
        immediate_data=int.from_bytes(OCTETS, "little"),
    )
    (completion,) = connected.cq.wait()
    assert completion.opcode == WCOpcode.RECV_RDMA_WITH_IMM
    assert (completion.imm_data, completion.byte_len) == (OCTETS, 8)
    assert completion.wc_flags == WCFlags.WITH_IMM | (WCFlags.SOLICITED if solicited else 0)
    assert completion.invalidated_rkey == 0
    text = "RECV_RDMA_WITH_IMM 5 of QP 0: SUCCESS, 8 bytes"
    text += ", solicited" if solicited else ""
    assert completion.describe() == f"{text}, Immediate Data {OCTETS.hex()}"


def test_another_receive_has_none(connected):
    connected.qp.post_recv(RecvWR(5))
    connected.device.complete(0, 0, 0, CompletionOpcode.RECEIVE, 8, immediate_data=1)
    (completion,) = connected.cq.wait()
    assert (completion.opcode, completion.imm_data) == (WCOpcode.RECV, b"")


def test_libibverbs_has_the_same_numbers():
    assert WCFlags.WITH_IMM == 1 << 1
    assert WCOpcode.RECV == 1 << 7
    assert WCOpcode.RECV_RDMA_WITH_IMM == WCOpcode.RECV + 1


@pytest.mark.parametrize("opcode", [WROpcode.IMM_DATA, WROpcode.RDMA_WRITE_WITH_IMM])
def test_its_octets_are_needed(connected, opcode):
    wrong = SendWR(1, opcode)
    message = f"{opcode.name} without imm_data; allowed: with it IMM_DATA, RDMA_WRITE_WITH_IMM"
    with pytest.raises(ValueError, match=message):
        connected.qp.post_send(SendWR(0), wrong)
    assert connected.device.doorbells == []


@pytest.mark.parametrize(
    "opcode", [o for o in WROpcode if o not in (WROpcode.IMM_DATA, WROpcode.RDMA_WRITE_WITH_IMM)]
)
def test_no_other_operation_has_them(connected, opcode):
    with pytest.raises(ValueError, match=f"{opcode.name} with imm_data; allowed"):
        connected.qp.post_send(SendWR(1, opcode, imm_data=OCTETS))
    assert connected.device.doorbells == []


def test_eight_octets_without_elements_are_allowed(connected):
    for wrong in (b"", bytes(7), bytes(9)):
        message = f"SendWR.imm_data has {len(wrong)} bytes; allowed: 8"
        with pytest.raises(ValueError, match=re.escape(message)):
            SendWR(1, WROpcode.IMM_DATA, imm_data=wrong)
    with pytest.raises(TypeError, match=re.escape("SendWR.imm_data is 5; allowed: 8 bytes")):
        SendWR(1, WROpcode.IMM_DATA, imm_data=5)
    with pytest.raises(ValueError, match="IMM_DATA with 2 elements; allowed: none"):
        connected.qp.post_send(SendWR(1, WROpcode.IMM_DATA, SGES, imm_data=OCTETS))
    five = [SGES[0]] * 5
    with pytest.raises(ValueError, match="5 scatter/gather elements; allowed: 0 to 4"):
        connected.qp.post_send(SendWR(1, WROpcode.RDMA_WRITE_WITH_IMM, five, imm_data=OCTETS))
    assert connected.device.doorbells == []


def test_a_queue_of_one_holds_no_write_with_immediate_data(verbs):
    qp = QP(verbs.pd, QPInitAttr(verbs.cq, verbs.cq, QPCap(1, 1), rfc7306=True))
    qp.connect(NoStream(), initiator=True, crc=True, ord=3, ird=2, emss=1460)
    with pytest.raises(ResourceError, match="2 more work requests for a send queue that holds 1"):
        qp.post_send(with_immediate(1))
    qp.post_send(with_immediate(1, opcode=WROpcode.IMM_DATA))


@pytest.mark.parametrize("opcode", [WROpcode.IMM_DATA, WROpcode.ATOMIC_FETCH_AND_ADD])
def test_what_the_device_does_not_have_is_not_posted(connected, opcode):
    attr = connected.context.attr
    connected.context.attr = replace(attr, imm_data=False, atomics=())
    octets = OCTETS if opcode == WROpcode.IMM_DATA else None
    with pytest.raises(ValueError, match=f"{opcode.name}; this device has"):
        connected.qp.post_send(SendWR(1, opcode, imm_data=octets))
