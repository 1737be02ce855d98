"""ConnectionListener.accept and accept_connection: peers in an event loop."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from stagecoach.host_driver import (
    RTR,
    ListenerClosed,
    MalformedFrame,
    QPState,
    QPStateError,
    StartupError,
    StartupStep,
    StartupTimeout,
    accept_connection,
    listen,
)
from stagecoach.host_driver.mpa_startup import StartupFrame
from stagecoach.sim.model.endpoint import Endpoint
from tests.host_driver.startup_rig import (
    PATIENCE,
    RtrDevice,
    Side,
    raw_initiator,
    receive_all,
    receive_frame,
)

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


# accept_connection

RTR_OCTETS = StartupFrame(reply=False, ird=8, ord=8, peer_to_peer=True, rtr=RTR.WRITE).encode()
SEND_OCTETS = StartupFrame(reply=False, ird=8, ord=8, peer_to_peer=True, rtr=RTR.SEND).encode()


def test_clients_are_accepted_side_by_side(passive):
    """The first one holds back its RTR frame; the second one is accepted meanwhile."""
    other = passive.another_qp()

    async def work():
        with (
            listen(passive.context) as listener,
            raw_initiator(listener.port, RTR_OCTETS) as slow,
        ):
            first = await listener.accept()
            accepting = asyncio.create_task(accept_connection(first, passive.qp, private_data=b"1"))
            with raw_initiator(listener.port, OCTETS) as peer:
                await accept_connection(await listener.accept(), other, private_data=b"2", ord=3)
                assert receive_frame(peer, reply=True).private_data == b"2"
            assert other.state == QPState.RTS and other.connection.ord == 3
            assert receive_frame(slow, reply=True).private_data == b"1"
            assert not accepting.done() and passive.qp.state == QPState.INIT
            slow.sendall(b"\0")
            await accepting
            assert passive.qp.state == QPState.RTS

    run(work)


async def _request(listener, octets):
    """A peer that has sent a Request, and the Request as it came."""
    peer = await asyncio.to_thread(raw_initiator, listener.port, octets)
    return peer, await listener.accept()


def test_a_cancelled_wait_for_the_first_fpdu_leaves_nothing(passive):
    async def work():
        with listen(passive.context) as listener:
            peer, request = await _request(listener, RTR_OCTETS)
            with peer:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(accept_connection(request, passive.qp), 0.05)
                receive_frame(peer, reply=True)
                assert await asyncio.to_thread(receive_all, peer) == b"", "it is not closed"
            assert passive.qp.state == QPState.INIT and not passive.device.attached
            with pytest.raises(StartupError, match="answered or closed"):
                request.reject()
            # The QP is as if nothing had been.
            peer, request = await _request(listener, OCTETS)
            with peer:
                await accept_connection(request, passive.qp)
            assert passive.qp.state == QPState.RTS

    before = len(passive.context._open)
    run(work)
    assert len(passive.context._open) == before, "the context holds what nobody needs"


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_wait_for_a_send_that_fails_ends_the_stream(passive, cancelled):
    """Its device receives nothing, so the receive of the RTR frame does not complete."""

    async def work():
        with listen(passive.context) as listener:
            peer, request = await _request(listener, SEND_OCTETS)
            with peer:
                options = {"rtr": RTR.SEND, "timeout": PATIENCE if cancelled else 0.2}
                accepting = asyncio.create_task(accept_connection(request, passive.qp, **options))
                await asyncio.sleep(0)
                receive_frame(peer, reply=True)
                peer.sendall(b"\0")
                await asyncio.sleep(0.1)
                assert passive.qp.state == QPState.RTS
                if cancelled:
                    accepting.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await accepting
                else:
                    with pytest.raises(StartupTimeout, match="QP 0 has not done it"):
                        await accepting

    run(work)
    assert passive.qp.state == QPState.ERR and not passive.device.attached
    assert passive.device.detach_timeouts == [0.0], "the loop waits for a peer"
    assert passive.cq.poll() == [], "the receive of the RTR frame is hidden"


def test_a_send_as_rtr_frame_is_waited_for():
    passive = Side(RtrDevice())

    async def work():
        with listen(passive.context) as listener:
            peer, request = await _request(listener, SEND_OCTETS)
            with peer:
                accepting = asyncio.create_task(
                    accept_connection(request, passive.qp, rtr=RTR.SEND)
                )
                await asyncio.sleep(0)
                receive_frame(peer, reply=True)
                endpoint = Endpoint(responder=False)
                endpoint.post_send(b"")
                peer.sendall(b"".join(endpoint.take_output()))
                await accepting

    with passive.context:
        run(work)
        assert passive.qp._hidden_done() and passive.qp.state == QPState.RTS


def test_its_errors_are_those_of_accept(passive):
    async def work():
        with listen(passive.context) as listener:
            peer, request = await _request(listener, RTR_OCTETS)
            with peer:
                with pytest.raises(TypeError, match="qp is a NoneType; allowed: QP"):
                    await accept_connection(request, None)
                with pytest.raises(ValueError, match="EMSS 1"):
                    await accept_connection(request, passive.qp, emss=1)
                with pytest.raises(StartupTimeout, match="RTR frame: not within") as caught:
                    await accept_connection(request, passive.qp, timeout=0.05)
                assert caught.value.step == StartupStep.FIRST_FPDU
            peer, request = await _request(listener, RTR_OCTETS)
            accepting = asyncio.create_task(accept_connection(request, passive.qp))
            await asyncio.sleep(0.01)
            peer.close()
            with pytest.raises(StartupError, match="RTR frame"):
                await accepting
            assert passive.qp.state == QPState.INIT
            peer, request = await _request(listener, OCTETS)
            with peer:
                await accept_connection(request, passive.qp)
                with pytest.raises(QPStateError, match="QP 0 is in state RTS; allowed: INIT"):
                    await accept_connection(request, passive.qp)

    run(work)
