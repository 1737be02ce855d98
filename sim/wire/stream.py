"""Frames over a Unix stream socket, as in QEMU's `-netdev stream`: a length of 4 bytes, big
endian, then the frame.
"""

import contextlib
import os
import socket
import stat
from collections.abc import Callable

from stagecoach.sim.wire.errors import (
    FramingError,
    NoSuchWire,
    PeerGone,
    WireError,
    WireInUse,
    WireNotPermitted,
    WrongWire,
)

LONGEST_OCTETS = (64 << 10) + 4096
"""Of a frame of QEMU (NET_BUFSIZE). Who announces a longer one does not speak this framing."""

_LENGTH_OCTETS = 4
_CHUNK = 1 << 16


class StreamEnd:
    """One end of a wire over a stream. Nothing here waits.

    It begins with a socket that is connected, or with one that listens: for one peer at a time.
    Frames that are sent while no peer is there are lost, as with a cable that is not plugged in.

    Parameters
    ----------
    name: for errors. connected, listener: one of both, not blocking. accepts: whether a peer that
    connected is welcome; all are, without it. again: makes a listener for the next peer when one
    has gone; without it that is the end. closed: called at the end.
    """

    def __init__(
        self,
        name: str,
        *,
        connected: socket.socket | None = None,
        listener: socket.socket | None = None,
        accepts: Callable[[socket.socket], bool] = lambda peer: True,
        again: Callable[[], socket.socket] | None = None,
        closed: Callable[[], None] = lambda: None,
    ) -> None:
        self._name = name
        self._peer = connected
        self._listener = listener
        self._accepts = accepts
        self._again = again
        self._closed = closed
        self._received = bytearray()
        self._unsent = b""

    def fileno(self) -> int:
        """What is readable when `receive` has something to do. It changes when the peer comes."""
        waiting = self._peer or self._listener
        return -1 if waiting is None else waiting.fileno()

    @property
    def connected(self) -> bool:
        """Whether a peer is there."""
        self._accept()
        return self._peer is not None

    def send(self, frame: bytes) -> bool:
        """Sends a frame; `False` if the peer has no room for it yet. It is lost if the peer has
        gone; `receive` notices that.
        """
        if not self.connected:
            return True
        if not self._flush():
            return False
        octets = len(frame).to_bytes(_LENGTH_OCTETS, "big") + frame
        sent = self._write(octets)
        # The rest of a frame that has begun is kept; nothing of another may come before it.
        self._unsent = octets[sent:] if sent else b""
        return sent > 0

    def receive(self) -> bytes | None:
        """The next frame, or `None`.

        After the last one of a peer that has gone the next peer is waited for, or it raises
        `PeerGone`. Raises `FramingError` for a length above `LONGEST_OCTETS`: that peer is
        disconnected, and the next one may come if that is so when a peer has gone.
        """
        if not self.connected:
            return None
        assert self._peer is not None
        self._flush()
        while (frame := self._take()) is None:
            try:
                octets = self._peer.recv(_CHUNK)
            except BlockingIOError:
                return None
            except OSError as error:
                self._lose_peer(str(error.strerror))
                return None
            if not octets:
                where = " inside a frame" if self._received else ""
                self._lose_peer(f"the peer closed the stream{where}")
                return None
            self._received += octets
        return frame

    def close(self) -> None:
        """Closes it; twice is allowed."""
        for opened in (self._peer, self._listener):
            if opened is not None:
                opened.close()
        self._peer = self._listener = None
        self._closed()
        self._closed = lambda: None

    def _accept(self) -> None:
        """Takes the peer if it has come; a second one is refused from then on."""
        while self._peer is None and self._listener is not None:
            try:
                peer, _ = self._listener.accept()
            except BlockingIOError:
                return
            if not self._accepts(peer):
                peer.close()
                continue
            peer.setblocking(False)
            self._peer = peer
            # Its name stays taken until it is closed.
            self._listener.shutdown(socket.SHUT_RDWR)

    def _lose_peer(self, why: str) -> None:
        """It has gone. Raises `PeerGone` unless another one may come."""
        if self._again is None:
            raise PeerGone(f"{self._name}: {why}")
        self._wait_for_next()

    def _wait_for_next(self) -> None:
        """Disconnects the peer; the next one may come, or this is the end."""
        if self._again is None:
            self.close()
            return
        for opened in (self._peer, self._listener):
            if opened is not None:
                opened.close()
        self._peer = self._listener = None
        self._received.clear()
        self._unsent = b""
        self._listener = self._again()

    def _take(self) -> bytes | None:
        """The next whole frame of what was received."""
        if len(self._received) < _LENGTH_OCTETS:
            return None
        length = int.from_bytes(self._received[:_LENGTH_OCTETS], "big")
        if length > LONGEST_OCTETS:
            self._wait_for_next()
            raise FramingError(
                f"{self._name}: the peer announced a frame of {length} bytes, and was "
                f"disconnected; allowed: up to {LONGEST_OCTETS}"
            )
        end = _LENGTH_OCTETS + length
        if len(self._received) < end:
            return None
        frame = bytes(self._received[_LENGTH_OCTETS:end])
        del self._received[:end]
        return frame

    def _flush(self) -> bool:
        """Whether nothing is left of a frame that has begun."""
        if self._unsent:
            self._unsent = self._unsent[self._write(self._unsent) :]
        return not self._unsent

    def _write(self, octets: bytes) -> int:
        """How many bytes the peer took, or lost."""
        assert self._peer is not None
        try:
            return self._peer.send(octets)
        except BlockingIOError:
            return 0
        except OSError:
            return len(octets)


