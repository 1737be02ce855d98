"""Answers what packetdrill asks by `shared_object.c`, until it ends."""

import errno
import re
import socket
from dataclasses import dataclass

from stagecoach.sim.model.tcp.state import StateError
from tools.packetdrill.sockets import Reply, Sockets, WouldBlock
from tools.packetdrill.trace import Trace
from tools.packetdrill.world import AnyWorld

_REQUEST_OCTETS = 256 << 10
# packetdrill's main thread, and the one that makes calls that block.
_MAIN = 0
# Asked so often for the time without anything else, it is being waited for.
_ASKED_MAX = 8
# How long a packet is waited for, in simulated time.
_PATIENCE_US = 100_000_000
# Commands of scripts that change nothing here: defaults of Linux, offloads, an option of Linux
# that the reference TCP does not have, and taking changes back.
_COMMANDS = [
    re.compile(pattern)
    for pattern in (
        r"\S*/defaults\.sh",
        r"ethtool -K \S+( (tso|gso|gro) (on|off))+",
        r"\S*/set_sysctls\.py( /proc/sys/net/ipv4/tcp_timestamps=0)+",
        r"/tmp/sysctl_restore_\S+\.sh",
    )
]


@dataclass
class _Call:
    """A call of a socket; ``until`` is when it waits no longer, None if it waits for ever."""

    name: str
    arguments: tuple[int, ...]
    octets: bytes
    until: int | None = None


class Server:
    """One packetdrill: a world, and what waits in it."""

    def __init__(self, world: AnyWorld) -> None:
        self.world = world
        self.sockets = Sockets(world)
        # How many segments packetdrill looked at; how many it had when it last went on to something
        # else, which it does after it has accepted them; commands that are not known here.
        self.looked_at = self.accepted = 0
        self.refused: list[str] = []
        # The reply to a call of the other thread that blocked, once there is one.
        self.late: bytes | None = None
        self._returned_at: int | None = None
        self._blocked: _Call | None = None
        self._asked = 0

    def trace(self, passed: bool) -> Trace:
        """What happened up to the last segment that the script accepted."""
        count = self.looked_at if passed else self.accepted
        return self.world.recorder.trace.up_to(count)

    def answer(
        self, thread: int, name: str, arguments: tuple[int, ...], octets: bytes
    ) -> bytes | None:
        """The reply to a request; None for a call that blocks, whose reply comes in ``late``."""
        self._asked = self._asked + 1 if name == "time" else 0
        if name != "sniff":
            self.accepted = self.looked_at
        if name == "time":
            return _encode(Reply(extra=self._time(thread)))
        if name == "command":
            return _encode(Reply(self._command(octets.decode())))
        if name == "sniff":
            return self._sniff()
        if name == "sleep":
            self._advance(self.world.now + arguments[0])
            return _encode(Reply())
        if name == "packet":
            self.world.packet_arrives(octets)
            self._settle()
            return _encode(Reply())
        if name == "poll":
            arguments = (*arguments[:2], self.world.now, 0)
        reply = self._make(thread, _Call(name, arguments, octets))
        if reply and thread != _MAIN:
            self._returned_at = self.world.now
        self._settle()
        return reply

    # Time.

    def _time(self, thread: int) -> int:
        """After a call of the other thread, when it returned: the main one may have gone on."""
        if thread != _MAIN and self._returned_at is not None:
            at, self._returned_at = self._returned_at, None
            return at
        if self._asked > _ASKED_MAX:
            self._advance(self.world.now + 1)
        return self.world.now

    def _advance(self, until: int) -> None:
        while self.world.now < until:
            self._step(until)

    def _step(self, until: int) -> None:
        """Go to the next timeout, of the host or of the call that blocks, at most to ``until``."""
        if self._blocked and self._blocked.until is not None:
            until = max(self.world.now, min(until, self._blocked.until))
        self.world.step(until)
        self._settle()

    def _settle(self) -> None:
        self.world.settle()
        if self._blocked:
            self.late = self._try(self._blocked)
            if self.late:
                self._blocked, self._returned_at = None, self.world.now
                self.world.settle()

    # What is asked.

    def _sniff(self) -> bytes:
        """The next packet that leaves, as soon as it does."""
        latest = self.world.now + _PATIENCE_US
        while not self.world.sent and self.world.now < latest:
            self._step(latest)
        if not self.world.sent:
            return _encode_error(errno.ETIMEDOUT)
        self.looked_at += 1
        at, octets = self.world.sent.popleft()
        return _encode(Reply(extra=at, octets=octets))

    def _make(self, thread: int, call: _Call) -> bytes | None:
        reply = self._try(call)
        if reply:
            return reply
        if not self.sockets.blocks(call.name, call.arguments[0]):
            return _encode_error(errno.EAGAIN)
        if thread != _MAIN:
            self._blocked = call
            return None
        # Only timeouts can end a call of the main thread.
        latest = self.world.now + _PATIENCE_US if call.until is None else call.until
        while not reply and self.world.now < latest:
            self._step(latest)
            reply = self._try(call)
        return reply or _encode_error(errno.EDEADLK)

    def _try(self, call: _Call) -> bytes | None:
        """The reply to a call, None if it blocks."""
        try:
            return _encode(self.sockets.calls[call.name](*call.arguments, call.octets))
        except WouldBlock as blocked:
            call.until = blocked.until
            return None
        except OSError as error:
            return _encode_error(error.errno or errno.EIO)
        except (StateError, ValueError):
            # The reference TCP refuses the call.
            return _encode_error(errno.EINVAL)

    def _command(self, text: str) -> int:
        """The exit status of a shell command, which is not run."""
        lines = [" ".join(line.split()) for line in text.replace("\\\n", " ").splitlines()]
        refused = [x for x in lines if x and not any(p.fullmatch(x) for p in _COMMANDS)]
        self.refused += refused
        return int(bool(refused))


def serve(server: Server, main: socket.socket, other: socket.socket) -> None:
    """Answer until packetdrill has closed its ends."""
    while request := _request(main):
        header, _, octets = request.partition(b"\n")
        thread, name, *arguments = header.decode().split()
        reply = server.answer(int(thread), name, tuple(map(int, arguments)), octets)
        try:
            # Before the other reply: the main thread may let the process end.
            if server.late:
                other.send(server.late)
                server.late = None
            if reply:
                (main if int(thread) == _MAIN else other).send(reply)
        except (BrokenPipeError, ConnectionResetError):
            return


def _request(main: socket.socket) -> bytes:
    """The next request; nothing if packetdrill has ended, however."""
    try:
        return main.recv(_REQUEST_OCTETS)
    except ConnectionResetError:
        return b""


def _encode(reply: Reply) -> bytes:
    return f"{reply.result} 0 {reply.extra}\n".encode() + reply.octets


def _encode_error(number: int) -> bytes:
    return f"-1 {number} 0\n".encode()
