"""Calls of sockets, made of the calls of the reference TCP."""

import errno
import fcntl
import os
import select
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from ipaddress import IPv4Address

from stagecoach.sim.model.tcp.connection import Connection
from stagecoach.sim.model.tcp.host import Listener
from stagecoach.sim.model.tcp.state import Cause, State
from tools.packetdrill.world import AnyWorld

_POLLFD = struct.Struct("=ihh")
_OPENING = (State.SYN_SENT, State.SYN_RECEIVED)
_WRITABLE = (State.ESTABLISHED, State.CLOSE_WAIT)
_FAILURES = {
    Cause.REFUSED: errno.ECONNREFUSED,
    Cause.RESET: errno.ECONNRESET,
    Cause.TIMED_OUT: errno.ETIMEDOUT,
    Cause.KEEP_ALIVE: errno.ETIMEDOUT,
    Cause.UNREACHABLE: errno.EHOSTUNREACH,
}


class WouldBlock(Exception):
    """The call waits for something; ``until`` is the time at which it waits no longer."""

    def __init__(self, until: int | None = None) -> None:
        super().__init__(until)
        self.until = until


@dataclass
class Reply:
    """What a call returns, a second number, and bytes."""

    result: int = 0
    extra: int = 0
    octets: bytes = b""


@dataclass
class Socket:
    """What one descriptor stands for."""

    blocking: bool = True
    no_delay: bool = False
    port: int | None = None
    listener: Listener | None = None
    connection: Connection | None = None
    # Of shutdown().
    read_shut: bool = False
    write_shut: bool = False


