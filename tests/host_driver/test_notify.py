"""CQ.req_notify and CQ.wait_event: which completions a program is woken for."""

import re

import pytest

from stagecoach.host_driver import QP, Cause, QPInitAttr, RecvWR, SendWR, WaitTimeout, WCStatus
from stagecoach.hw.interface.queue_entries import CompletionFlags, CompletionOpcode
from tests.host_driver.test_queues import connect

SOLICITED = CompletionFlags.SOLICITED
RECEIVE = CompletionOpcode.RECEIVE


@pytest.fixture
def cq(verbs):
    connect(verbs.qp)
    verbs.qp.post_recv(*[RecvWR(number) for number in range(4)])
    return verbs.cq


def last_doorbell(verbs) -> dict[str, int]:
    name, fields = verbs.device.doorbells[-1]
    assert name == "CQ_DOORBELL"
    return fields


@pytest.mark.parametrize("solicited_only", [False, True])
def test_the_device_is_told_for_what_to_interrupt(verbs, cq, solicited_only):
    cq.req_notify(solicited_only=solicited_only)
    armed = {"cq": 0, "consumer": 0, "arm": 1, "solicited": int(solicited_only)}
    assert last_doorbell(verbs) == armed
    with pytest.raises(WaitTimeout, match=r"CQ 0: no event in 0\.01 s"):
        cq.wait_event(0.01)
    assert last_doorbell(verbs) == armed


@pytest.mark.requirement("RDMAP-5.3-06")
def test_only_a_solicited_completion_is_told_if_asked_for(verbs, cq):
    cq.req_notify(solicited_only=True)
    verbs.device.complete(0, 0, 0, RECEIVE)
    with pytest.raises(WaitTimeout):
        cq.wait_event(0.05)
    verbs.device.complete(0, 0, 1, RECEIVE, flags=SOLICITED)
    cq.wait_event()
    assert [wc.wr_id for wc in cq.poll()] == [0, 1]


def test_any_completion_is_told_if_asked_for(verbs, cq):
    verbs.qp.post_send(SendWR(9))
    for complete in (
        lambda: verbs.device.complete(0, 0, 0, CompletionOpcode.SEND),
        lambda: verbs.device.complete(0, 0, 0, RECEIVE),
        lambda: verbs.device.complete(0, 0, 1, RECEIVE, flags=SOLICITED),
    ):
        cq.req_notify()
        complete()
        cq.wait_event()
        assert len(cq.poll()) == 1


def test_a_notification_comes_once(verbs, cq):
    for index in range(2):
        with pytest.raises(ValueError, match=re.escape("allowed: after req_notify")):
            cq.wait_event()
        cq.req_notify()
        verbs.device.complete(0, 0, index, RECEIVE)
        cq.wait_event()


@pytest.mark.parametrize("solicited_only", [False, True])
def test_a_completion_in_error_is_always_told(verbs, cq, solicited_only):
    cq.req_notify(solicited_only=solicited_only)
    verbs.device.event(0, Cause.CRC_ERROR)
    cq.wait_event()
    assert [wc.status for wc in cq.poll()] == [WCStatus.WR_FLUSH_ERR] * 4


def test_a_completion_of_another_cq_is_not_told(verbs, cq):
    from stagecoach.host_driver import CQ

    other = CQ(verbs.context, 4)
    qp = QP(verbs.pd, QPInitAttr(other, other))
    connect(qp)
    qp.post_recv(RecvWR(1))
    cq.req_notify()
    verbs.device.complete(other.number, qp.qp_num, 0, RECEIVE, flags=SOLICITED)
    with pytest.raises(WaitTimeout):
        cq.wait_event(0.05)
    assert len(other.poll()) == 1
