"""The interrupt that CQ.req_notify asks for, on the whole device."""

from collections.abc import Iterator

import pytest

from stagecoach.host_driver import Context, SendFlags, SendWR, WCFlags
from tests.integration.rig import open_device
from tests.integration.test_revoke import SECONDS, Link

pytestmark = pytest.mark.timeout(150)  # the first test may have to build the device

SOLICITED = SendFlags.SIGNALED | SendFlags.SOLICITED
CYCLES = 5_000
"""Longer than a Send and its completion take."""


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    with open_device() as context:
        yield context


def send(link: Link, flags: SendFlags = SendFlags.SIGNALED) -> None:
    """Nobody waits for the CQ of the sender, so it is not armed."""
    link.active.qp.post_send(SendWR(0, sg=[link.active.element(0, 100)], send_flags=flags))
    link.run(CYCLES)


def interrupted(link: Link) -> bool:
    """Whether there was an interrupt since the last call."""
    happened = link.context.wait(0.05)
    link.context.clear_interrupts()
    link.context.wait(0)
    return happened


@pytest.mark.requirement("RDMAP-5.3-06")
def test_only_a_solicited_send_interrupts_if_asked_for(link: Link):
    cq = link.passive.cq
    interrupted(link)
    send(link)  # it is there before
    cq.req_notify(solicited_only=True)
    for _ in range(2):
        send(link)
        assert not interrupted(link)
    send(link, SOLICITED)
    assert interrupted(link)
    cq.wait_event(SECONDS)
    flags = [wc.wc_flags for wc in cq.wait(4, SECONDS)]
    assert flags == [WCFlags(0)] * 3 + [WCFlags.SOLICITED]


def test_every_send_interrupts_if_asked_for(link: Link):
    cq = link.passive.cq
    interrupted(link)
    cq.req_notify()
    assert not interrupted(link)
    send(link)
    assert interrupted(link)
    # One-shot: the next one does not.
    send(link)
    assert not interrupted(link)
    cq.wait_event(SECONDS)
    assert len(cq.wait(2, SECONDS)) == 2


def test_a_completion_that_was_there_is_told_at_once(link: Link):
    cq = link.passive.cq
    send(link, SOLICITED)
    cq.req_notify(solicited_only=True)
    cq.wait_event(SECONDS)
    assert len(cq.poll()) == 1
