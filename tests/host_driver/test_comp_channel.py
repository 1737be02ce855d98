"""CompChannel: which CQs notify there, in a call that waits and by its file descriptor."""

import re
import select
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from stagecoach.host_driver import (
    CQ,
    PD,
    QP,
    Cause,
    CompChannel,
    Context,
    DeviceClosed,
    QPCap,
    QPInitAttr,
    RecvWR,
    WaitTimeout,
    WCStatus,
)
from stagecoach.hw.interface.queue_entries import CompletionFlags, CompletionOpcode
from tests.host_driver.fake_device import FakeDevice
from tests.host_driver.test_queues import connect
from tests.host_driver.waiting_device import WaitingDevice, no_watcher_is_left, watchers

pytestmark = pytest.mark.timeout(60)

RECEIVE = CompletionOpcode.RECEIVE
SECONDS = 10.0
SOON = 0.5
"""Seconds: longer than what must come takes, and less than it may."""


@pytest.fixture
def device() -> WaitingDevice:
    return WaitingDevice()


@pytest.fixture
def channel(context: Context) -> CompChannel:
    return CompChannel(context)


class Ends:
    """CQs of a channel, each with a QP that has four receives."""

    def __init__(self, context: Context, device: WaitingDevice, channel: CompChannel, count: int):
        self.device = device
        self.cqs = [CQ(context, 8, channel=channel) for _ in range(count)]
        pd = PD(context)
        self.qps = [QP(pd, QPInitAttr(cq, cq, QPCap(4, 4))) for cq in self.cqs]
        for qp in self.qps:
            connect(qp)
            qp.post_recv(*[RecvWR(number) for number in range(4)])

    def receive(self, end: int, index: int, flags: int = 0) -> None:
        cq, qp = self.cqs[end], self.qps[end]
        self.device.complete(cq.number, qp.qp_num, index, RECEIVE, flags=flags)


@pytest.fixture
def ends(context: Context, device: WaitingDevice, channel: CompChannel) -> Ends:
    return Ends(context, device, channel, 2)


def readable(channel: CompChannel, seconds: float = 0.0) -> bool:
    return bool(select.select([channel], [], [], seconds)[0])


@pytest.fixture(params=[False, True], ids=["call", "descriptor"])
def waited(request, channel) -> SimpleNamespace:
    """How a program waits: in the call alone, or by the descriptor before it."""

    def event(seconds: float = SECONDS, **options) -> CQ:
        if request.param:
            readable(channel, seconds)
            return channel.get_cq_event(timeout=0.0, **options)
        return channel.get_cq_event(timeout=seconds, **options)

    return SimpleNamespace(event=event)


def test_a_notification_has_its_cq(ends, channel, waited):
    for end, index in ((0, 0), (1, 0), (1, 1), (0, 1)):
        ends.cqs[end].req_notify()
        ends.receive(end, index)
        assert waited.event() is ends.cqs[end]
        assert [wc.wr_id for wc in ends.cqs[end].poll()] == [index]
    with pytest.raises(WaitTimeout, match=r"completion channel: nothing within 0\.[01]+ s"):
        waited.event(0.01)


def test_it_is_told_while_a_program_waits(ends, waited):
    ends.cqs[1].req_notify()
    timer = threading.Timer(0.05, ends.receive, (1, 0))
    timer.start()
    begun = time.monotonic()
    assert waited.event() is ends.cqs[1]
    assert time.monotonic() - begun < SOON
    timer.join()


def test_two_cqs_notify_each_for_itself(ends, channel, waited):
    for end in (1, 0):
        ends.cqs[end].req_notify()
    for end in (1, 0):
        ends.receive(end, 0)
        assert ends.qps[end].receives_posted == 3  # so the notification is in the channel
    assert waited.event(expected_cq=ends.cqs[0]) is ends.cqs[0]
    assert waited.event() is ends.cqs[1]
    assert [len(cq.poll()) for cq in ends.cqs] == [1, 1]


def test_a_notification_comes_once_for_each_request(ends, channel, waited):
    ends.cqs[0].req_notify()
    ends.receive(0, 0)
    waited.event()
    ends.receive(0, 1)
    with pytest.raises(WaitTimeout):
        waited.event(0.05)
    assert len(ends.cqs[0].poll()) == 2


def test_what_comes_between_poll_and_req_notify_is_told(ends, channel, waited):
    cq = ends.cqs[0]
    assert not cq.poll()
    ends.receive(0, 0)
    cq.req_notify()
    assert waited.event() is cq
    assert len(cq.poll()) == 1


def test_what_another_call_took_from_the_ring_meanwhile_is_told(ends, channel, waited):
    cq = ends.cqs[0]
    assert not cq.poll()
    ends.receive(0, 0)
    assert ends.qps[0].receives_posted == 3  # it takes the entry out of the ring
    cq.req_notify()
    assert waited.event() is cq
    assert len(cq.poll()) == 1


def test_only_a_solicited_one_is_told_if_asked_for(ends, channel, waited):
    cq = ends.cqs[0]
    ends.receive(0, 0)
    assert ends.qps[0].receives_posted == 3
    cq.req_notify(solicited_only=True)
    ends.receive(0, 1)
    with pytest.raises(WaitTimeout):
        waited.event(0.05)
    ends.receive(0, 2, CompletionFlags.SOLICITED)
    assert waited.event() is cq
    assert len(cq.poll()) == 3


def test_a_queue_that_is_flushed_is_told(ends, channel, waited):
    ends.cqs[1].req_notify(solicited_only=True)
    ends.device.event(ends.qps[1].qp_num, Cause.CRC_ERROR)
    assert waited.event() is ends.cqs[1]
    assert [wc.status for wc in ends.cqs[1].poll()] == [WCStatus.WR_FLUSH_ERR] * 4


