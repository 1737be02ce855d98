"""A NIC with the TCP engine in gateware in simulated time, and the packets that it sent.

What the sockets of `sockets` ask of the reference TCP, the driver of the NIC does here. Time is
that of the NIC; a call, or a packet, takes `SETTLE_US` of it, as drivers and engines take time.
"""

import contextlib
import itertools
import os
import threading
from collections import deque
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path

from stagecoach.gateware.config import RnicConfig
from stagecoach.host_driver import network_registers as registers
from stagecoach.host_driver.network.errors import (
    ConnectionRefused,
    ConnectionReset,
    ConnectionTimedOut,
)
from stagecoach.host_driver.network.stream import NetworkListener, NetworkStream
from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.transport.base import StreamClosed, TransportError, TransportTimeout
from stagecoach.sim.build import build_nic
from stagecoach.sim.model.tcp.malformed import MalformedError
from stagecoach.sim.model.tcp.segment import Flags, decode_packet, encode_packet
from stagecoach.sim.model.tcp.state import Cause, Settings, State
from stagecoach.sim.network.nic import SimulatedNic
from stagecoach.sim.network.timeline import CycleTime
from stagecoach.sim.wire.clock import CYCLE_PS
from stagecoach.sim.wire.pair import open_pair
from tools.packetdrill.trace import Recorder
from tools.packetdrill.world import LOCAL, REMOTE, SETTINGS, START_US

CONFIG = RnicConfig(qps=8)
SETTLE_US = 1000
"""Longer than a driver takes to open a connection, much shorter than what a script tolerates."""

STEP_US = 100
LONG_STEP_US = 2000
"""Of a packet that comes in such a step, the card has noted the time."""

_PATIENCE_SECONDS = 30.0
_OPEN_SECONDS = 100.0
_RING = "8MiB"
"""Its window scale is that of `SETTINGS`."""

_MAC = b"\2\0\0\0\0\2"
_PEER_MAC = b"\2\0\0\0\0\1"
_ARP, _IPV4 = b"\x08\x06", b"\x08\x00"
_PER_US = 1_000_000 / CYCLE_PS
_CAUSES = {
    StreamEnd.RESET: Cause.RESET,
    StreamEnd.TIMED_OUT: Cause.TIMED_OUT,
    StreamEnd.ABORTED: Cause.ABORTED,
}
_numbers = itertools.count()


class EngineConnection:
    """A stream with the calls of the reference's connection. Nothing of it waits."""

    def __init__(self, world: "EngineWorld", stream: NetworkStream | None = None) -> None:
        self._world = world
        self._stream = stream
        self._octets = bytearray()
        self._shut = self.finished = False
        self._opening: Cause | None = None
        self._failed = False

    def open(self, remote: tuple[IPv4Address, int]) -> None:
        """Active OPEN, in a thread, as the driver's call waits."""

        def run() -> None:
            try:
                self._stream = self._world.nic.connect(str(remote[0]), remote[1], _OPEN_SECONDS)
            except TransportError as error:
                refused = isinstance(error, ConnectionRefused)
                self._opening = Cause.REFUSED if refused else Cause.TIMED_OUT
                self._failed = True

        threading.Thread(target=run, daemon=True).start()

    @property
    def remote(self) -> tuple[IPv4Address, int]:
        """The peer."""
        assert self._stream is not None
        host, port = self._stream.peer_address
        return IPv4Address(host), port

    @property
    def state(self) -> State:
        """As far as a socket sees it."""
        if self._failed:
            return State.CLOSED
        if self._stream is None:
            return State.SYN_SENT
        self._look()
        if self._stream.has_ended:
            return State.CLOSED
        if self._shut:
            return State.FIN_WAIT_1
        return State.CLOSE_WAIT if self.finished else State.ESTABLISHED

    @property
    def cause(self) -> Cause | None:
        """Why it has ended."""
        if self._opening is not None or self._stream is None or self._stream._end is None:
            return self._opening
        return _CAUSES.get(self._stream._end)

    def _look(self) -> None:
        """Take what came."""
        stream = self._stream
        if stream is None or not stream.open or self.finished:
            return
        try:
            with suppress(TransportTimeout):
                stream.receive_exactly(1 << 24, 0)
        except StreamClosed as error:
            lost = isinstance(error, ConnectionReset | ConnectionTimedOut)
            self.finished = not lost and stream._end in (None, StreamEnd.CLOSED)
        self._octets += stream._received
        stream._received.clear()

    @property
    def unread(self) -> int:
        """Bytes that came."""
        self._look()
        return len(self._octets)

    def receive(self, now: int, count: int) -> bytes:
        """Take bytes."""
        taken = bytes(self._octets[:count])
        del self._octets[:count]
        return taken

    def send(self, now: int, octets: bytes) -> None:
        """Send bytes."""
        assert self._stream is not None
        self._stream.sendall(octets, 1)

    def close(self, now: int, *, discard: bool = False) -> None:
        """FIN after what was sent; the driver discards what still comes."""
        self._shut = True
        if self._stream is not None:
            self._look()
            self._stream._received += self._octets
            self._stream.close()

    def abort(self, now: int) -> None:
        """RST."""
        self.close(now)


