"""Frames over Unix stream sockets, as QEMU sends and takes them."""

import contextlib
import os
import socket
import struct

import pytest

from stagecoach.sim.wire.errors import (
    FramingError,
    NoSuchWire,
    PeerGone,
    WireInUse,
    WrongWire,
)
from stagecoach.sim.wire.stream import LONGEST_OCTETS, connect_stream, listen_stream

MAXIMUM = 1518
FRAME = bytes(range(60))


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # sun_path is short
    return "wire.sock"


@pytest.fixture
def joined(path):
    """An end, and the plain socket of its peer."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        end = connect_stream(path)
        peer, _ = listener.accept()
        peer.settimeout(5)
        yield end, peer
        end.close()
        peer.close()


def framed(*frames: bytes) -> bytes:
    return b"".join(struct.pack(">I", len(frame)) + frame for frame in frames)


def test_a_frame_is_sent_after_its_length(joined):
    end, peer = joined
    assert end.connected
    assert end.send(FRAME)
    assert peer.recv(1000) == framed(FRAME)


def test_frames_are_found_however_the_stream_is_cut(joined):
    end, peer = joined
    frames = [FRAME, bytes(MAXIMUM), bytes(14)]
    found = []
    for octet in framed(*frames):
        peer.send(bytes([octet]))
        while (frame := end.receive()) is not None:
            found.append(frame)
    assert found == frames


def test_many_frames_in_one_piece_come_one_by_one(joined):
    end, peer = joined
    frames = [bytes([number]) * 60 for number in range(100)]
    peer.sendall(framed(*frames))
    assert [end.receive() for _ in range(101)] == [*frames, None]


def test_nothing_waits(joined):
    end, peer = joined
    assert end.receive() is None
    sent = 0
    while end.send(bytes([sent % 251]) * MAXIMUM):
        sent += 1
    assert sent > 10
    expected = framed(*(bytes([number % 251]) * MAXIMUM for number in range(sent)))
    received = b""
    while len(received) < len(expected):
        received += peer.recv(len(expected) - len(received))
    assert received == expected
    assert end.send(FRAME)
    assert peer.recv(1000) == framed(FRAME)


def test_a_frame_that_the_peer_takes_in_parts_is_whole(path):
    first = listen_stream(path)
    second = connect_stream(path)
    assert first.connected
    with socket.socket(fileno=os.dup(first.fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the least that Linux has
    frames = [bytes([number]) * 9018 for number in range(1, 4)]
    found = []
    for frame in frames:
        assert first.send(frame)
        assert not first.send(FRAME)
        while (arrived := second.receive()) is None:
            assert first.receive() is None  # hands over more of it
        found.append(arrived)
    assert found == frames
    first.close()
    second.close()


@pytest.mark.parametrize("length", [0, 1, 13, MAXIMUM + 1, LONGEST_OCTETS])
def test_frames_of_any_length_that_qemu_may_send_keep_the_stream_in_step(joined, length):
    end, peer = joined
    peer.setblocking(False)
    octets = framed(FRAME, bytes(length), FRAME)
    found = []
    while octets or len(found) < 3:
        with contextlib.suppress(BlockingIOError):
            octets = octets[peer.send(octets) :]
        if (frame := end.receive()) is not None:
            found.append(frame)
    assert found == [FRAME, bytes(length), FRAME]


@pytest.mark.parametrize("length", [LONGEST_OCTETS + 1, 0xFFFFFFFF])
def test_a_peer_that_announces_an_absurd_length_is_disconnected(joined, length):
    end, peer = joined
    peer.send(framed(FRAME) + struct.pack(">I", length) + FRAME)
    assert end.receive() == FRAME
    message = f"the peer announced a frame of {length} bytes, and was disconnected; allowed: up to"
    with pytest.raises(FramingError, match=message):
        end.receive()
    assert end.fileno() == -1
    with contextlib.suppress(ConnectionResetError):  # it had sent more than was read
        assert peer.recv(1) == b""


def test_one_that_listens_takes_the_next_peer_after_an_absurd_length(path):
    end = listen_stream(path)
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(path)
        peer.settimeout(5)
        assert end.connected
        peer.send(b"\xff" * 4)
        with pytest.raises(FramingError):
            end.receive()
        assert peer.recv(1) == b""
    assert end.fileno() != -1
    following = connect_stream(path)
    assert following.send(FRAME) and end.receive() == FRAME
    following.close()
    end.close()


def test_a_peer_that_goes_is_told_after_its_last_frame(joined):
    end, peer = joined
    peer.send(framed(FRAME))
    peer.close()
    assert end.send(FRAME)
    assert end.receive() == FRAME
    with pytest.raises(PeerGone, match=r"the peer closed the stream$"):
        end.receive()


def test_a_peer_that_goes_inside_a_frame_is_told(joined):
    end, peer = joined
    peer.send(framed(FRAME)[:-1])
    assert end.receive() is None
    peer.close()
    with pytest.raises(PeerGone, match="the peer closed the stream inside a frame"):
        end.receive()


def test_a_peer_that_goes_without_reading_is_told(joined):
    end, peer = joined
    assert end.send(FRAME)
    peer.close()
    with pytest.raises(PeerGone, match=r"unix:wire\.sock: Connection reset by peer"):
        end.receive()


def test_two_ends_at_one_path(path):
    first = listen_stream(path)
    assert not first.connected
    listening = first.fileno()
    assert first.send(b"lost" * 15)
    second = connect_stream(path)
    assert first.connected
    assert first.fileno() != listening
    assert first.send(FRAME)
    assert second.send(FRAME[::-1])
    assert (first.receive(), second.receive()) == (FRAME[::-1], FRAME)
    with pytest.raises(NoSuchWire, match="no process listens there, or another peer is connected"):
        connect_stream(path)
    second.close()
    first.close()
    first.close()
    assert first.fileno() == -1
    assert not os.path.exists(path)


def test_one_that_listens_takes_the_next_peer_when_one_has_gone(path):
    first = listen_stream(path)
    for turn in range(3):
        peer = connect_stream(path)
        assert first.connected
        assert peer.send(FRAME) and first.receive() == FRAME
        assert first.send(FRAME[::-1]) and peer.receive() == FRAME[::-1]
        if turn == 1:
            assert first.send(FRAME)  # nobody reads it: the end is a reset
        peer.close()
        assert first.receive() is None
        assert not first.connected
        assert first.send(FRAME)  # lost
        assert first.fileno() != -1
    with socket.socket(socket.AF_UNIX) as cut:
        cut.connect(path)
        assert first.connected
        cut.sendall(framed(FRAME)[:-1])
        assert first.receive() is None
    assert first.receive() is None
    peer = connect_stream(path)
    assert peer.send(FRAME) and first.receive() == FRAME  # nothing of the peer before
    peer.close()
    first.close()
    assert not os.path.exists(path)


def test_one_that_listens_cannot_go_on_where_its_path_was_taken(path):
    first = listen_stream(path)
    peer = connect_stream(path)
    assert first.connected
    os.unlink(path)
    other = listen_stream(path)
    peer.close()
    with pytest.raises(WireInUse, match=r"unix-listen:wire\.sock: a socket exists there"):
        first.receive()
    first.close()
    connect_stream(path).close()
    other.close()


def test_the_socket_of_another_is_left(path):
    end = listen_stream(path)
    os.unlink(path)
    other = listen_stream(path)
    end.close()
    assert os.path.exists(path)
    other.close()


def test_a_path_that_is_not_there(path):
    with pytest.raises(NoSuchWire, match=r"unix:wire\.sock: no such path"):
        connect_stream(path)
    with pytest.raises(NoSuchWire, match=r"unix-listen:no/wire\.sock: no such folder"):
        listen_stream("no/wire.sock")


def test_a_path_that_is_no_socket(tmp_path, path):
    (tmp_path / path).write_text("a file")
    with pytest.raises(WrongWire, match=r"unix:wire\.sock: not a socket"):
        connect_stream(path)
    with pytest.raises(WrongWire, match="a file that is not a socket exists there"):
        listen_stream(path)
    assert (tmp_path / path).read_text() == "a file"


def test_a_socket_that_is_there_is_not_taken(path):
    end = listen_stream(path)
    with pytest.raises(WireInUse, match="remove it if no program listens"):
        listen_stream(path)
    end.close()


def test_a_socket_of_another_kind(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(path)
        with pytest.raises(WrongWire, match="Protocol wrong type for socket"):
            connect_stream(path)
