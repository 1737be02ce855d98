"""MPA startup into Full Operation on the compiled device: who may send first, and RTR frames."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stagecoach.host_driver import (
    RTR,
    WC,
    Cause,
    ConnectionRequest,
    Context,
    NoMatchingRTR,
    QPState,
    RecvWR,
    SendWR,
    WCOpcode,
    WCStatus,
    WROpcode,
    connect,
    listen,
)
from stagecoach.sim.capture.connections import Direction, read_connections
from stagecoach.sim.model import mpa
from stagecoach.sim.model.mpa import EnhancedData, StartupFrame
from stagecoach.sim.model.peer import Peer
from tests.host_driver.test_peer_to_peer import CAPTURE
from tests.integration.rig import End, open_device

pytestmark = pytest.mark.timeout(150)  # the first test may have to build the device

SECONDS = 10.0
QUIET = 0.2
"""Seconds in which nothing may come; an FPDU that may be sent comes within a millisecond."""

EVERY = RTR.SEND | RTR.WRITE | RTR.READ


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    with open_device() as opened:
        yield opened


@pytest.fixture(scope="module")
def other_context() -> Iterator[Context]:
    with open_device() as opened:
        yield opened


@contextlib.contextmanager
def running(work: Callable[[], Any]) -> Iterator[list[Any]]:
    """Runs something in a thread; its result is in the list after the `with` block."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    yield results
    thread.join(SECONDS)
    assert results, "the thread failed or does not end"


def responder(
    end: End, request: StartupFrame | None = None
) -> tuple[socket.socket, ConnectionRequest]:
    """A raw Initiator that has sent a Request, and the Request as the driver sees it."""
    frame = request or StartupFrame(reply=False, enhanced=EnhancedData(8, 8))
    with listen(end.context) as listener:
        peer = socket.create_connection(("127.0.0.1", listener.port), SECONDS)
        peer.sendall(frame.encode())
        return peer, listener.get_request(SECONDS)


def post_greeting(end: End) -> None:
    end.buffer[:5] = b"hello"
    end.qp.post_send(SendWR(1, WROpcode.SEND, [end.element(0, 5)]))


def assert_quiet(peer: socket.socket) -> None:
    peer.settimeout(QUIET)
    with pytest.raises(TimeoutError):
        peer.recv(1)
    peer.settimeout(SECONDS)


def receive_ulpdu(peer: socket.socket) -> bytes:
    deframer, ulpdus = mpa.Deframer(), list[bytes]()
    while not ulpdus:
        octets = peer.recv(1)
        assert octets, "the stream has ended"
        ulpdus += deframer.feed(octets)
    return ulpdus[0]


EMPTY_WRITE = mpa.frame_fpdu(bytes.fromhex("c140 00000001 0000000000000000"))


# The Responder


@pytest.mark.requirement("DDP-5.2-11", "MPA-7.1.2-14")
def test_a_responder_sends_nothing_before_the_first_valid_fpdu(context: Context):
    end = End(context)
    peer, request = responder(end)
    request.accept(end.qp)
    assert peer.recv(24) == StartupFrame(reply=True, enhanced=EnhancedData(8, 8)).encode()
    post_greeting(end)
    assert_quiet(peer)
    peer.sendall(EMPTY_WRITE[:-1])
    assert_quiet(peer)
    peer.sendall(EMPTY_WRITE[-1:])
    assert receive_ulpdu(peer)[18:] == b"hello"
    assert [wc.wr_id for wc in end.cq.wait(1, SECONDS)] == [1]
    peer.close()
    end.close()


@pytest.mark.requirement("MPA-7.1.2-14")
def test_an_fpdu_with_a_wrong_crc_does_not_let_the_responder_send(context: Context):
    end = End(context)
    peer, request = responder(end)
    request.accept(end.qp)
    peer.recv(24)
    post_greeting(end)
    peer.sendall(EMPTY_WRITE[:-1] + bytes([EMPTY_WRITE[-1] ^ 1]))
    (completion,) = end.cq.wait(1, SECONDS)
    assert (completion.status, completion.cause) == (WCStatus.WR_FLUSH_ERR, Cause.CRC_ERROR)
    with contextlib.suppress(ConnectionResetError):
        assert peer.recv(100) == b""
    peer.close()
    end.close()


# Peer to peer


