"""A process that was forked from that of the device: no call waits, each says whose it is."""

import asyncio
import os
import signal
import threading
import warnings
from collections.abc import Callable

import pytest

from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    Cause,
    CompChannel,
    Context,
    QPInitAttr,
    QPState,
    RecvWR,
    SendWR,
    connect,
    listen,
    open_connection,
)
from tests.host_driver.fake_device import NoStream
from tests.host_driver.startup_rig import PATIENCE, raw_initiator
from tests.host_driver.test_async_accept import OCTETS
from tests.host_driver.waiting_device import WaitingDevice

pytestmark = pytest.mark.timeout(60)


def in_child(calls: dict[str, Callable[[], object]]) -> dict[str, str]:
    """What became of each call in a child, where one that hangs is ended."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: there are threads
        child = os.fork()
    if not child:
        try:
            for name, call in calls.items():
                signal.alarm(2)
                try:
                    text = repr(call())
                except BaseException as error:
                    text = f"{type(error).__name__}: {error}"
                os.write(write, f"{name}\t{text}\n".encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        lines = told.read().splitlines()
    os.waitpid(child, 0)
    return dict(line.split("\t", 1) for line in lines)


async def _step(stream):
    return await anext(stream)


@pytest.fixture
def rig():
    """An open device with one of everything, and the locks of all held by a thread."""
    with Context(WaitingDevice()) as context:
        context.add_event_handler(lambda event: None)
        pd, channel = PD(context), CompChannel(context)
        cq = CQ(context, 8, overcommit=True, channel=channel)
        other_cq = CQ(context, 8)
        mr, qps = MR(pd, 64), [QP(pd, QPInitAttr(cq, cq)) for _ in range(3)]
        for qp in qps[::2]:
            qp.connect(NoStream(), initiator=True, crc=True, ord=3, ird=2, emss=1460)
        context.transport.event(qps[2].qp_num, Cause.LLP_CLOSED)
        assert qps[2].state == QPState.ERR
        listener = listen(context)
        peers = [raw_initiator(listener.port, OCTETS) for _ in range(2)]
        request, other = (listener.get_request(PATIENCE) for _ in peers)
        accepted = other.accept(None)
        held, release = threading.Event(), threading.Event()

        def hold() -> None:
            locks = (context.lock, listener._turn, qps[2]._detaching, context.watcher._turn)
            with locks[0], locks[1], locks[2], locks[3], request._lock:
                held.set()
                assert release.wait(PATIENCE)

        thread = threading.Thread(target=hold)
        thread.start()
        assert held.wait(PATIENCE)
        calls = {
            "post_send": lambda: qps[0].post_send(SendWR(1)),
            "post_recv": lambda: qps[0].post_recv(RecvWR(1)),
            "state": lambda: qps[0].state,
            "query": qps[0].query,
            "disconnect": qps[0].disconnect,
            "disconnect in ERR": qps[2].disconnect,
            "QP.close": qps[0].close,
            "poll": cq.poll,
            "wait": cq.wait,
            "req_notify": cq.req_notify,
            "stream": lambda: asyncio.run(_step(cq.stream())),
            "wait_event": cq.wait_event,
            "wait_event without a channel": other_cq.wait_event,
            "CQ.close": cq.close,
            "get_cq_event": channel.get_cq_event,
            "CompChannel.fileno": channel.fileno,
            "CompChannel.close": channel.close,
            "MR.write": lambda: mr.write(b"of the child"),
            "MR.close": mr.close,
            "MR": lambda: MR(pd, 1),
            "PD": lambda: PD(context),
            "PD.close": pd.close,
            "connect": lambda: connect(qps[1], "127.0.0.1", listener.port),
            "open_connection": lambda: asyncio.run(
                open_connection(qps[1], "127.0.0.1", listener.port)
            ),
            "listen": lambda: listen(context),
            "get_request": listener.get_request,
            "accept": lambda: asyncio.run(listener.accept()),
            "Listener.close": listener.close,
            "Request.accept": lambda: request.accept(qps[1]),
            "reject": request.reject,
            "Request.close": request.close,
            "peer_address": lambda: request.peer_address,
            "Accepted.wait": accepted.wait,
            "Accepted.poll": accepted.poll,
            "Accepted.connect": lambda: accepted.connect(qps[1]),
            "Accepted.close": accepted.close,
            "get_async_event": context.get_async_event,
            "process_events": context.process_events,
            "fileno": context.fileno,
            "add_event_handler": lambda: context.add_event_handler(print),
            "query_device": context.query_device,
            "cycles": lambda: context.cycles,
            "fpdus_sent": lambda: context.fpdus_sent,
            "reset": context.reset,
            "Context.close": context.close,
            "with": context.__enter__,
        }
        try:
            yield context, mr, calls
        finally:
            release.set()
            thread.join()
            for peer in peers:
                peer.close()


def test_every_call_of_a_child_says_whose_device_it_is(rig):
    context, mr, calls = rig
    found = in_child(calls)
    assert list(found) == list(calls), f"it hangs after {list(found)[-1:]}"
    device = context.transport
    for name, text in found.items():
        assert text.startswith(
            f"DeviceClosed: the device was opened by process {os.getpid()}, this is process "
        ), name
        assert text.endswith("allowed: calls in the process that opened it"), name
    assert not device.closed and device.attached
    assert mr.read() == bytes(64)


def test_a_child_may_read_memory_and_reprs(rig):
    _, mr, _ = rig
    found = in_child({"read": lambda: mr.read(2), "repr": lambda: mr})
    assert found["read"] == "b'\\x00\\x00'" and found["repr"].startswith("<MR STag")
