"""What is posted after the end of a connection ends in error; the device hears nothing of it."""

import pytest

from stagecoach.host_driver import (
    QPState,
    QPStateError,
    RecvWR,
    ResourceError,
    SendFlags,
    SendWR,
    WaitTimeout,
    WCStatus,
)
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import CompletionOpcode
from tests.host_driver.test_queues import connect, statuses


@pytest.mark.requirement("DDP-6.2.1-02")
def test_requests_after_disconnecting_are_flushed(verbs):
    connect(verbs.qp)
    verbs.qp.disconnect()
    doorbells = len(verbs.device.doorbells)
    verbs.qp.post_send(SendWR(1), SendWR(2))
    verbs.qp.post_recv(RecvWR(3))
    completions = verbs.cq.poll()
    assert statuses(completions) == [(number, WCStatus.WR_FLUSH_ERR) for number in (1, 2, 3)]
    assert {completion.cause for completion in completions} == {Cause.STOPPED_BY_DRIVER}
    assert len(verbs.device.doorbells) == doorbells


@pytest.mark.requirement("DDP-6.2.1-02")
def test_requests_after_closing_are_refused(verbs):
    connect(verbs.qp)
    verbs.qp.close()
    for post in (lambda: verbs.qp.post_send(SendWR(1)), lambda: verbs.qp.post_recv(RecvWR(2))):
        with pytest.raises(QPStateError, match="QP 0 is closed; allowed: an open QP"):
            post()
    assert verbs.cq.poll() == []


def complete_while_waiting(verbs, *indices: int) -> list[bool]:
    """Whenever somebody waits one more send completes; whether the QP was connected then."""
    left, found = list(indices), []

    def wait_interrupt(timeout: float) -> bool:
        found.append(verbs.qp.state == QPState.RTS)
        if left:
            verbs.device.complete(0, 0, left.pop(0), CompletionOpcode.SEND)
        return True

    verbs.device.wait_interrupt = wait_interrupt
    return found


@pytest.mark.requirement("DDP-6.2.1-01")
def test_a_graceful_end_waits_for_the_send_queue(verbs):
    connect(verbs.qp)
    verbs.qp.post_recv(RecvWR(9))
    verbs.qp.post_send(SendWR(1), SendWR(2))
    connected = complete_while_waiting(verbs, 0, 1)
    verbs.qp.disconnect(drain=10)
    assert connected == [True, True]
    assert verbs.qp.state == QPState.ERR
    assert statuses(verbs.cq.poll()) == [
        (1, WCStatus.SUCCESS),
        (2, WCStatus.SUCCESS),
        (9, WCStatus.WR_FLUSH_ERR),
    ]


@pytest.mark.requirement("DDP-6.2.1-02")
def test_what_is_posted_during_a_graceful_end_is_flushed_behind_the_rest(verbs):
    connect(verbs.qp)
    verbs.qp.post_send(SendWR(1))
    doorbells = len(verbs.device.doorbells)

    def wait_interrupt(timeout: float) -> bool:
        verbs.qp.post_send(SendWR(2, send_flags=SendFlags(0)), SendWR(3))
        verbs.device.complete(0, 0, 0, CompletionOpcode.SEND)
        return True

    verbs.device.wait_interrupt = wait_interrupt
    verbs.qp.disconnect(drain=10)
    assert statuses(verbs.cq.poll()) == [
        (1, WCStatus.SUCCESS),
        (2, WCStatus.WR_FLUSH_ERR),
        (3, WCStatus.WR_FLUSH_ERR),
    ]
    assert len(verbs.device.doorbells) == doorbells


@pytest.mark.requirement("DDP-6.2.1-01")
def test_a_graceful_end_waits_for_what_completes_silently(verbs):
    connect(verbs.qp)
    verbs.qp.post_send(SendWR(1), SendWR(2, send_flags=SendFlags(0)))
    stags = set(verbs.device.stags)
    connected = complete_while_waiting(verbs, 0, 2)
    verbs.qp.disconnect(drain=10)
    assert connected == [True, True]
    assert statuses(verbs.cq.poll()) == [(1, WCStatus.SUCCESS)]
    assert set(verbs.device.stags) == stags
    assert not verbs.context.mrs


def test_a_graceful_end_without_room_for_what_it_needs_leaves_the_stream_as_it_is(verbs):
    connect(verbs.qp)
    verbs.qp.post_send(*(SendWR(n, send_flags=SendFlags(0)) for n in range(4)))
    with pytest.raises(ResourceError, match="send queue that holds 4 and has 4"):
        verbs.qp.disconnect(drain=10)
    assert verbs.qp.state == QPState.RTS
    assert not verbs.context.mrs
    verbs.device.complete(0, 0, 3, CompletionOpcode.SEND)
    verbs.qp.post_send(SendWR(4))
    assert verbs.device.doorbells[-1] == ("SEND_DOORBELL", {"qp": 0, "producer": 5})


def test_a_graceful_end_waits_only_so_long(verbs):
    connect(verbs.qp)
    verbs.qp.post_send(SendWR(1))
    with pytest.raises(WaitTimeout, match="end of the send queue of QP 0: nothing within"):
        verbs.qp.disconnect(drain=0.01)
    assert verbs.qp.state == QPState.ERR
    assert statuses(verbs.cq.poll()) == [(1, WCStatus.WR_FLUSH_ERR)]


def test_an_error_ends_a_graceful_end(verbs):
    connect(verbs.qp)
    verbs.qp.post_send(SendWR(1))

    def wait_interrupt(timeout: float) -> bool:
        verbs.device.event(0, Cause.CRC_ERROR)
        return True

    verbs.device.wait_interrupt = wait_interrupt
    verbs.qp.disconnect(drain=10)
    assert verbs.qp.cause == Cause.CRC_ERROR
    assert statuses(verbs.cq.poll()) == [(1, WCStatus.WR_FLUSH_ERR)]


def test_a_negative_time_to_drain_is_refused_and_the_stream_goes_on(verbs):
    connect(verbs.qp)
    with pytest.raises(ValueError, match="drain is -1 s; allowed: 0 or more"):
        verbs.qp.disconnect(drain=-1)
    assert verbs.qp.state == QPState.RTS