class EngineListener:
    """A listener with the calls of the reference's."""

    def __init__(self, world: "EngineWorld", port: int, listener: NetworkListener) -> None:
        self.port = port
        self.pending: list[EngineConnection] = []
        self._world, self._listener = world, listener

    def accept(self) -> EngineConnection | None:
        """The next connection that is established."""
        with suppress(TransportTimeout):
            return EngineConnection(self._world, self._listener.accept(0))
        return None


class EngineHost:
    """The NIC with the calls of the reference's host."""

    def __init__(self, world: "EngineWorld") -> None:
        self.interface: IPv4Interface = LOCAL
        self.settings = SETTINGS
        self._world = world

    def listen(self, port: int, settings: Settings, backlog: int) -> EngineListener:
        """Passive OPEN."""
        listener = self._world.nic.stack.listen("", port, backlog)
        return EngineListener(self._world, port, listener)

    def connect(
        self, now: int, remote: tuple[IPv4Address, int], port: int | None, *, settings: Settings
    ) -> EngineConnection:
        """Active OPEN."""
        connection = EngineConnection(self._world)
        connection.open(remote)
        return connection


class EngineWorld:
    """As `World`; it has to be closed. ``library`` is the NIC of `CONFIG`."""

    def __init__(self, recorder: Recorder, library: Path) -> None:
        self.recorder = recorder
        self.sent: deque[tuple[int, bytes]] = deque()
        name = f"packetdrill-{os.getpid()}-{next(_numbers)}"
        self._end = open_pair(name)
        address = f"sim://?wire=pair:{name}&ip={LOCAL}&mac={_MAC.hex(':')}&tcp=engine"
        self.nic = SimulatedNic(
            f"{address}&rx_ring={_RING}&tx_ring={_RING}",
            CONFIG,
            time=CycleTime(_PATIENCE_SECONDS),
            library=library,
        )
        # As `SETTINGS` has it: an ACK for each segment.
        self.nic.write_register(registers.NETWORK_DELAYED_ACK.address, 0)
        self._begun = self.nic.network.now_us()
        self.host = EngineHost(self)

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(TransportError):
            self.nic.close()
        self._end.close()

    @property
    def now(self) -> int:
        """The time in microseconds."""
        return START_US + self.nic.network.now_us() - self._begun

    def packet_arrives(self, octets: bytes) -> None:
        """The peer's packet arrives now."""
        with suppress(MalformedError):
            self.recorder.arrives(self.now, decode_packet(octets)[1])
        self._end.send(_MAC + _PEER_MAC + _IPV4 + octets)

    def settle(self) -> None:
        """Let driver and engine do what follows."""
        self._run(SETTLE_US)

    def step(self, until: int) -> None:
        """Go on, at most to ``until``, until something was sent."""
        waited = 0
        while (left := until - self.now) > 0 and not self.sent:
            step = STEP_US if waited < 10 * LONG_STEP_US else LONG_STEP_US
            waited += step
            self._run(min(step, left))
            if waited > 100 * LONG_STEP_US:
                return

    def _run(self, microseconds: int) -> None:
        self.nic.run_cycles(int(microseconds * _PER_US) + 1)
        while (frame := self._end.receive()) is not None:
            if frame[12:14] == _ARP:
                self._answer_arp(frame)
            elif frame[12:14] == _IPV4:
                self._leaves(frame)

    def _answer_arp(self, frame: bytes) -> None:
        # Not a probe for the own address, nor an announcement of it.
        if frame[20:22] == b"\0\1" and frame[38:42] == REMOTE.packed:
            reply = b"\0\1\x08\0\6\4\0\2" + _PEER_MAC + frame[38:42] + frame[22:32]
            self._end.send((_MAC + _PEER_MAC + _ARP + reply).ljust(60, b"\0"))

    def _leaves(self, frame: bytes) -> None:
        total = int.from_bytes(frame[16:18])
        octets = frame[14 : 14 + total]
        _, segment = decode_packet(octets)
        if Flags.SYN in segment.flags:
            # The driver has options in an order of its own, which RFC 9293, 3.1 leaves free.
            octets = encode_packet(segment, LOCAL.ip, REMOTE)
        heads = self.nic.network.frame_heads()
        times = [
            each.time_us for each in heads if each.sent and each.head == frame[: len(each.head)]
        ]
        at = START_US + times[-1] - self._begun if times else self.now
        self.sent.append((at, octets))
        self.recorder.leaves(at, segment)


def library() -> Path:
    """The compiled NIC."""
    return build_nic(CONFIG, level="-O1")
