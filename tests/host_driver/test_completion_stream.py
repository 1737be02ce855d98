"""CQ.stream: completions in an event loop, and what a wait that is cancelled leaves behind."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import pytest

from stagecoach.host_driver import (
    WC,
    Cause,
    CompChannel,
    Context,
    DeviceClosed,
    RecvWR,
    WCOpcode,
    WCStatus,
)
from stagecoach.host_driver.cq import CQ
from stagecoach.hw.interface.queue_entries import CompletionOpcode
from tests.host_driver.test_queues import connect
from tests.host_driver.waiting_device import WaitingDevice, no_watcher_is_left, watchers

pytestmark = pytest.mark.timeout(60)

SECONDS = 10.0
RECEIVE = CompletionOpcode.RECEIVE


@pytest.fixture
def device() -> WaitingDevice:
    return WaitingDevice()


@pytest.fixture
def cq(verbs: SimpleNamespace) -> CQ:
    """A CQ with four receives posted."""
    connect(verbs.qp)
    verbs.qp.post_recv(*[RecvWR(number) for number in range(4)])
    return verbs.cq


def run(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return asyncio.run(asyncio.wait_for(work(), SECONDS))


async def waiting(step: Awaitable[Any]) -> "asyncio.Task[Any]":
    """A task that waits in a step by now."""

    async def take() -> Any:
        return await step

    task = asyncio.create_task(take())
    await asyncio.sleep(0.02)
    assert not task.done() and len(watchers()) == 1
    return task


def test_completions_come_in_order_and_the_loop_goes_on(cq, device):
    async def work():
        device.complete(0, 0, 0, RECEIVE)
        asyncio.get_running_loop().call_later(0.03, device.complete, 0, 0, 1, RECEIVE)
        asyncio.get_running_loop().call_later(0.03, device.complete, 0, 0, 2, RECEIVE)
        found = []
        async for wc in cq.stream():
            found.append(wc.wr_id)
            if len(found) == 3:
                return found

    assert run(work) == [0, 1, 2]
    assert no_watcher_is_left()


def test_a_wait_that_is_cancelled_leaves_nothing_behind(cq, device):
    async def work():
        stream = cq.stream()
        task = await waiting(anext(stream))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not cq._wakers
        assert await asyncio.to_thread(no_watcher_is_left)
        before = device.doorbells[:]
        device.complete(0, 0, 0, RECEIVE)
        await asyncio.sleep(0.05)
        assert device.doorbells == before
        return (await anext(stream)).wr_id

    assert run(work) == 0


def test_a_completion_that_comes_as_the_wait_is_cancelled_stays_in_the_cq(cq, device):
    async def work():
        task = await waiting(anext(cq.stream()))
        device.complete(0, 0, 0, RECEIVE)
        while cq._wakers:  # the loop itself does not go on: the task is woken, and has not run
            pass
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(work)
    assert [wc.wr_id for wc in cq.poll()] == [0]


def test_what_another_thread_took_from_the_ring_since_the_last_poll_is_found(context):
    class Shared(CQ):
        late = False

        def poll(self, num_entries=16):
            found = super().poll(num_entries)
            if not self.late:
                self.late = True
                self._append(WC(5, WCStatus.SUCCESS, WCOpcode.RECV, 0, 0))
            return found

    async def work():
        return await anext(Shared(context, 8).stream())

    assert run(work).wr_id == 5


def test_a_loop_that_is_left_is_taken_up_again(cq, device):
    async def work():
        for index in range(3):
            device.complete(0, 0, index, RECEIVE)
        found = []
        for _ in range(3):
            async for wc in cq.stream():
                found.append(wc.wr_id)
                break
        return found

    assert run(work) == [0, 1, 2]
    assert not watchers()


def test_tasks_share_a_cq(cq, device):
    async def work():
        tasks = [asyncio.create_task(anext(cq.stream())) for _ in range(3)]
        await asyncio.sleep(0.02)
        assert len(watchers()) == 1
        for index in range(3):
            device.complete(0, 0, index, RECEIVE)
        return sorted(wc.wr_id for wc in await asyncio.gather(*tasks))

    assert run(work) == [0, 1, 2]


def test_other_tasks_have_a_turn_while_many_are_there(cq):
    turns = 0

    async def work():
        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        for number in range(640):
            cq._append(WC(number, WCStatus.SUCCESS, WCOpcode.RECV, 0, 0))
        counting = asyncio.create_task(count())
        stream = cq.stream()
        found = [(await anext(stream)).wr_id for _ in range(640)]
        counting.cancel()
        return found

    assert run(work) == list(range(640))
    assert 8 <= turns < 64


def test_a_queue_that_is_flushed_is_told(cq, device):
    async def work():
        task = await waiting(anext(cq.stream()))
        device.event(0, Cause.CRC_ERROR)
        return await task

    assert run(work).status == WCStatus.WR_FLUSH_ERR


def test_a_channel_is_told_as_well(context, device, verbs):
    channel = CompChannel(context)
    cq = CQ(context, 8, channel=channel)
    cq.req_notify(solicited_only=True)

    async def work():
        task = await waiting(anext(cq.stream()))
        name, fields = device.doorbells[-1]
        assert (name, fields["cq"], fields["solicited"]) == ("CQ_DOORBELL", cq.number, 0)
        cq._append(WC(1, WCStatus.SUCCESS, WCOpcode.RECV, 0, 0))
        assert (await task).wr_id == 1
        task = await waiting(anext(cq.stream()))
        cq._append(WC(2, WCStatus.WR_FLUSH_ERR, WCOpcode.RECV, 0, 0))
        assert channel.get_cq_event(timeout=0.0) is cq
        return (await task).wr_id

    assert run(work) == 2


def test_a_stream_can_be_closed(cq, verbs):
    for index in range(2):
        verbs.device.complete(0, 0, index, RECEIVE)

    async def work():
        async with aclosing(cq.stream()) as stream:
            first = await anext(stream)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        return first, cq.poll()

    first, rest = run(work)
    assert [each.wr_id for each in (first, *rest)] == [0, 1]


def test_a_cq_that_is_closed_ends_a_wait(context):
    cq = CQ(context, 8)

    async def work():
        task = await waiting(anext(cq.stream()))
        cq.close()
        with pytest.raises(ValueError, match=f"CQ {cq.number} is closed; allowed: an open CQ"):
            await task

    run(work)


def test_a_context_that_is_closed_ends_a_wait():
    context = Context(WaitingDevice())
    cq = CQ(context, 8)

    async def work():
        task = await waiting(anext(cq.stream()))
        context.close()
        assert not watchers()
        with pytest.raises(DeviceClosed, match=r"the context of \w+ is closed"):
            await task

    run(work)


def test_a_device_that_ends_is_told_to_who_waits(cq, device):
    async def work():
        task = await waiting(anext(cq.stream()))
        device.end("the power is off")
        with pytest.raises(DeviceClosed, match="the power is off"):
            await task

    run(work)
    assert no_watcher_is_left()
    device.ended = None  # the fixture closes it
