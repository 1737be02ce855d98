"""Shared Receive Queues: who has which work request, and what becomes of it."""

from types import SimpleNamespace

import pytest

from stagecoach.host_driver import (
    CQ,
    PD,
    QP,
    SGE,
    SRQ,
    Cause,
    Context,
    DeviceError,
    EventType,
    QPCap,
    QPInitAttr,
    QPState,
    Quota,
    QuotaExceeded,
    RecvWR,
    ResourceError,
    SRQAttr,
    SRQInitAttr,
    WCStatus,
    registers,
)
from stagecoach.host_driver.device import CommandOpcode
from stagecoach.host_driver.events import NO_QP
from stagecoach.hw.interface.queue_entries import RECEIVE_ENTRY_OCTETS, CompletionOpcode
from tests.host_driver.fake_device import CQS, QPS, FakeDevice, NoStream

RECEIVE = CompletionOpcode.RECEIVE


@pytest.fixture
def rig(context: Context, device: FakeDevice) -> SimpleNamespace:
    """Two connected QPs that take from an SRQ of four work requests; one CQ."""
    pd = PD(context)
    cq = CQ(context, 64, overcommit=True)
    srq = SRQ(pd, SRQInitAttr(max_wr=4))
    qps = [QP(pd, QPInitAttr(cq, cq, srq=srq)) for _ in range(2)]
    for qp in qps:
        qp.connect(NoStream(), initiator=True, crc=True, ord=1, ird=1, emss=1460)
    device.doorbells.clear()
    return SimpleNamespace(context=context, device=device, pd=pd, cq=cq, srq=srq, qps=qps)


def receive(rig: SimpleNamespace, qp: QP, index: int) -> None:
    """A message of the QP has come that took this entry."""
    rig.device.complete(rig.cq.number, qp.qp_num, index, RECEIVE, length=index + 100)


def results(rig: SimpleNamespace) -> list[tuple[int, int, WCStatus]]:
    """QP, request and status of what can be polled."""
    return [(wc.qp_num, wc.wr_id, wc.status) for wc in rig.cq.poll(64)]


def test_the_highest_ring_is_that_of_the_srq_and_its_qps_name_it(rig):
    device = rig.device
    assert rig.srq.number == QPS - 1
    assert device.shared == {QPS - 1}
    assert device.words[registers.QP_SRQ.address] == registers.QP_SRQ.pack(shared=1, ring=QPS - 1)
    # A QP with an SRQ takes the number that no other kind of QP could have.
    assert rig.qps[0].qp_num == QPS - 1
    own = QP(rig.pd, QPInitAttr(rig.cq, rig.cq))
    assert own.qp_num not in (rig.qps[0].qp_num, rig.qps[1].qp_num)
    assert device.words[registers.QP_SRQ.address] == 0


def test_a_request_is_written_to_the_ring_and_the_doorbell_names_it(rig):
    rig.srq.post_recv(RecvWR(7, [SGE(0x1000, 64, 5)]), RecvWR(8))
    assert rig.device.doorbells == [("RECEIVE_DOORBELL", {"qp": rig.srq.number, "producer": 2})]
    memory = rig.srq._ring.memory
    assert int.from_bytes(memory[:8], "little") == 0x1000
    assert bytes(memory[RECEIVE_ENTRY_OCTETS : 2 * RECEIVE_ENTRY_OCTETS]) == bytes(64)
    rig.srq.post_srq_recv(RecvWR(9))
    assert rig.device.doorbells[-1][1]["producer"] == 3


def test_messages_complete_in_any_order_between_qps(rig):
    first, second = rig.qps
    rig.srq.post_recv(*(RecvWR(n) for n in range(4)))
    for qp, index in ((second, 1), (first, 0), (first, 3), (second, 2)):
        receive(rig, qp, index)
    assert [(wc.qp_num, wc.wr_id, wc.byte_len) for wc in rig.cq.poll()] == [
        (second.qp_num, 1, 101),
        (first.qp_num, 0, 100),
        (first.qp_num, 3, 103),
        (second.qp_num, 2, 102),
    ]


