"""What is posted after the end of a connection ends in error; the device hears nothing of it."""

import pytest

from host_driver import QPStateError, RecvWR, SendWR, WCStatus
from hw.interface.causes import Cause
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
        with pytest.raises(QPStateError, match="is in state RESET; allowed:"):
            post()
    assert verbs.cq.poll() == []