class Sockets:
    """The descriptors of one process. A call raises ``OSError``, or ``WouldBlock`` if it has to
    be made again later, whatever the descriptor's mode is.
    """

    def __init__(self, world: AnyWorld) -> None:
        self._world = world
        self._table: dict[int, Socket] = {}
        self.calls: dict[str, Callable[..., Reply]] = {
            "socket": self._socket,
            "bind": self._bind,
            "listen": self._listen,
            "accept": self._accept,
            "connect": self._connect,
            "read": self._read,
            "write": self._write,
            "fcntl": self._fcntl,
            "close": self._close,
            "shutdown": self._shutdown,
            "getsockopt": self._getsockopt,
            "setsockopt": self._setsockopt,
            "poll": self._poll,
        }

    def blocks(self, name: str, fd: int) -> bool:
        """Whether the call waits for its event."""
        return name == "poll" or (fd in self._table and self._table[fd].blocking)

    def _of(self, fd: int) -> Socket:
        if fd not in self._table:
            raise _error(errno.EBADF)
        return self._table[fd]

    def _connected(self, fd: int) -> Connection:
        found = self._of(fd).connection
        if not found:
            raise _error(errno.ENOTCONN)
        return found

    # Opening.

    def _socket(self, fd: int, domain: int, kind: int, protocol: int, _: bytes) -> Reply:
        if domain != socket.AF_INET:
            raise _error(errno.EAFNOSUPPORT)
        if kind & 0xF != socket.SOCK_STREAM or protocol not in (0, socket.IPPROTO_TCP):
            raise _error(errno.EPROTONOSUPPORT)
        self._table[fd] = Socket(blocking=not kind & socket.SOCK_NONBLOCK)
        return Reply(fd)

    def _bind(self, fd: int, address: int, port: int, *_: object) -> Reply:
        if address and IPv4Address(address) != self._world.host.interface.ip:
            raise _error(errno.EADDRNOTAVAIL)
        self._of(fd).port = port
        return Reply()

    def _listen(self, fd: int, backlog: int, *_: object) -> Reply:
        found = self._of(fd)
        if found.port is None:
            raise _error(errno.EINVAL)
        # Linux takes one more than it is told.
        settings = replace(self._world.host.settings, nagle=not found.no_delay)
        found.listener = self._world.host.listen(found.port, settings, backlog + 1)
        self._record("listen nodelay" if found.no_delay else "listen")
        return Reply()

    def _accept(self, fd: int, new_fd: int, *_: object) -> Reply:
        listener = self._of(fd).listener
        if not listener:
            raise _error(errno.EINVAL)
        connection = listener.accept()
        if not connection:
            raise WouldBlock
        assert connection.remote
        self._table[new_fd] = Socket(port=listener.port, connection=connection)
        address, port = connection.remote
        return Reply(new_fd, int(address) << 16 | port)

    def _connect(self, fd: int, address: int, port: int, *_: object) -> Reply:
        found = self._of(fd)
        if not found.connection:
            host = self._world.host
            settings = replace(host.settings, nagle=not found.no_delay)
            found.connection = host.connect(
                self._world.now, (IPv4Address(address), port), found.port, settings=settings
            )
            self._record("open nodelay" if found.no_delay else "open")
            if not found.blocking:
                raise _error(errno.EINPROGRESS)
        if found.connection.state in _OPENING:
            raise WouldBlock
        if found.connection.state is State.CLOSED:
            raise _failure(found.connection, errno.ECONNABORTED)
        return Reply()

    # The streams.

    def _read(self, fd: int, count: int, flags: int, *_: object) -> Reply:
        if flags:
            raise _error(errno.EOPNOTSUPP)
        connection = self._connected(fd)
        if connection.state in _OPENING:
            raise WouldBlock
        if connection.unread and count:
            octets = connection.receive(self._world.now, count)
            self._record(f"read {len(octets)}")
            return Reply(len(octets), octets=octets)
        if connection.finished or self._of(fd).read_shut:
            return Reply()
        if connection.state is State.CLOSED:
            raise _failure(connection, errno.ENOTCONN)
        raise WouldBlock

    def _write(self, fd: int, count: int, flags: int, _: int, octets: bytes) -> Reply:
        if flags & ~socket.MSG_NOSIGNAL:
            raise _error(errno.EOPNOTSUPP)
        connection = self._connected(fd)
        if connection.state in _OPENING:
            raise WouldBlock
        if self._of(fd).write_shut or connection.state not in _WRITABLE:
            raise _failure(connection, errno.EPIPE)
        self._record(f"send {count}")
        connection.send(self._world.now, octets)
        return Reply(count)

    # The end.

    def _shutdown(self, fd: int, how: int, *_: object) -> Reply:
        found, connection = self._of(fd), self._connected(fd)
        if how in (socket.SHUT_RD, socket.SHUT_RDWR):
            found.read_shut = True
        if how in (socket.SHUT_WR, socket.SHUT_RDWR) and not found.write_shut:
            found.write_shut = True
            if connection.state in (*_OPENING, *_WRITABLE):
                self._record("shut")
                connection.close(self._world.now)
        return Reply()

    def _close(self, fd: int, *_: object) -> Reply:
        found = self._of(fd)
        del self._table[fd]
        connection = found.connection
        if not connection or connection.state is State.CLOSED:
            return Reply()
        if connection.state in (*_OPENING, *_WRITABLE) and not found.write_shut:
            self._record("close")
            connection.close(self._world.now, discard=True)
        elif connection.unread:
            self._record("abort")
            connection.abort(self._world.now)
        return Reply()

    # Options.

    def _fcntl(self, fd: int, command: int, argument: int, *_: object) -> Reply:
        found = self._of(fd)
        if command == fcntl.F_GETFL:
            return Reply(os.O_RDWR | (0 if found.blocking else os.O_NONBLOCK))
        if command != fcntl.F_SETFL:
            raise _error(errno.EINVAL)
        found.blocking = not argument & os.O_NONBLOCK
        return Reply()

    def _getsockopt(self, fd: int, level: int, option: int, *_: object) -> Reply:
        found = self._of(fd)
        if (level, option) == (socket.IPPROTO_TCP, socket.TCP_NODELAY):
            return Reply(extra=int(found.no_delay))
        if (level, option) != (socket.SOL_SOCKET, socket.SO_ERROR):
            raise _error(errno.ENOPROTOOPT)
        cause = found.connection.cause if found.connection else None
        return Reply(extra=_FAILURES.get(cause, 0) if cause else 0)

    def _setsockopt(self, fd: int, level: int, option: int, value: int, _: bytes) -> Reply:
        found = self._of(fd)
        if (level, option) == (socket.SOL_SOCKET, socket.SO_REUSEADDR):
            return Reply()
        # The settings of the reference TCP are those of a connection that is to be opened.
        if (level, option) != (socket.IPPROTO_TCP, socket.TCP_NODELAY) or found.connection:
            raise _error(errno.ENOPROTOOPT)
        found.no_delay = bool(value)
        return Reply()

    # Waiting.

    def _poll(self, count: int, timeout: int, since: int, _: int, octets: bytes) -> Reply:
        """``since`` is when the call was made."""
        answers = []
        for fd, events, _before in _POLLFD.iter_unpack(octets):
            happened = self._events(self._table[fd]) if fd in self._table else select.POLLNVAL
            always = select.POLLERR | select.POLLHUP | select.POLLNVAL
            answers.append((fd, events, happened & (events | always)))
        ready = sum(bool(answer[2]) for answer in answers)
        until = None if timeout < 0 else since + 1000 * timeout
        if not ready and (until is None or self._world.now < until):
            raise WouldBlock(until)
        return Reply(ready, octets=b"".join(_POLLFD.pack(*answer) for answer in answers))

    def _events(self, found: Socket) -> int:
        if found.listener:
            waiting = [x for x in found.listener.pending if x.state is not State.SYN_RECEIVED]
            return select.POLLIN if waiting else 0
        connection = found.connection
        if not connection or connection.state is State.CLOSED:
            return select.POLLHUP | (select.POLLERR if connection and connection.cause else 0)
        if connection.state in _OPENING:
            return 0
        readable = connection.unread or connection.finished or found.read_shut
        writable = connection.state in _WRITABLE and not found.write_shut
        return (select.POLLIN if readable else 0) | (select.POLLOUT if writable else 0)

    def _record(self, words: str) -> None:
        self._world.recorder.call(self._world.now, words)


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _failure(connection: Connection, otherwise: int) -> OSError:
    """Why a connection is unusable."""
    return _error(_FAILURES.get(connection.cause, otherwise) if connection.cause else otherwise)