def test_no_more_are_posted_than_fit_until_some_complete(rig):
    rig.srq.post_recv(*(RecvWR(n) for n in range(3)))
    with pytest.raises(ResourceError, match=r"2 more work requests for SRQ 3, .* allowed: 1"):
        rig.srq.post_recv(RecvWR(3), RecvWR(4))
    receive(rig, rig.qps[0], 0)
    rig.srq.post_recv(RecvWR(3), RecvWR(4))
    assert rig.device.doorbells[-1][1]["producer"] == 5


def test_what_is_not_outstanding_cannot_complete(rig):
    rig.srq.post_recv(RecvWR(1))
    receive(rig, rig.qps[0], 1)
    with pytest.raises(DeviceError, match=r"completion of entry 1 .* outstanding in SRQ 3"):
        rig.cq.poll()


def test_a_qp_that_stops_flushes_what_it_took_and_leaves_the_others(rig):
    first, second = rig.qps
    rig.srq.post_recv(*(RecvWR(n) for n in range(4)))
    receive(rig, second, 1)
    rig.device.taken[first.qp_num] = 2
    rig.device.event(first.qp_num, Cause.CRC_ERROR)
    rig.context.process_events()
    assert results(rig) == [
        (second.qp_num, 1, WCStatus.SUCCESS),
        (first.qp_num, 2, WCStatus.WR_FLUSH_ERR),
    ]
    told = [(event.event_type, event.qp_num, event.srq_num) for event in rig.context.events]
    assert told == [
        (EventType.QP_FATAL, first.qp_num, None),
        (EventType.QP_LAST_WQE_REACHED, first.qp_num, 3),
    ]
    assert rig.context.events[1].describe() == "QP 3 takes nothing more from SRQ 3"
    for index in (0, 3):
        receive(rig, second, index)
    assert [wr_id for _, wr_id, _ in results(rig)] == [0, 3]


@pytest.mark.parametrize(
    ("cause", "status"),
    [
        (Cause.LOCAL_RECEIVE_PROTECTION, WCStatus.LOC_PROT_ERR),
        (Cause.UNTAGGED_TOO_LONG, WCStatus.LOC_LEN_ERR),
        (Cause.HOST_READ_ERROR, WCStatus.WR_FLUSH_ERR),
    ],
)
def test_the_request_at_fault_has_the_status_of_the_error(rig, cause, status):
    qp = rig.qps[0]
    rig.srq.post_recv(*(RecvWR(n) for n in range(4)))
    rig.device.taken[qp.qp_num] = 3
    # DDP header of a Send with MSN 9
    header = bytes([0x41, 0x43, 0, 0, 0, 0]) + bytes(4) + (9).to_bytes(4, "big") + bytes(4)
    rig.device.event(qp.qp_num, cause, index=3, header=header)
    rig.context.process_events()
    assert results(rig) == [(qp.qp_num, 3, status)]


def test_a_qp_that_has_taken_nothing_flushes_nothing(rig):
    rig.srq.post_recv(RecvWR(0))
    rig.qps[0].disconnect()
    assert results(rig) == []
    assert rig.qps[0].known_state == QPState.ERR
    assert [event.event_type for event in rig.context.events] == [EventType.QP_LAST_WQE_REACHED]


def test_a_number_that_comes_round_is_that_of_the_qp_that_still_has_it(rig):
    first, second = rig.qps
    rig.srq.post_recv(RecvWR(1000))
    rig.device.taken[first.qp_num] = 0
    rig.srq._producer = 0xFFFF  # all others have been used meanwhile
    rig.srq.post_recv(RecvWR(1), RecvWR(2))
    # The same number twice: the QP that has it completes the old one, others the new one.
    receive(rig, second, 0)
    receive(rig, first, 0)
    assert results(rig) == [
        (second.qp_num, 2, WCStatus.SUCCESS),
        (first.qp_num, 1000, WCStatus.SUCCESS),
    ]


