"""Context.get_async_event and Context.fileno: a program is woken when a QP stops."""

import asyncio
import select
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from stagecoach.host_driver import (
    CQ,
    AsyncEvent,
    Cause,
    CompChannel,
    Context,
    DeviceClosed,
    QPState,
    RecvWR,
    TransportError,
    WaitTimeout,
    registers,
)
from stagecoach.host_driver.ring import LOOKS
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


def test_the_state_is_true_when_it_is_read(context, device, qp, verbs):
    assert qp.state == QPState.RTS
    device.event(0, Cause.LLP_CLOSED)
    assert qp.known_state == QPState.RTS
    assert qp.state == QPState.ERR and qp.cause == Cause.LLP_CLOSED
    assert [wc.cause for wc in verbs.cq.poll()] == [Cause.LLP_CLOSED]
    qp.close()
    assert qp.state == QPState.RESET


def test_a_lost_event_does_not_keep_the_state_from_being_true(context, device, qp):
    device.states[0], device.causes[0] = 3, Cause.LLP_CLOSED
    device.words[registers.EVENTS_LOST.address] = 1
    assert QPState.ERR in [qp.state for _ in range(LOOKS)]


class Handler:
    """Keeps what it is called with."""

    def __init__(self) -> None:
        self.causes: list[Cause] = []
        self.threads: set[str] = set()
        self._came = threading.Condition()

    def __call__(self, event: AsyncEvent) -> None:
        with self._came:
            self.causes.append(event.cause)
            self.threads.add(threading.current_thread().name)
            self._came.notify_all()

    def wait(self, count: int) -> list[Cause]:
        with self._came:
            assert self._came.wait_for(lambda: len(self.causes) >= count, SECONDS)
            return self.causes


def no_handler_thread_is_left() -> bool:
    return not any(each.name == "event handlers" for each in threading.enumerate())


def test_handlers_are_called_with_each_event(context, device, qp):
    device.event(0, Cause.CRC_ERROR)
    context.process_events()
    one, two = Handler(), Handler()
    context.add_event_handler(one)
    assert one.wait(1) == [Cause.CRC_ERROR]
    context.add_event_handler(two)
    begun = time.monotonic()
    device.event(1, Cause.LLP_CLOSED)
    assert one.wait(2) == [Cause.CRC_ERROR, Cause.LLP_CLOSED]
    assert two.wait(1) == [Cause.LLP_CLOSED]
    assert time.monotonic() - begun < SOON
    assert one.threads == {"event handlers"} and not context.events
    context.remove_event_handler(one)
    device.event(2, Cause.CRC_ERROR)
    assert two.wait(2) == [Cause.LLP_CLOSED, Cause.CRC_ERROR]
    assert len(one.causes) == 2
    context.remove_event_handler(two)
    assert no_watcher_is_left() and no_handler_thread_is_left()
    device.event(3, Cause.CRC_ERROR)
    assert context.get_async_event(0.0).cause == Cause.CRC_ERROR
    with pytest.raises(ValueError, match="is not a registered event handler"):
        context.remove_event_handler(two)


def test_a_handler_may_close_its_qp_and_remove_itself(context, device, qp):
    done = threading.Event()

    def handle(event: AsyncEvent) -> None:
        context.qps[event.qp_num].close()
        context.remove_event_handler(handle)
        done.set()

    context.add_event_handler(handle)
    device.event(0, Cause.LLP_CLOSED)
    assert done.wait(SECONDS)
    assert qp.state == QPState.RESET and not context.qps
    assert no_watcher_is_left()


def test_what_a_handler_raises_is_logged_and_the_others_are_called(context, device, qp, caplog):
    def fail(event: AsyncEvent) -> None:
        raise RuntimeError("of the program")

    handler = Handler()
    context.add_event_handler(fail)
    context.add_event_handler(handler)
    device.event(0, Cause.LLP_CLOSED)
    assert handler.wait(1)
    assert "an event handler has failed: QP 0 stopped" in caplog.text
    assert "of the program" in caplog.text


def test_handlers_are_told_of_a_device_that_ends_in_the_log(context, device, caplog):
    context.add_event_handler(Handler())
    device.end("the power is off")
    assert no_watcher_is_left()
    assert "event handlers hear no more of the device: the power is off" in caplog.text
    device.ended = None


@pytest.mark.parametrize("by", ["another thread", "a handler"])
def test_a_context_that_is_closed_waits_for_a_handler_and_calls_none_after_it(by):
    device = WaitingDevice()
    context = Context(device)
    began, handler = threading.Event(), Handler()

    def slow(event: AsyncEvent) -> None:
        began.set()
        if by == "a handler":
            context.close()
        else:
            time.sleep(0.3)  # longer than the watcher takes to end
        handler(event)

    context.add_event_handler(slow)
    device.event(0, Cause.LLP_CLOSED)
    assert began.wait(SECONDS)
    context.close()
    if by == "a handler":
        handler.wait(1)
    assert handler.causes == [Cause.LLP_CLOSED]
    with pytest.raises(DeviceClosed, match=r"the context of \w+ is closed"):
        context.add_event_handler(handler)
    assert not watchers()


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
        with pytest.raises(
            DeviceClosed, match=r"the context of \w+ is closed; allowed: an open Context"
        ):
            waiting.result(SOON)
    for call in (context.fileno, context.get_async_event):
        with pytest.raises(DeviceClosed, match=r"the context of \w+ is closed"):
            call()


def test_a_device_that_threads_of_the_driver_cannot_call_says_so_at_once():
    """As in a cocotb test."""
    device = WaitingDevice()
    device.calls_from_any_thread = False
    with Context(device) as context, CompChannel(context) as channel:
        stream = CQ(context).stream()
        for use in (
            context.fileno,
            channel.fileno,
            lambda: context.add_event_handler(print),
            lambda: asyncio.run(anext(stream)),
        ):
            with pytest.raises(TransportError, match="allowed: wait, wait_event, get_cq_event"):
                use()
        assert not watchers()