def connect_stream(path: str) -> StreamEnd:
    """Connects to a program that listens at a path."""
    name = f"unix:{path}"
    connected = new_socket()
    try:
        connected.connect(path)
    except OSError as error:
        connected.close()
        raise _connect_error(name, path, error) from None
    return StreamEnd(name, connected=connected)


def listen_stream(path: str) -> StreamEnd:
    """Listens at a path, which must not be there yet, for one program after the other."""
    name = f"unix-listen:{path}"

    def listen_there() -> tuple[socket.socket, os.stat_result]:
        listener = new_socket()
        try:
            listener.bind(path)
            listener.listen(0)
            return listener, os.lstat(path)
        except OSError as error:
            listener.close()
            raise _listen_error(name, path, error) from None

    listener, made = listen_there()

    def remove() -> None:
        with contextlib.suppress(OSError):
            if os.path.samestat(os.lstat(path), made):
                os.unlink(path)

    def again() -> socket.socket:
        # Nobody can connect to the old socket any more.
        nonlocal made
        remove()
        listener, made = listen_there()
        return listener

    return StreamEnd(name, listener=listener, again=again, closed=remove)


def new_socket() -> socket.socket:
    """A Unix stream socket that does not block."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.setblocking(False)
    return made


def _connect_error(name: str, path: str, error: OSError) -> WireError:
    match error:
        case FileNotFoundError() | NotADirectoryError():
            return NoSuchWire(f"{name}: no such path; allowed: that of a socket that listens")
        case PermissionError():
            return WireNotPermitted(f"{name}: {error.strerror}")
        case ConnectionRefusedError() if not _is_socket(path):
            return WrongWire(f"{name}: not a socket; allowed: that of a socket that listens")
        case ConnectionRefusedError():
            return NoSuchWire(f"{name}: no process listens there, or another peer is connected")
        case BlockingIOError():
            return WireInUse(f"{name}: another program waits there to be accepted")
    return WrongWire(f"{name}: {error.strerror}")


def _listen_error(name: str, path: str, error: OSError) -> WireError:
    match error:
        case FileNotFoundError() | NotADirectoryError():
            return NoSuchWire(f"{name}: no such folder")
        case PermissionError():
            return WireNotPermitted(f"{name}: {error.strerror}")
    # bind() has no exception of its own for EADDRINUSE.
    if os.path.lexists(path):
        if _is_socket(path):
            return WireInUse(f"{name}: a socket exists there; remove it if no program listens")
        return WrongWire(f"{name}: a file that is not a socket exists there; allowed: a new path")
    return WireError(f"{name}: {error.strerror}")


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False
