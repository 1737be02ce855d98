"""The reference endpoint over sockets: startup as both roles, traffic, broken peers."""

import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from stagecoach.sim.model import errors
from stagecoach.sim.model.mpa import EnhancedData, MpaError, StartupFrame, frame_fpdu
from stagecoach.sim.model.peer import Peer, Rejected

TIMEOUT = 5.0
Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Two connected sockets."""
    pair = socket.socketpair()
    yield pair
    for end in pair:
        end.close()


@contextmanager
def other_thread(work: Callable[[], None]) -> Iterator[None]:
    """Run ``work`` beside the body; its exception appears here."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield
    thread.join(2 * TIMEOUT)
    assert not thread.is_alive(), "the other side hangs"
    if failures:
        raise failures[0]


@pytest.mark.parametrize("markers", [False, True])
@pytest.mark.parametrize("cut_anywhere", [False, True])
def test_startup_and_large_traffic_both_ways(ends, markers, cut_anywhere):
    octets = 1 << 18
    cut = (lambda left: random.Random(left).randint(1, 3000)) if cut_anywhere else None
    memories = [bytearray(octets), bytearray(octets)]

    def run(peer: Peer, side: int) -> None:
        with peer:
            peer.endpoint.register(memories[side], stag=7)
            peer.endpoint.post_receive(16, "receive")
            peer.endpoint.rdma_write(bytes([side + 1]) * octets, 7, 0, "write")
            peer.endpoint.post_send(b"done", "send")
            completions = peer.wait(3, TIMEOUT)
            assert {c.work_id for c in completions} == {"receive", "write", "send"}
            assert memories[side] == bytes([2 - side]) * octets

    enhanced = EnhancedData(ird=4, ord=5, peer_to_peer=True, rtr_write=True)
    with other_thread(
        lambda: run(Peer.accept(ends[1], timeout=TIMEOUT, private_data=b"pong", cut=cut), 1)
    ):
        initiator = Peer.connect(
            ends[0],
            markers=markers,
            timeout=TIMEOUT,
            private_data=b"ping",
            enhanced=enhanced,
            cut=cut,
        )
        assert initiator.reply.private_data == b"pong"
        assert initiator.reply.enhanced == EnhancedData(
            ird=5, ord=4, peer_to_peer=True, rtr_write=True
        )
        run(initiator, 0)


def test_rejecting_reply_is_raised_with_its_private_data(ends):

    def reject() -> None:
        with pytest.raises(Rejected):
            Peer.accept(ends[1], reject=True, private_data=b"no", timeout=TIMEOUT)

    with other_thread(reject), pytest.raises(Rejected) as caught:
        Peer.connect(ends[0], timeout=TIMEOUT)
    assert caught.value.reply.private_data == b"no"


def test_garbage_instead_of_a_request(ends):
    ends[0].sendall(b"GET / HTTP/1.1\r\n\r\n")
    with pytest.raises(MpaError, match="neither that of a Request"):
        Peer.accept(ends[1], timeout=TIMEOUT)


def test_request_as_answer_to_a_request(ends):
    ends[1].sendall(StartupFrame(reply=False).encode())
    with pytest.raises(MpaError, match="Request Frame came"):
        Peer.connect(ends[0], timeout=TIMEOUT)


def test_silent_peer_times_out(ends):
    with pytest.raises(TimeoutError):
        Peer.connect(ends[0], timeout=0.05)


def test_peer_that_closes_early(ends):
    ends[1].close()
    with pytest.raises(ConnectionError):
        Peer.connect(ends[0], timeout=TIMEOUT)


def test_connection_lost_half_way_flushes(ends):
    ends[0].sendall(StartupFrame(reply=False).encode() + frame_fpdu(bytes(50))[:20])
    peer = Peer.accept(ends[1], timeout=TIMEOUT)
    peer.endpoint.post_receive(8, "receive")
    ends[0].close()
    with pytest.raises(ConnectionError):
        peer.run_until(lambda: False, TIMEOUT)
    assert peer.endpoint.error == errors.MPA_TCP_LOST
    assert [c.work_id for c in peer.endpoint.poll()] == ["receive"]
