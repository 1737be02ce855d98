"""MPA startup: every step has a timer, and a peer that is not there is an error."""

import contextlib
import socket
import time

import pytest

from stagecoach.host_driver import (
    ConnectionRequest,
    InitiatorInitiatorError,
    QPState,
    StartupError,
    StartupStep,
    StartupTimeout,
    connect,
)
from stagecoach.host_driver.mpa_startup import StartupFrame
from stagecoach.host_driver.transport.base import TransportTimeout
from tests.host_driver.fake_device import RESET
from tests.host_driver.startup_rig import (
    GOOD_REPLY,
    PATIENCE,
    SHORT,
    Background,
    RawResponder,
    answer_with,
    changed,
    receive_all,
    receive_frame,
    to_model,
)


def full_listener() -> tuple[socket.socket, list[socket.socket]]:
    """A listener that takes no more connections, and those that filled it."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    waiting = []
    for _ in range(4):
        peer = socket.socket()
        peer.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            peer.connect(listener.getsockname())
        waiting.append(peer)
    time.sleep(SHORT)
    return listener, waiting


def test_a_host_that_does_not_answer_is_an_error_in_time(active):
    listener, waiting = full_listener()
    begun = time.monotonic()
    with pytest.raises(StartupTimeout, match=r"TCP connection: not within 0\.3 s") as caught:
        connect(active.qp, *listener.getsockname(), timeout=0.3)
    assert time.monotonic() - begun < 0.3 + PATIENCE / 2
    assert (caught.value.step, caught.value.seconds) == (StartupStep.TCP_CONNECTION, 0.3)
    for each in (*waiting, listener):
        each.close()


@pytest.mark.requirement("MPA-7.1.2-10", "MPA-7.1.2-21", "MPA-7.1.2-24")
@pytest.mark.parametrize("octets", [b"", b"MPA", GOOD_REPLY.encode()[:-1]])
def test_a_peer_that_falls_silent_is_an_error_in_time(active, octets):
    with RawResponder(answer_with(octets)) as responder:
        begun = time.monotonic()
        message = rf"MPA Reply frame: not within 0\.1 s: {len(octets)} bytes came, "
        with pytest.raises(StartupTimeout, match=message) as caught:
            connect(active.qp, "127.0.0.1", responder.port, timeout=SHORT)
        assert time.monotonic() - begun < PATIENCE / 2
    assert caught.value.step == StartupStep.REPLY
    assert caught.value.peer == ("127.0.0.1", responder.port)
    assert isinstance(caught.value, TimeoutError)
    assert responder.result[1] == b""


class FullStream:
    """A stream whose peer takes nothing: it is sent nothing, in any time."""

    maximum_segment_size = 1460
    peer_address = ("127.0.0.1", 1)

    def __init__(self) -> None:
        self.closed = False

    def sendall(self, octets: bytes, timeout: float | None = None) -> None:
        assert timeout is not None and timeout <= SHORT, "it would wait for ever"
        raise TransportTimeout(f"{len(octets)} bytes not sent in {timeout} s")

    def receive_exactly(self, count: int, timeout: float | None = None) -> bytes:
        raise TransportTimeout("nothing comes")

    def close(self) -> None:
        self.closed = True


def test_a_peer_that_does_not_take_the_frame_is_an_error_in_time(active):
    stream = FullStream()
    active.device.connect = lambda *arguments: stream
    with pytest.raises(StartupTimeout, match=r"MPA Request frame: not within 0\.1 s: 24 bytes not"):
        connect(active.qp, "127.0.0.1", 1, timeout=SHORT)
    assert stream.closed
    for answer in ("accept", "reject"):
        stream = FullStream()
        request = ConnectionRequest(active.context, stream, StartupFrame(reply=False))
        if answer == "accept":
            with pytest.raises(StartupTimeout, match=r"MPA Reply frame: not within 0\.1 s"):
                request.accept(active.qp, timeout=SHORT)
        else:
            request.reject(timeout=SHORT)
        assert stream.closed
    assert active.qp.state == QPState.INIT


@pytest.mark.requirement("MPA-7.1.2-24")
def test_a_peer_that_dribbles_has_one_timer_for_the_whole_frame(active):
    def handle(peer: socket.socket) -> None:
        receive_frame(peer, reply=False)
        with contextlib.suppress(OSError):
            for octet in GOOD_REPLY.encode():
                peer.sendall(bytes([octet]))
                time.sleep(0.05)

    with RawResponder(handle) as responder:
        with pytest.raises(StartupTimeout, match=r"MPA Reply frame: not within 0\.3 s"):
            connect(active.qp, "127.0.0.1", responder.port, timeout=0.3)


def test_a_reply_in_single_octets_is_understood(active):
    def handle(peer: socket.socket) -> bytes:
        receive_frame(peer, reply=False)
        for octet in changed(GOOD_REPLY, private_data=b"slow"):
            peer.sendall(bytes([octet]))
            time.sleep(0.001)
        return receive_all(peer)

    with RawResponder(handle) as responder:
        assert connect(active.qp, "127.0.0.1", responder.port, timeout=PATIENCE) == b"slow"
        active.context.close()


@pytest.mark.requirement("MPA-7.1.2-19")
def test_two_initiators_find_each_other_out(sides):
    one, other = sides
    raw = socket.create_server(("127.0.0.1", 0))
    with raw, Background(raw.accept) as accepting:
        stream = other.device.connect(*raw.getsockname())
    accepted, _ = accepting.result
    one.device.connect = lambda *arguments: stream
    with accepted:
        # The other one is an Initiator, too: it sends its Request without looking.
        accepted.sendall(StartupFrame(reply=False).encode())
        with pytest.raises(InitiatorInitiatorError):
            connect(one.qp, "127.0.0.1", 1)
        assert receive_frame(accepted, reply=False) == to_model(
            StartupFrame(reply=False, ird=8, ord=8)
        )
        assert receive_all(accepted) == b""


def test_nobody_listening_is_an_error(active):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    message = f"TCP connection: cannot connect to 127.0.0.1:{port}"
    with pytest.raises(StartupError, match=message) as caught:
        connect(active.qp, "127.0.0.1", port, timeout=2)
    assert not isinstance(caught.value, StartupTimeout)


def test_a_host_that_is_not_known_is_an_error(active):
    with pytest.raises(StartupError, match="TCP connection: cannot connect to"):
        connect(active.qp, "a" * 300, 1, timeout=2)


def test_qps_are_free_after_a_failed_startup(active):
    with pytest.raises(StartupError):
        connect(active.qp, "127.0.0.1", 1, timeout=2)
    active.qp.close()
    assert active.device.states[0] == RESET
