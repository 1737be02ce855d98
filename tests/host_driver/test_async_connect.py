"""open_connection: an event loop connects QPs."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from stagecoach.host_driver import (
    RTR,
    ConnectionRejected,
    MalformedFrame,
    QPState,
    StartupError,
    StartupTimeout,
    listen,
    open_connection,
)
from tests.host_driver.startup_rig import (
    GOOD_REPLY,
    PATIENCE,
    RawResponder,
    RtrDevice,
    Side,
    answer_with,
    changed,
    receive_all,
    receive_frame,
)

pytestmark = pytest.mark.timeout(60)


def run(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return asyncio.run(asyncio.wait_for(work(), PATIENCE))


def test_a_loop_connects_as_a_thread_does_and_goes_on(active, passive):
    async def work():
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0.001)
                turns += 1

        counting = asyncio.create_task(count())
        with listen(passive.context) as listener:
            connecting = asyncio.create_task(
                open_connection(active.qp, "127.0.0.1", listener.port, private_data=b"hi", ord=3)
            )
            request = await listener.accept()
            assert request.private_data == b"hi"
            await asyncio.sleep(0.1)
            assert not connecting.done()
            request.accept(passive.qp, private_data=b"welcome", ird=2)
            reply = await connecting
        counting.cancel()
        return turns, reply

    turns, reply = run(work)
    assert reply == b"welcome" and turns > 20
    assert active.qp.state == passive.qp.state == QPState.RTS
    assert active.qp.connection.ord == 2


async def _cancelled(active: Side, port: int, seconds: float = 0.05, **options: Any) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(open_connection(active.qp, "127.0.0.1", port, **options), seconds)


def test_a_cancelled_wait_for_the_reply_closes_the_connection(active):
    def handle(peer):
        return receive_frame(peer, reply=False), receive_all(peer)

    with RawResponder(handle) as responder:
        run(lambda: _cancelled(active, responder.port))
    assert responder.result[1] == b"", "not closed at once, or not alone"
    assert active.qp.state == QPState.INIT and not active.device.attached
    with RawResponder(answer_with(GOOD_REPLY.encode())) as responder:
        run(lambda: open_connection(active.qp, "127.0.0.1", responder.port))
        active.qp.close()


def test_a_cancelled_wait_before_the_first_fpdu_closes_the_connection(active):
    with RawResponder(answer_with(GOOD_REPLY.encode())) as responder:
        run(lambda: _cancelled(active, responder.port, first_fpdu_delay=5.0))
    assert active.qp.state == QPState.INIT and not active.device.attached


@pytest.mark.parametrize("late", [False, True])
def test_a_stream_that_opens_for_a_cancelled_wait_is_closed(active, monkeypatch, late):
    """`late`: it opens after the task was cancelled, else before it has gone on."""
    there, go_on = threading.Event(), threading.Event()
    connect, streams = active.device.connect, []

    def slow(host, port, timeout=None):
        streams.append(stream := connect(host, port, timeout))
        there.set()
        assert go_on.wait(PATIENCE)
        return stream

    monkeypatch.setattr(active.device, "connect", slow)

    async def work(port):
        task = asyncio.create_task(open_connection(active.qp, "127.0.0.1", port))
        await asyncio.to_thread(there.wait, PATIENCE)
        if late:
            task.cancel()
            await asyncio.sleep(0)
        go_on.set()
        opener = next(each for each in threading.enumerate() if each.name == "open connection")
        opener.join(PATIENCE)
        if not late:
            # The result is told in the next turn of the loop, and the task goes on after it.
            asyncio.get_running_loop().call_soon(task.cancel)
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.01)

    with RawResponder(receive_all) as responder:
        run(lambda: work(responder.port))
    assert responder.result == b""
    assert [stream.fileno() for stream in streams] == [-1]
    assert active.qp.state == QPState.INIT


def rtr_side() -> Side:
    return Side(RtrDevice())


REPLY_WITH_RTR = changed(GOOD_REPLY, peer_to_peer=True, rtr=RTR.WRITE)


def test_the_rtr_frame_is_waited_for():
    active = rtr_side()
    with active.context, RawResponder(answer_with(REPLY_WITH_RTR)) as responder:
        run(lambda: open_connection(active.qp, "127.0.0.1", responder.port, peer_to_peer=True))
        assert active.qp._hidden_done() and active.qp.state == QPState.RTS
        active.qp.close()


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_wait_for_the_rtr_frame_that_fails_ends_the_stream(cancelled):
    active = rtr_side()
    active.device.completes = False

    async def work():
        if cancelled:
            await _cancelled(active, responder.port, 0.2, peer_to_peer=True)
            return
        with pytest.raises(StartupTimeout, match="QP 0 has not done it"):
            await open_connection(
                active.qp, "127.0.0.1", responder.port, peer_to_peer=True, timeout=0.2
            )

    with active.context, RawResponder(answer_with(REPLY_WITH_RTR)) as responder:
        run(work)
        assert active.qp.state == QPState.ERR and not active.device.attached
        assert active.device.detach_timeouts == [0.0], "the loop waits for a peer"


def test_its_errors_are_those_of_connect(active):
    async def fails(answer, error, **options):
        with RawResponder(answer_with(answer)) as responder:
            with pytest.raises(error):
                await open_connection(active.qp, "127.0.0.1", responder.port, **options)

    async def work():
        await fails(b"", StartupTimeout, timeout=0.05)
        await fails(b"HTTP/1.1 400", MalformedFrame)
        await fails(changed(GOOD_REPLY, reject=True), ConnectionRejected)
        with pytest.raises(ValueError, match="EMSS 1"):
            await open_connection(active.qp, "127.0.0.1", 1, emss=1)
        begun = time.monotonic()
        with pytest.raises(StartupError, match="TCP connection"):
            await open_connection(active.qp, "127.0.0.1", 1)
        assert time.monotonic() - begun < 1

    run(work)
    assert active.qp.state == QPState.INIT
