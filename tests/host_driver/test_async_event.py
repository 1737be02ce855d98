"""Context.get_async_event and Context.fileno: a program is woken when a QP stops."""

import asyncio
import select
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from stagecoach.host_driver import (
    Cause,
    Context,
    DeviceClosed,
    QPState,
    RecvWR,
    WaitTimeout,
)
from tests.host_driver.test_queues import connect
from tests.host_driver.waiting_device import WaitingDevice, no_watcher_is_left, watchers

pytestmark = pytest.mark.timeout(60)

SECONDS = 10.0
SOON = 0.5
"""Seconds: longer than what must come takes, and less than it may."""


@pytest.fixture
def device() -> WaitingDevice:
    return WaitingDevice()


@pytest.fixture
def qp(verbs):
    connect(verbs.qp)
    verbs.qp.post_recv(RecvWR(1))
    return verbs.qp


def readable(context: Context, seconds: float = 0.0) -> bool:
    return bool(select.select([context], [], [], seconds)[0])


def test_it_waits_for_an_event_and_takes_it(context, device, qp):
    timer = threading.Timer(0.05, device.event, (0, Cause.LLP_CLOSED))
    timer.start()
    begun = time.monotonic()
    event = context.get_async_event(SECONDS)
    assert time.monotonic() - begun < SOON
    assert (event.qp_num, event.cause, qp.state) == (0, Cause.LLP_CLOSED, QPState.ERR)
    assert not context.events and not watchers()
    with pytest.raises(WaitTimeout, match=r"asynchronous event: nothing within 0\.01 s"):
        context.get_async_event(0.01)
    timer.join()


def test_events_come_in_order_and_stay_until_they_are_taken(context, device, qp):
    device.event(0, Cause.CRC_ERROR)
    device.event(1, Cause.LLP_CLOSED)
    context.process_events()
    assert [each.cause for each in context.events] == [Cause.CRC_ERROR, Cause.LLP_CLOSED]
    taken = [context.get_async_event(0.0).cause for _ in range(2)]
    assert taken == [Cause.CRC_ERROR, Cause.LLP_CLOSED]


def test_it_is_readable_while_an_event_is_there(context, device, qp):
    assert not readable(context)
    timer = threading.Timer(0.05, device.event, (0, Cause.LLP_CLOSED))
    timer.start()
    begun = time.monotonic()
    assert readable(context, SECONDS)
    assert time.monotonic() - begun < SOON
    assert qp.state == QPState.ERR
    device.event(1, Cause.CRC_ERROR)
    for _ in range(2):
        assert readable(context, SECONDS)
        context.get_async_event(0.0)
    assert not readable(context)
    timer.join()


def test_what_came_before_the_descriptor_makes_it_readable(context, device, qp):
    device.event(0, Cause.LLP_CLOSED)
    context.process_events()
    assert readable(context)


def test_the_descriptor_follows_a_program_that_takes_events_itself(context, device, qp):
    device.event(0, Cause.LLP_CLOSED)
    assert readable(context, SECONDS)
    context.events.clear()
    end = time.monotonic() + SECONDS
    while readable(context) and time.monotonic() < end:
        time.sleep(0.01)
    assert not readable(context)
    device.event(1, Cause.LLP_CLOSED)
    assert readable(context, SECONDS)
    context.reset()
    assert not readable(context)


def test_an_event_loop_is_told(context, device, qp):
    async def work():
        loop = asyncio.get_running_loop()
        there = loop.create_future()
        loop.add_reader(context, lambda: there.done() or there.set_result(None))
        loop.call_later(0.02, device.event, 0, Cause.LLP_CLOSED)
        await there
        loop.remove_reader(context)
        return context.get_async_event(timeout=0.0).cause

    assert asyncio.run(asyncio.wait_for(work(), SECONDS)) == Cause.LLP_CLOSED


def test_a_device_that_ends_is_told_to_who_waits(context, device):
    assert not readable(context)
    device.end("the power is off")
    assert readable(context, SECONDS)
    with pytest.raises(DeviceClosed, match="the power is off"):
        context.get_async_event(0.0)
    assert no_watcher_is_left()
    device.ended = None
    with pytest.raises(DeviceClosed, match="the power is off"):
        context.get_async_event(0.0)


@pytest.mark.parametrize("descriptor", [False, True])
def test_a_context_that_is_closed_ends_a_wait(descriptor):
    context = Context(WaitingDevice())
    if descriptor:
        context.fileno()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(context.get_async_event, SECONDS)
        time.sleep(0.05)
        context.close()
        assert not watchers()
        with pytest.raises(DeviceClosed, match="the context is closed; allowed: an open Context"):
            waiting.result(SOON)
    for call in (context.fileno, context.get_async_event):
        with pytest.raises(DeviceClosed, match="the context is closed"):
            call()
