"""A shared receive queue: who gets which buffer, what it tells, and what a QP that fails leaves."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from stagecoach.host_driver import (
    PD,
    SGE,
    SRQ,
    AsyncEvent,
    Cause,
    EventType,
    RecvWR,
    SendWR,
    SRQInitAttr,
    WaitTimeout,
    WCOpcode,
    WCStatus,
)
from tests.integration.rig import End
from tests.integration.verbs.pair import SECONDS, Link, Pair, in_each, statuses, succeeded

LENGTH = 64


@contextmanager
def sharing(pair: Pair) -> Iterator[tuple[SRQ, Link, Link]]:
    """Two QPs of the passive device that take from an SRQ of 4 requests, and their peers."""
    pd = PD(pair.b)
    srq = SRQ(pd, SRQInitAttr(max_wr=4))
    options = {"passive": {"pd": pd, "srq": srq}}
    with pair.link(**options) as first, pair.link(**options) as second:
        yield srq, first, second


def post(srq: SRQ, end: End, *numbers: int) -> None:
    srq.post_recv(*(RecvWR(n, [end.element(n * LENGTH, LENGTH)]) for n in numbers))


def send(link: Link, length: int = 10) -> None:
    link.active.qp.post_send(SendWR(1, sg=[link.active.element(0, length)]))
    link.active.cq.wait(1, SECONDS)


def next_event(pair: Pair) -> AsyncEvent:
    return pair.b.get_async_event(SECONDS)


def check_order(pair: Pair) -> None:
    """The oldest request goes to the first message, whoever gets it."""
    with sharing(pair) as (srq, first, second):
        region = first.passive
        post(srq, region, 0, 1, 2, 3)
        for number, link in enumerate((second, first, first, second)):
            send(link, number + 1)
            succeeded(link.passive, (number, WCOpcode.RECV, number + 1))
        for number in range(4):
            begin = number * LENGTH
            assert region.buffer[begin : begin + number + 1] == link.active.buffer[: number + 1]
        assert srq.outstanding == 0
        post(srq, region, 3)
        send(first)
        succeeded(first.passive, (3, WCOpcode.RECV, 10))


def check_limit(pair: Pair) -> None:
    """One event when fewer are left; it has to be asked for again."""
    with sharing(pair) as (srq, first, second):
        post(srq, first.passive, 0, 1, 2, 3)
        srq.modify(srq_limit=3)
        assert srq.query().srq_limit == 3
        send(first)
        first.passive.cq.wait(1, SECONDS)
        with pytest.raises(WaitTimeout):
            pair.b.get_async_event(0)
        send(second)
        event = next_event(pair)
        assert (event.event_type, event.srq_num) == (EventType.SRQ_LIMIT_REACHED, srq.number)
        assert srq.query().srq_limit == 0
        send(first)
        first.passive.cq.wait(1, SECONDS)
        with pytest.raises(WaitTimeout):
            pair.b.get_async_event(0)
        srq.modify(srq_limit=2)  # there is one: at once
        assert next_event(pair).event_type == EventType.SRQ_LIMIT_REACHED


@dataclass(frozen=True)
class Failure:
    """A request that is posted, if any, a message to it, and what becomes of both."""

    buffer: Callable[[End], SGE] | None
    message: int
    cause: Cause
    status: WCStatus | None


FAILURES = (
    Failure(None, 10, Cause.UNTAGGED_NO_BUFFER, None),
    Failure(
        lambda end: SGE(end.mr.addr, LENGTH, end.mr.lkey ^ 1),
        *(10, Cause.LOCAL_RECEIVE_PROTECTION, WCStatus.LOC_PROT_ERR),
    ),
    # Its first segment fits, so that the QP has taken the request.
    Failure(
        lambda end: end.element(0, 2000),
        *(3000, Cause.UNTAGGED_TOO_LONG, WCStatus.LOC_LEN_ERR),
    ),
)


def failed(pair: Pair, srq: SRQ, link: Link, cause: Cause) -> None:
    """The passive QP stopped for that reason, and tells that it takes nothing more."""
    events = {event.event_type: event for event in (next_event(pair), next_event(pair))}
    last, fatal = events[EventType.QP_LAST_WQE_REACHED], events[EventType.QP_FATAL]
    assert (fatal.qp_num, fatal.cause) == (link.passive.qp.qp_num, cause)
    assert (last.qp_num, last.srq_num) == (link.passive.qp.qp_num, srq.number)
    assert pair.a.get_async_event(SECONDS).cause == Cause.TERMINATE_RECEIVED


@in_each(FAILURES)
def check_a_qp_that_fails(pair: Pair, failure: Failure) -> None:
    """It uses up what it took, and the other one goes on."""
    with sharing(pair) as (srq, first, second):
        end = first.passive
        if failure.buffer is not None:
            srq.post_recv(RecvWR(7, [failure.buffer(end)]))
        send(first, failure.message)
        failed(pair, srq, first, failure.cause)
        if failure.status is not None:
            assert statuses(end, 1) == {7: failure.status}
        post(srq, end, 1)
        send(second)
        succeeded(second.passive, (1, WCOpcode.RECV, 10))


def check_a_first_segment_that_does_not_fit(pair: Pair) -> None:
    """Its QP stops before it takes the request, which is there for the next message."""
    with sharing(pair) as (srq, first, second):
        srq.post_recv(RecvWR(7, [first.passive.element(0, 9)]))
        send(first, 10)
        failed(pair, srq, first, Cause.UNTAGGED_TOO_LONG)
        assert not first.passive.cq.poll()
        send(second, 9)
        succeeded(second.passive, (7, WCOpcode.RECV, 9))
