"""How a program waits, or waits in vain: for completions, notifications of CQs, and events."""

import pytest

from stagecoach.host_driver import (
    Cause,
    CompChannel,
    RecvWR,
    SendFlags,
    SendWR,
    WaitTimeout,
    WCFlags,
    WCOpcode,
    WROpcode,
)
from tests.integration.verbs.pair import SECONDS, Link, Pair, in_each, stopped, succeeded
from tests.support.verdicts import shows

SIGNALED = SendFlags.SIGNALED
SOLICITED = SendFlags.SIGNALED | SendFlags.SOLICITED


def send(pair: Pair, link: Link, flags: SendFlags = SIGNALED) -> None:
    """The receive of a Send completes; nobody has waited for it."""
    link.active.qp.post_send(SendWR(0, sg=[link.active.element(0, 100)], send_flags=flags))
    pair.run()


def interrupted(link: Link) -> bool:
    """Whether the passive end had an interrupt since the last call."""
    context = link.passive.context
    happened = context.wait(0.05)
    context.clear_interrupts()
    context.wait(0)
    return happened


def post_receives(link: Link, count: int = 8) -> None:
    element = link.passive.element(0, 100)
    link.passive.qp.post_recv(*(RecvWR(n, [element]) for n in range(count)))


def check_poll_and_wait(pair: Pair) -> None:
    with pair.link() as link:
        one, cq = link.active, link.active.cq
        assert cq.poll() == []
        for seconds in (0.0, 0.05):
            with pytest.raises(WaitTimeout, match="0 of 1 completions"):
                cq.wait(1, seconds)
        one.qp.post_send(*(SendWR(n, WROpcode.RDMA_WRITE) for n in range(5)))
        with pytest.raises(WaitTimeout, match="5 of 6 completions"):
            cq.wait(6, 0.5)
        assert [wc.wr_id for wc in cq.poll(2)] == [0, 1]
        succeeded(one, *((n, WCOpcode.RDMA_WRITE, 0) for n in (2, 3, 4)))


def check_a_responder_waits_for_the_first_fpdu(pair: Pair) -> None:
    """RFC 5044, 7.1.2: what it has posted goes when the Initiator has sent something."""
    with pair.link() as link:
        one, other = link.active, link.passive
        one.qp.post_recv(RecvWR(5))
        other.qp.post_send(SendWR(1))
        with pytest.raises(WaitTimeout, match="sends nothing before the Initiator's first FPDU"):
            other.cq.wait(1, 0.05)
        one.qp.post_send(SendWR(2, WROpcode.RDMA_WRITE))
        succeeded(one, (2, WCOpcode.RDMA_WRITE, 0), (5, WCOpcode.RECV, 0))
        succeeded(other, (1, WCOpcode.SEND, 0))


@shows("RDMAP-5.3-06")
def check_only_a_solicited_send_interrupts_if_asked_for(pair: Pair) -> None:
    with pair.link() as link:
        cq = link.passive.cq
        post_receives(link)
        interrupted(link)
        send(pair, link)  # it is there before
        cq.req_notify(solicited_only=True)
        for _ in range(2):
            send(pair, link)
            assert not interrupted(link)
        send(pair, link, SOLICITED)
        assert interrupted(link)
        cq.wait_event(SECONDS)
        flags = [wc.wc_flags for wc in cq.wait(4, SECONDS)]
        assert flags == [WCFlags(0)] * 3 + [WCFlags.SOLICITED]


@in_each([WROpcode.IMM_DATA, WROpcode.RDMA_WRITE_WITH_IMM])
def check_only_solicited_immediate_data_interrupts_if_asked_for(
    pair: Pair, opcode: WROpcode
) -> None:
    with pair.link() as link:
        cq = link.passive.cq
        post_receives(link)
        interrupted(link)
        cq.req_notify(solicited_only=True)
        for flags, expected in ((SIGNALED, False), (SOLICITED, True)):
            link.active.qp.post_send(SendWR(0, opcode, send_flags=flags, imm_data=bytes(8)))
            pair.run()
            assert interrupted(link) == expected
        cq.wait_event(SECONDS)
        flags = [wc.wc_flags for wc in cq.wait(2, SECONDS)]
        assert flags == [WCFlags.WITH_IMM, WCFlags.WITH_IMM | WCFlags.SOLICITED]


def check_every_send_interrupts_if_asked_for(pair: Pair) -> None:
    with pair.link() as link:
        cq = link.passive.cq
        post_receives(link)
        interrupted(link)
        cq.req_notify()
        assert not interrupted(link)
        send(pair, link)
        assert interrupted(link)
        # One-shot: the next one does not.
        send(pair, link)
        assert not interrupted(link)
        cq.wait_event(SECONDS)
        assert len(cq.wait(2, SECONDS)) == 2
        cq.req_notify()
        with pytest.raises(WaitTimeout, match="no event"):
            cq.wait_event(0.05)


def check_a_completion_that_was_there_is_told_at_once(pair: Pair) -> None:
    with pair.link() as link:
        cq = link.passive.cq
        post_receives(link)
        send(pair, link, SOLICITED)
        cq.req_notify(solicited_only=True)
        cq.wait_event(SECONDS)
        assert len(cq.poll()) == 1


def check_a_channel_tells_of_its_cqs(pair: Pair) -> None:
    """One-shot, in the order in which they came, and of one CQ if asked for."""
    with CompChannel(pair.b) as channel:
        options = {"passive": {"channel": channel}}
        with pair.link(**options) as first, pair.link(**options) as second:
            for link in (first, second):
                post_receives(link)
                link.passive.cq.req_notify()
            with pytest.raises(WaitTimeout):
                channel.get_cq_event(timeout=0.05)
            send(pair, first)
            with pytest.raises(WaitTimeout):
                channel.get_cq_event(second.passive.cq, 0.05)
            send(pair, second)
            send(pair, first)
            cqs = [link.passive.cq for link in (first, second)]
            assert [channel.get_cq_event(timeout=SECONDS) for _ in range(2)] == cqs
            with pytest.raises(WaitTimeout):
                channel.get_cq_event(timeout=0)
            assert [len(cq.poll()) for cq in cqs] == [2, 1]
            cqs[0].ack_events(1)
            with pytest.raises(ValueError, match="num_events is 1; allowed: 0 to 0"):
                cqs[0].ack_events(1)


# Events


def check_events(pair: Pair) -> None:
    """A passive end learns by an event, or by its state, that its peer has gone."""
    with pytest.raises(WaitTimeout, match="asynchronous event: nothing within 0"):
        pair.b.get_async_event(0)
    with pytest.raises(WaitTimeout):
        pair.b.get_async_event(0.05)
    with pair.link() as link:
        link.active.qp.disconnect()
        assert stopped(link.passive) == Cause.LLP_CLOSED
        assert not pair.a.events
    with pair.link() as link:
        link.active.qp.disconnect()
        pair.b.poll_until(lambda: link.passive.qp.state.name == "ERR", SECONDS, "the error")
        (event,) = pair.b.events
        assert event.describe().startswith(f"QP {link.passive.qp.qp_num} stopped: ")
        pair.b.events.clear()
    assert pair.b.events_lost == 0