def test_a_number_that_nobody_has_any_more_was_lost(rig):
    rig.srq.post_recv(RecvWR(1000))
    rig.srq._producer = 0
    rig.srq.post_recv(RecvWR(1))
    receive(rig, rig.qps[0], 0)
    assert [wr_id for _, wr_id, _ in results(rig)] == [1]


# The limit


def test_a_limit_tells_once_and_is_armed_again(rig):
    srq, device = rig.srq, rig.device
    srq.post_recv(*(RecvWR(n) for n in range(4)))
    srq.modify(srq_limit=3)
    assert device.limits == [{"srq": 3, "limit": 3, "producer": 4}]
    assert srq.query() == SRQAttr(max_wr=4, max_sge=4, srq_limit=3)
    device.srq_event(3, Cause.SRQ_LIMIT_REACHED)
    event = rig.context.get_async_event(0)
    assert (event.event_type, event.srq_num) == (EventType.SRQ_LIMIT_REACHED, 3)
    assert event.qp_num == NO_QP
    words = "SRQ 3: fewer entries in the shared receive queue than its limit"
    assert event.describe() == words
    assert srq.query().srq_limit == 0
    srq.modify(srq_limit=2)
    device.srq_event(3, Cause.SRQ_LIMIT_REACHED)
    assert rig.context.get_async_event(0).event_type == EventType.SRQ_LIMIT_REACHED


def test_an_event_of_a_limit_that_was_taken_back_is_not_told(rig):
    rig.srq.modify(srq_limit=3)
    rig.srq.modify(srq_limit=0)
    assert rig.device.limits[-1]["limit"] == 0
    rig.device.srq_event(3, Cause.SRQ_LIMIT_REACHED)
    rig.context.process_events()
    assert rig.context.events == []


@pytest.mark.parametrize("limit", [-1, 5])
def test_a_limit_beyond_the_queue_is_refused(rig, limit):
    with pytest.raises(ValueError, match=f"srq_limit is {limit}; allowed: 0 to 4"):
        rig.srq.modify(srq_limit=limit)
    assert rig.device.limits == []


def test_a_limit_is_armed_again_when_its_event_may_be_lost(rig):
    rig.srq.modify(srq_limit=3)
    rig.device.words[registers.EVENTS_LOST.address] = 1
    rig.context.process_events(ask=True)
    assert [each["limit"] for each in rig.device.limits] == [3, 3]


def test_a_ring_that_cannot_be_read_is_told(rig):
    rig.device.srq_event(3, Cause.HOST_READ_ERROR, index=5)
    event = rig.context.get_async_event(0)
    assert (event.event_type, event.cause) == (EventType.SRQ_ERR, Cause.HOST_READ_ERROR)
    assert event.describe() == "SRQ 3: error response to a host memory read; entry 5"
    assert [qp.known_state for qp in rig.qps] == [QPState.RTS] * 2


# What is refused


def test_an_srq_in_use_is_not_closed(rig):
    with pytest.raises(ResourceError, match=r"SRQ 3 is in use by QPs \[0, 3\]"):
        rig.srq.close()
    for qp in rig.qps:
        qp.close()
    assert rig.device.field(registers.QP_SRQ, "shared") == 1  # the ring is left alone
    rig.srq.close()
    assert rig.device.shared == set()
    with pytest.raises(ValueError, match="SRQ 3 is closed"):
        rig.srq.post_recv(RecvWR())
    with pytest.raises(ValueError, match="SRQ 3 is closed"):
        QP(rig.pd, QPInitAttr(rig.cq, rig.cq, srq=rig.srq))


def test_the_pd_closes_qps_before_their_srq(rig):
    rig.pd.close()
    ends = [each for each in rig.device.commands if each == CommandOpcode.QP_DESTROY]
    assert len(ends) == 2 and rig.device.commands[-1] == CommandOpcode.SRQ_DESTROY
    assert rig.context.srqs == {}


def test_an_srq_of_another_pd_is_refused(rig):
    other = PD(rig.context)
    with pytest.raises(ValueError, match=r"<SRQ 3: .*> belongs to another PD than the QP"):
        QP(other, QPInitAttr(rig.cq, rig.cq, srq=rig.srq))