def test_it_is_readable_while_a_notification_is_there(ends, channel):
    assert not readable(channel)
    for end in (0, 1):
        ends.cqs[end].req_notify()
        ends.receive(end, 0)
    for _ in range(2):
        assert readable(channel, SECONDS)
        channel.get_cq_event(timeout=SECONDS)
    assert not readable(channel, 0.05)


def test_what_came_before_the_descriptor_makes_it_readable(ends, channel):
    ends.cqs[0].req_notify()
    ends.receive(0, 0)
    ends.cqs[0].poll()
    assert readable(channel)


def test_a_device_that_ends_is_told_to_who_waits(ends, device, channel):
    assert not readable(channel)
    device.end("the power is off")
    assert readable(channel, SECONDS)
    with pytest.raises(DeviceClosed, match="the power is off"):
        channel.get_cq_event(timeout=0.0)
    assert no_watcher_is_left()
    device.ended = None  # the fixture closes it


@pytest.mark.parametrize("descriptor", [False, True])
def test_a_channel_that_is_closed_ends_a_wait(ends, channel, descriptor):
    if descriptor:
        channel.fileno()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(channel.get_cq_event, None, SECONDS)
        time.sleep(0.05)
        channel.close()
        with pytest.raises(ValueError, match="the completion channel is closed; allowed: an open"):
            waiting.result(SOON)
    assert no_watcher_is_left()
    for call in (channel.fileno, channel.get_cq_event, ends.cqs[0].req_notify):
        with pytest.raises(ValueError, match="the completion channel is closed"):
            call()
    ends.receive(0, 0)
    assert len(ends.cqs[0].poll()) == 1
    channel.close()


def test_a_cq_that_is_closed_leaves_nothing_in_the_channel(ends, channel):
    closed, other = ends.cqs
    for end in (0, 1):
        ends.cqs[end].req_notify()
        ends.receive(end, 0)
        ends.cqs[end].poll()
    ends.qps[0].close()
    closed.close()
    assert readable(channel)
    assert channel.get_cq_event(timeout=0.0) is other
    assert not readable(channel)
    with pytest.raises(ValueError, match="CQ 0 does not notify here; allowed: an open"):
        channel.get_cq_event(closed, 0.0)


def test_the_thread_is_there_for_descriptors_alone(context, ends, device, channel):
    with pytest.raises(WaitTimeout):
        channel.get_cq_event(timeout=0.01)
    assert not watchers()
    other = CompChannel(context)
    assert channel.fileno() != other.fileno() and channel.fileno() == channel.fileno()
    assert len(watchers()) == 1
    channel.close()
    time.sleep(0.15)
    assert len(watchers()) == 1
    other.close()
    assert no_watcher_is_left()


def test_the_thread_does_not_spin(ends, device, channel):
    channel.fileno()
    ends.cqs[0].req_notify()
    ends.receive(0, 0)
    assert readable(channel, SECONDS)
    before = len(device.waits)
    time.sleep(0.25)
    assert len(device.waits) - before <= 5


def test_a_wait_for_a_cq_beside_the_thread_hears_at_once(context, ends, device, channel):
    channel.fileno()
    alone = CQ(context, 8)
    qp = QP(PD(context), QPInitAttr(alone, alone, QPCap(4, 4)))
    connect(qp)
    qp.post_recv(RecvWR(7))
    timer = threading.Timer(0.05, ends.device.complete, (alone.number, qp.qp_num, 0, RECEIVE))
    timer.start()
    begun = time.monotonic()
    assert [wc.wr_id for wc in alone.wait(timeout=SECONDS)] == [7]
    assert time.monotonic() - begun < SOON
    timer.join()
    # The interrupt wakes one of those who wait for it.
    assert set(device.waits) == {"device watcher"}


def test_closing_the_context_closes_the_channel_and_ends_its_thread():
    context = Context(WaitingDevice())
    channel = CompChannel(context)
    CQ(context, 8, channel=channel)
    channel.fileno()
    context.close()
    assert not watchers()
    with pytest.raises(ValueError, match="closed"):
        channel.fileno()
    with pytest.raises(DeviceClosed):
        CompChannel(context)


def test_acknowledged_is_what_was_taken(ends, channel):
    cq = ends.cqs[0]
    cq.ack_events(0)
    for index in range(2):
        cq.req_notify()
        ends.receive(0, index)
        channel.get_cq_event(cq)
    cq.ack_events(1)
    for number in (2, -1):
        with pytest.raises(ValueError, match=f"num_events is {number}; allowed: 0 to 1"):
            cq.ack_events(number)
    cq.ack_events(1)


def test_what_does_not_fit_is_refused(context, ends, channel):
    with pytest.raises(ValueError, match=re.escape("CQ 0 has a channel; allowed: CompChannel.")):
        ends.cqs[0].wait_event()
    with pytest.raises(TypeError, match="channel is a str; allowed: CompChannel or None"):
        CQ(context, 8, channel="channel")
    with pytest.raises(TypeError, match="context is a FakeDevice; allowed: Context"):
        CompChannel(FakeDevice())
    used = len(context.cqs)
    with Context(WaitingDevice()) as there:
        with pytest.raises(ValueError, match="the channel belongs to another device"):
            CQ(context, 8, channel=CompChannel(there))
        with pytest.raises(ValueError, match="CQ 0 does not notify here"):
            channel.get_cq_event(CQ(there, 8), 0.0)
    assert len(context.cqs) == used
    channel.close()
    with pytest.raises(ValueError, match="the completion channel is closed"):
        CQ(context, 8, channel=channel)
