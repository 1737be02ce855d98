"""What one user of the device does wrong is felt by no other."""

from collections.abc import Iterator

import pytest

from stagecoach.host_driver import (
    CQ,
    QP,
    WC,
    Cause,
    Context,
    QPCap,
    QPInitAttr,
    QPState,
    SendWR,
    WCStatus,
    WROpcode,
)
from tests.integration.rig import End, RawPeer, open_device
from tests.integration.test_failures import Bystander

pytestmark = pytest.mark.timeout(150)  # the first test may have to build the device

SECONDS = 10.0
REQUESTS = 64


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    with open_device() as opened:
        yield opened


@pytest.mark.requirement("RDMAP-8.1.1-11", "SEC-6.4.6-01")
@pytest.mark.requirement("RDMAP-8.1.2-03", "DDP-8.3.2-03", "SEC-3-03")
def test_an_overflow_of_a_cq_stops_only_the_qps_that_use_it(context: Context):
    bystander = Bystander(context)
    end, other = End(context), End(context, 1 << 16)
    small = CQ(context, 1)
    user = QP(end.pd, QPInitAttr(small, small, QPCap(REQUESTS, 1)))
    peer, other_peer = RawPeer(user), RawPeer(other.qp)
    other.qp.post_send(*(SendWR(n, WROpcode.RDMA_WRITE, [other.element()]) for n in range(8)))
    element = end.element(0, 8)
    user.post_send(*(SendWR(n, WROpcode.RDMA_WRITE, [element]) for n in range(REQUESTS)))
    # Nobody takes a completion meanwhile.
    peer.pump_until(lambda: peer.ended, SECONDS)
    done: list[WC] = []
    other_peer.pump_until(lambda: bool(done.extend(other.cq.poll())) or len(done) == 8, SECONDS)
    assert [(wc.wr_id, wc.status) for wc in done] == [(n, WCStatus.SUCCESS) for n in range(8)]
    assert (user.state, user.cause) == (QPState.ERR, Cause.CQ_OVERFLOW)
    assert [event.qp_num for event in context.events] == [user.qp_num]
    assert other.qp.query_state() == (QPState.RTS, Cause.NONE)
    bystander.check()
    user.close()
    small.close()
    end.close()
    other.close()
    peer.close()
    other_peer.close()