@pytest.mark.requirement("RDMAP-5.2.1-14", "RDMAP-5.2.1-15", "DDP-5.2-09", "DDP-5.2-11")
@pytest.mark.requirement("DDP-6.1-01", "MPA-7.1.2-08", "MPA2-9.2-08", "SEC-6.3.5-01")
@pytest.mark.parametrize("option", list(RTR))
def test_the_responder_may_send_first(context: Context, other_context: Context, option: RTR):
    active, passive = End(context), End(other_context)
    active.qp.post_recv(RecvWR(7, [active.element(100, 50)]))
    with listen(passive.context) as listener:

        def accept() -> bool:
            listener.get_request(SECONDS).accept(passive.qp, rtr=option)
            post_greeting(passive)
            return True

        with running(accept):
            connect(active.qp, "127.0.0.1", listener.port, peer_to_peer=True, rtr=EVERY)
    assert active.qp.connection is not None and active.qp.connection.rtr == option
    # Only what the users posted is completed, at either end.
    (received,) = active.cq.wait(1, SECONDS)
    assert (received.wr_id, received.opcode, received.byte_len) == (7, WCOpcode.RECV, 5)
    assert active.buffer[100:105] == b"hello"
    (sent,) = passive.cq.wait(1, SECONDS)
    assert (sent.wr_id, sent.status) == (1, WCStatus.SUCCESS)

    # And the other way round, with Reads too, as ever.
    passive.qp.post_recv(RecvWR(8, [passive.element(200, 50)]))
    remote = {"remote_addr": passive.mr.addr, "rkey": passive.mr.rkey}
    active.qp.post_send(
        SendWR(2, WROpcode.RDMA_READ, [active.element(300, 5)], **remote),
        SendWR(3, WROpcode.SEND, [active.element(100, 3)]),
    )
    assert [wc.wr_id for wc in active.cq.wait(2, SECONDS)] == [2, 3]
    assert active.buffer[300:305] == b"hello"
    assert [wc.wr_id for wc in passive.cq.wait(1, SECONDS)] == [8]
    assert active.cq.poll() == passive.cq.poll() == []
    active.close()
    passive.close()


@pytest.mark.requirement("MPA-3-09", "MPA2-5-01", "MPA2-9.2-08")
def test_the_rtr_frame_is_the_captured_one_and_the_reference_model_takes_it(context: Context):
    (captured,) = read_connections(CAPTURE)
    end = End(context)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> tuple[bytes, Peer]:
            connection, _ = server.accept()
            # Up to the Request, then everything that the device sends of itself.
            peer = Peer.accept(connection, timeout=SECONDS)
            connection.setblocking(True)
            connection.settimeout(SECONDS)
            return connection.recv(100, socket.MSG_PEEK), peer

        with running(accept) as accepted:
            connect(end.qp, *server.getsockname(), peer_to_peer=True, ird=1, ord=1)
    first, peer = accepted[0]
    assert first == captured.stream(Direction.TO_RESPONDER)[: len(first)]
    assert len(first) == len(EMPTY_WRITE)
    # The Responder of the reference model may send now.
    end.qp.post_recv(RecvWR(4, [end.element(0, 10)]))
    peer.endpoint.post_send(b"first")
    peer.socket.setblocking(False)
    completions: list[WC] = []
    peer.run_until(lambda: bool(completions.extend(end.cq.poll()) or completions), SECONDS)
    (completion,) = completions
    assert (completion.wr_id, completion.byte_len) == (4, 5)
    peer.close()
    end.close()


@pytest.mark.requirement("RDMAP-5.2.1-14", "RDMAP-5.2.1-15", "DDP-5.2-09", "DDP-5.2-11")
@pytest.mark.requirement("DDP-6.1-01", "MPA-7.1.2-08")
@pytest.mark.parametrize("by_read", [False, True])
def test_the_rtr_frames_of_the_reference_model_let_the_device_send(context: Context, by_read: bool):
    end = End(context)
    enhanced = EnhancedData(1, 1, True, rtr_write=not by_read, rtr_read=by_read)
    with listen(context) as listener:

        def initiate() -> Peer:
            connection = socket.create_connection(("127.0.0.1", listener.port), SECONDS)
            peer = Peer.connect(connection, enhanced=enhanced, timeout=SECONDS)
            assert end.qp.state == QPState.INIT  # it waits for the RTR frame
            peer.endpoint.send_ready_to_receive(by_read=by_read)
            peer.endpoint.post_receive(50)
            peer.wait(1, SECONDS)
            return peer

        with running(initiate) as initiated:
            listener.get_request(SECONDS).accept(end.qp)
            post_greeting(end)
    assert [wc.wr_id for wc in end.cq.wait(1, SECONDS)] == [1]
    initiated[0].close()
    end.close()


@pytest.mark.requirement("MPA2-9.2-09")
def test_a_responder_learns_why_the_initiator_gives_up(context: Context, other_context: Context):
    active, passive = End(context), End(other_context)
    with listen(passive.context) as listener:

        def accept() -> bool:
            listener.get_request(SECONDS).accept(passive.qp, rtr=RTR.WRITE)
            return True

        with running(accept):
            with pytest.raises(NoMatchingRTR):
                connect(active.qp, "127.0.0.1", listener.port, peer_to_peer=True, rtr=RTR.READ)
    end = time.monotonic() + SECONDS
    while passive.qp.state == QPState.RTS and time.monotonic() < end:
        passive.cq.poll()
        time.sleep(0.001)
    assert passive.qp.cause == Cause.TERMINATE_RECEIVED
    assert active.qp.query_state() == (QPState.INIT, Cause.NONE)
    active.close()
    passive.close()
