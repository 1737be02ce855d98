"""ConnectionListener.accept: peers in an event loop."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from stagecoach.host_driver import ListenerClosed, MalformedFrame, StartupTimeout, listen
from stagecoach.host_driver.mpa_startup import StartupFrame
from tests.host_driver.startup_rig import PATIENCE, raw_initiator, receive_all

pytestmark = pytest.mark.timeout(60)

OCTETS = StartupFrame(reply=False, ird=8, ord=8, private_data=b"who").encode()
SOON = 0.5
"""Seconds: longer than what must come takes, and less than it may."""


def run(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return asyncio.run(asyncio.wait_for(work(), PATIENCE))


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "beside a thread"])
def test_the_loop_goes_on_while_it_waits_for_a_peer(passive, others):
    turns = 0

    async def work():
        nonlocal turns
        with listen(passive.context) as listener:
            tasks = [
                asyncio.create_task(asyncio.to_thread(listener.get_request)) for _ in range(others)
            ]
            await asyncio.sleep(0.01)
            threads = threading.active_count()
            tasks.append(asyncio.create_task(listener.accept()))
            end = time.monotonic() + 0.3
            while time.monotonic() < end:
                await asyncio.sleep(0.001)
                turns += 1
            assert not any(task.done() for task in tasks)
            assert threading.active_count() == threads
            peers = [raw_initiator(listener.port, OCTETS) for _ in tasks]
            for request in await asyncio.gather(*tasks):
                assert request.private_data == b"who"
                request.close()
            for peer in peers:
                peer.close()

    run(work)
    assert turns > 20, "a call has waited in the loop"


def test_a_cancelled_wait_leaves_a_peer_in_the_middle_of_its_request(passive):
    async def work():
        with listen(passive.context) as listener, raw_initiator(listener.port, OCTETS[:9]) as peer:
            for _ in range(2):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(listener.accept(), 0.05)
            peer.sendall(OCTETS[9:])
            with await listener.accept() as request:
                assert request.private_data == b"who"
            # Nothing of the cancelled ones is left that would take the next one.
            with raw_initiator(listener.port, OCTETS):
                await asyncio.sleep(0.1)
                with await asyncio.to_thread(listener.get_request) as request:
                    return request.private_data

    assert run(work) == b"who"


def test_peers_come_to_tasks_and_threads_that_share_a_listener(passive):
    async def work():
        with listen(passive.context) as listener:
            tasks = [asyncio.create_task(listener.accept()) for _ in range(2)]
            tasks.append(asyncio.create_task(asyncio.to_thread(listener.get_request)))
            await asyncio.sleep(0.05)
            peers = [raw_initiator(listener.port, OCTETS) for _ in tasks]
            for request in await asyncio.gather(*tasks):
                request.close()
            return [receive_all(peer) for peer in peers]

    assert run(work) == [b""] * 3


def test_a_malformed_request_is_told_and_the_next_peer_is_taken(passive):
    async def work():
        with listen(passive.context) as listener, raw_initiator(listener.port, b"GET /"):
            with pytest.raises(MalformedFrame, match="it begins b'G"):
                await listener.accept()
            with raw_initiator(listener.port, OCTETS), await listener.accept() as request:
                return request.private_data

    assert run(work) == b"who"


def test_a_peer_that_is_slow_with_its_request_is_told(passive):
    async def work():
        with listen(passive.context, request_timeout=0.1) as listener:
            with raw_initiator(listener.port, OCTETS[:9]), pytest.raises(StartupTimeout):
                await listener.accept()

    run(work)


def test_a_listener_that_is_closed_ends_a_wait(passive):
    async def work():
        listener = listen(passive.context)
        task = asyncio.create_task(listener.accept())
        await asyncio.sleep(0.05)
        listener.close()
        begun = time.monotonic()
        with pytest.raises(ListenerClosed):
            await task
        assert time.monotonic() - begun < SOON

    run(work)
