"""Streams and listeners over TCP: octets that are kept, timers, addresses, and closing."""

import os
import socket
import time
from collections.abc import Iterator

import pytest

from stagecoach.host_driver.transport import sockets
from stagecoach.host_driver.transport.base import (
    ByteStream,
    Listener,
    StreamClosed,
    TransportError,
    TransportTimeout,
)
from stagecoach.host_driver.transport.sockets import SocketListener, SocketStream
from tests.host_driver.startup_rig import PATIENCE, SHORT, Background


@pytest.fixture
def pair() -> Iterator[tuple[SocketStream, socket.socket]]:
    ours, theirs = socket.socketpair()
    with SocketStream(ours, record=True) as stream, theirs:
        yield stream, theirs


def test_they_are_what_the_driver_needs(pair):
    assert isinstance(pair[0], ByteStream)
    with SocketListener("127.0.0.1", 0) as listener:
        assert isinstance(listener, Listener)


def test_a_host_that_is_gone_is_noticed_by_both_ends_within_two_minutes():
    with SocketListener("127.0.0.1", 0) as listener:
        with sockets.connect(*listener.address) as active, listener.accept(PATIENCE) as passive:
            for stream in (active, passive):
                option = socket.socket(fileno=os.dup(stream.fileno()))
                with option:
                    assert option.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                    idle, every, count = (
                        option.getsockopt(socket.IPPROTO_TCP, name)
                        for name in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
                    )
                assert idle + every * count <= 120


@pytest.mark.parametrize("timeout", [0, SHORT])
def test_octets_that_came_too_late_are_there_for_the_next_call(pair, timeout):
    stream, peer = pair
    peer.sendall(b"abc")
    with pytest.raises(TransportTimeout, match="3 of 5 bytes came in"):
        stream.receive_exactly(5, timeout)
    assert stream.receive_exactly(2, timeout) == b"ab"
    peer.sendall(b"def")
    assert stream.receive_exactly(4, PATIENCE) == b"cdef"
    with pytest.raises(TransportTimeout, match="0 of 1 bytes"):
        stream.receive_exactly(1, timeout)


def test_octets_before_the_end_of_the_stream_are_not_lost(pair):
    stream, peer = pair
    peer.sendall(b"abc")
    peer.close()
    for count in (4, 5):
        with pytest.raises(StreamClosed, match=f"after 3 of {count} bytes"):
            stream.receive_exactly(count, PATIENCE)
    assert stream.receive_exactly(3) == b"abc"


def test_waiting_for_an_octet_leaves_it_there(pair):
    stream, peer = pair
    for timeout in (0, SHORT):
        with pytest.raises(TransportTimeout, match="nothing came in"):
            stream.wait_readable(timeout)
    peer.sendall(b"x")
    for _ in range(2):
        stream.wait_readable(PATIENCE)
    assert stream.receive_exactly(1) == b"x"
    peer.close()
    with pytest.raises(StreamClosed, match="the peer closed the stream"):
        stream.wait_readable()


def test_waiting_also_sees_octets_that_an_earlier_call_kept(pair):
    stream, peer = pair
    peer.sendall(b"x")
    with pytest.raises(TransportTimeout):
        stream.receive_exactly(2, 0)
    stream.wait_readable(0)


@pytest.mark.requirement("MPA-7.1-01")
def test_a_stream_is_not_given_away_with_octets_that_nobody_took(pair):
    stream, peer = pair
    peer.sendall(b"x")
    with pytest.raises(TransportTimeout):
        stream.receive_exactly(2, 0)
    with pytest.raises(TransportError, match="1 bytes of the stream are not taken; allowed: none"):
        stream.give_away(lambda descriptor: None)
    assert stream.receive_exactly(1) == b"x"
    taken = []
    stream.give_away(taken.append)
    with pytest.raises(StreamClosed, match="closed or given to a device"):
        stream.receive_exactly(1)
    socket.socket(fileno=taken[0]).close()


def test_a_peer_that_does_not_read_is_an_error_in_time(pair):
    stream, _ = pair
    for timeout in (0, SHORT):
        with pytest.raises(TransportTimeout, match="16777216 bytes not sent in"):
            stream.sendall(bytes(1 << 24), timeout)


def test_octets_of_one_direction_are_recorded_together(pair):
    stream, peer = pair
    stream.sendall(b"question")
    peer.sendall(b"answer")
    for octet in b"answer":
        assert stream.receive_exactly(1) == bytes([octet])
    stream.sendall(b"thanks")
    assert [(octets.sent, octets.data) for octets in stream.startup] == [
        (True, b"question"),
        (False, b"answer"),
        (True, b"thanks"),
    ]


# Connecting


def addresses(*hosts: str):
    """Stands for `getaddrinfo` of a name with several addresses."""
    return lambda host, port, **_: [
        (socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, port)) for address in hosts
    ]


def test_the_next_address_of_a_host_is_tried(monkeypatch):
    with SocketListener("127.0.0.1", 0) as listener:
        monkeypatch.setattr(socket, "getaddrinfo", addresses("127.0.0.2", "127.0.0.1"))
        with sockets.connect("two", listener.address[1], PATIENCE) as stream:
            assert stream.peer_address == listener.address


def test_all_addresses_of_a_host_have_one_timer(monkeypatch):
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = []
        for _ in range(4):
            peer = socket.socket()
            peer.setblocking(False)
            peer.connect_ex(("127.0.0.1", port))
            waiting.append(peer)
        time.sleep(SHORT)
        monkeypatch.setattr(socket, "getaddrinfo", addresses(*["127.0.0.1"] * 20))
        begun = time.monotonic()
        with pytest.raises(TransportTimeout, match=f"many:{port} does not answer in"):
            sockets.connect("many", port, 0.3)
        assert time.monotonic() - begun < 1
        for peer in waiting:
            peer.close()


# Listening


def test_a_listener_for_all_addresses_has_both_families():
    with SocketListener("", 0) as listener:
        port = listener.address[1]
        for host in ("127.0.0.1", "::1"):
            with sockets.connect(host, port, PATIENCE), listener.accept(PATIENCE) as accepted:
                assert accepted.peer_address[1] != port


def test_without_ipv6_a_listener_for_all_addresses_has_the_other(monkeypatch):
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with SocketListener("", 0) as listener:
        assert listener.address[0] in ("0.0.0.0", "::")


def test_accepting_ends_at_once_when_the_listener_is_closed(monkeypatch):
    monkeypatch.setattr(sockets, "_ACCEPT_SLICE", 10 * PATIENCE)
    listener = SocketListener("127.0.0.1", 0)
    with pytest.raises(StreamClosed, match="the listener was closed"):
        with Background(listener.accept):
            time.sleep(SHORT)
            begun = time.monotonic()
            listener.close()
    assert time.monotonic() - begun < PATIENCE / 2
    listener.close()


def test_no_peer_in_time():
    with SocketListener("127.0.0.1", 0) as listener:
        for timeout in (0, SHORT):
            with pytest.raises(TransportTimeout, match="no peer connected to"):
                listener.accept(timeout)
