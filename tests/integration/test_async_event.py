"""Context.fileno on the whole device: a passive end learns that its peer is gone."""

import selectors

import pytest

from stagecoach.host_driver import Cause, QPState
from tests.integration.rig import End, RawPeer, open_device

pytestmark = pytest.mark.timeout(150)  # the first test may have to build the device

SECONDS = 20.0


@pytest.mark.parametrize("by_descriptor", [True, False], ids=["descriptor", "call"])
def test_a_passive_end_learns_that_its_peer_is_gone(by_descriptor: bool):
    with open_device() as context, selectors.DefaultSelector() as selector:
        end = End(context)
        peer = RawPeer(end.qp, initiator=False, tcp=True)
        if by_descriptor:
            selector.register(context, selectors.EVENT_READ)
            assert not selector.select(0.05)
        peer.reset()
        assert not by_descriptor or selector.select(SECONDS)
        event = context.get_async_event(0.0 if by_descriptor else SECONDS)
        assert (event.qp_num, event.cause) == (end.qp.qp_num, Cause.LLP_CLOSED)
        assert end.qp.state == QPState.ERR
        assert not by_descriptor or not selector.select(0)