def test_what_is_no_srq_is_refused(rig):
    with pytest.raises(TypeError, match="srq is a int"):
        QP(rig.pd, QPInitAttr(rig.cq, rig.cq, srq=1))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="init_attr is a QPCap"):
        SRQ(rig.pd, QPCap())  # type: ignore[arg-type]


def test_a_qp_with_an_srq_has_no_receive_queue_of_its_own(rig):
    with pytest.raises(ValueError, match=r"QP 3 takes its receives from SRQ 3; allowed: SRQ.post"):
        rig.qps[0].post_recv(RecvWR())


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ({"max_wr": 0}, "a queue of 0 entries; allowed: 1 to 32768"),
        ({"max_wr": 32769}, "a queue of 32769 entries; allowed: 1 to 32768"),
        ({"max_sge": 5}, "SRQInitAttr.max_sge is 5; allowed: 1 to 4"),
    ],
)
def test_sizes_that_there_are_not(sizes, text):
    with pytest.raises(ValueError, match=text):
        SRQInitAttr(**sizes)


def test_too_many_elements_are_refused_and_nothing_is_posted(context):
    pd = PD(context)
    srq = SRQ(pd, SRQInitAttr(max_wr=4, max_sge=1))
    with pytest.raises(ValueError, match="2 scatter/gather elements; allowed: 0 to 1"):
        srq.post_recv(RecvWR(), RecvWR(1, [SGE(0, 1, 1), SGE(0, 1, 1)]))
    srq.post_recv(RecvWR())
    assert srq._producer == 1


def test_rings_are_those_of_qps_or_of_srqs(context):
    pd, cq = PD(context), CQ(context, 64, overcommit=True)
    own = [QP(pd, QPInitAttr(cq, cq)) for _ in range(QPS - 1)]
    srq = SRQ(pd, SRQInitAttr())
    with pytest.raises(ResourceError, match=r"all 4 receive rings .* 3 by QPs, 1 by SRQs"):
        SRQ(pd, SRQInitAttr())
    with pytest.raises(ResourceError, match=r"all 4 QPs or rings \(1 of SRQs\) of the device"):
        QP(pd, QPInitAttr(cq, cq))
    # As many QPs as ever, if they take from the SRQ
    taking = QP(pd, QPInitAttr(cq, cq, srq=srq))
    assert {qp.qp_num for qp in own} | {taking.qp_num} == set(range(QPS))
    own[1].close()
    assert SRQ(pd, SRQInitAttr()).number == 1


def test_srqs_have_a_quota(device):
    with Context(device, Quota(srqs=1)) as context:
        pd = PD(context)
        srq = SRQ(pd, SRQInitAttr())
        with pytest.raises(QuotaExceeded, match="quota srqs of the Context is 1"):
            SRQ(pd, SRQInitAttr())
        srq.close()
        SRQ(pd, SRQInitAttr())


def test_a_device_without_srqs_says_so(device):
    has = registers.CAPABILITIES.unpack(device.words[registers.CAPABILITIES.address])
    device.words[registers.CAPABILITIES.address] = registers.CAPABILITIES.pack(**has | {"srq": 0})
    with Context(device) as context, pytest.raises(ValueError, match="has no SRQs"):
        SRQ(PD(context), SRQInitAttr())


@pytest.mark.requirement("SEC-6.4.3.2-02")
def test_a_cq_counts_an_srq_once(context):
    pd = PD(context)
    cq = CQ(context, 32)
    srq = SRQ(pd, SRQInitAttr(max_wr=16))
    cap = QPCap(max_send_wr=8)
    qps = [QP(pd, QPInitAttr(cq, cq, cap, srq=srq)) for _ in range(2)]
    assert len(context.qps) == len(qps)
    with pytest.raises(ResourceError, match="32 work requests outstanding, one more QP 8"):
        QP(pd, QPInitAttr(cq, cq, cap, srq=srq))


def test_opening_a_device_ends_the_rings_of_others(device):
    device.shared = {1, 2}
    with Context(device):
        assert device.shared == set()
    assert CQS not in device.rings
