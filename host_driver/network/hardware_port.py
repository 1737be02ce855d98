"""A TCP engine in gateware as the driver sees it: a `NetworkPort` on registers and rings."""

import contextlib
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from ipaddress import IPv4Address
from typing import Any

from stagecoach.host_driver import network_registers as registers
from stagecoach.host_driver.errors import StagecoachError
from stagecoach.host_driver.network.ethernet import MAC_OCTETS
from stagecoach.host_driver.network.hardware.commands import NetworkCommands
from stagecoach.host_driver.network.hardware.early import segment_of
from stagecoach.host_driver.network.hardware.engine_commands import EngineCommands
from stagecoach.host_driver.network.hardware.flow import Flow
from stagecoach.host_driver.network.hardware.frame_queues import (
    Entry,
    ReceiveQueue,
    SendQueue,
)
from stagecoach.host_driver.network.hardware.numbers import Numbers
from stagecoach.host_driver.network.hardware.start import (
    HardwareSettings,
    answer_requests,
    identify,
    switch_off,
    switch_on,
)
from stagecoach.host_driver.network.hardware.streams import Streams
from stagecoach.host_driver.network.ip_fields import IpFields
from stagecoach.host_driver.network.settings import SECOND_US
from stagecoach.host_driver.network.time_wait import Ends
from stagecoach.host_driver.transport.base import (
    DeviceClosed,
    TransportError,
    TransportTimeout,
)
from stagecoach.host_driver.transport.network import (
    ConnectionInfo,
    Ended,
    Established,
    FrameHead,
    Link,
    NetworkHost,
)
from stagecoach.hw.interface.network_entries import FrameFate, NetworkFlags, NetworkKind

MAXIMUM_FRAMES = 1024
"""Frames that the driver keeps; more are dropped and counted."""

ROOM_US = 1000
"""How often `wait` returns while a `send` found no room: no notice tells that there is some."""

_HEADERS_OCTETS = 40


class HardwarePort:
    """A `NetworkPort`.

    Parameters
    ----------
    host: what the transport of the device offers. settings: of the network.

    The constructor resets nothing: the engine must have no connection. Raises `DeviceError` for a
    device that is none of this network, and `TransportError` if memory cannot be mapped.

    Attributes
    ----------
    mtu: bytes of the longest IP packet of the device. closed: why there is no device any more, or
        `None`. late_notices: that were of no connection any more. lost_segments: that came before
        their connection was established, and whose bytes came too late to be stored.

    A number of the engine is one connection's until it has ended and no LLP connection has its
    stream: so `establish` may find none free while fewer than `maximum_connections` are there.
    """

    def __init__(self, host: NetworkHost, settings: HardwareSettings) -> None:
        self.closed: str | None = None
        self.late_notices = 0
        self.lost_segments = 0
        self._host = host
        self._settings = settings
        self._lock = host.new_lock()
        self._commands = NetworkCommands(host, self._collect)
        self._engine = EngineCommands(self._commands)
        self._connections, self.mtu = identify(self._commands)
        switch_off(self._commands)
        with contextlib.ExitStack() as undo:
            self._queue = ReceiveQueue(host, settings.queues, self.mtu)
            undo.callback(self._queue.close)
            self._sends = SendQueue(host, settings.queues, self.mtu)
            undo.callback(self._sends.close)
            switch_on(self._commands, settings, self._queue, self._sends)
            undo.pop_all()
        self._numbers = Numbers(host, self._connections, settings)
        self._streams = Streams(self._engine, self.mtu - _HEADERS_OCTETS)
        self._handles = 0
        self._flows: dict[int, Flow] = {}  # whose end was not taken
        self._last: Flow | None = None  # whose end was taken last
        self._by_ends: dict[Ends, Flow] = {}  # those that have not ended
        self._by_number: dict[int, Flow] = {}
        self._lanes: dict[int, Flow] = {}
        # The device was told to let go of their streams, and had not done so in time.
        self._leaving: list[Flow] = []
        self._entries: deque[Entry] = deque()  # of the network queue, not looked at yet
        self._frames: deque[bytes] = deque()
        self._dropped = 0
        self._ended: deque[Ended] = deque()
        self._doubtful: deque[int] = deque()
        self._news = self._woken = False
        self._failed = False  # memory has, at some time

    # What is there.

    @property
    def engine(self) -> str:
        """A TCP engine of the device."""
        return "gateware"

    @property
    def maximum_connections(self) -> int:
        """Connections that the engine keeps at once."""
        return self._connections

    def answer(self, address: IPv4Address) -> bool:
        """Have the device answer ARP and echo requests for the address; `False`: it cannot."""
        with self._changing():
            return answer_requests(self._commands, address)

    @property
    def dropped_frames(self) -> int:
        """Frames that were not kept; those of the device are counted mod 2^32."""
        with self._changing():
            return self._dropped + self._commands.read(registers.NETWORK_FRAMES_DROPPED)["value"]

    @property
    def frame_fates(self) -> dict[str, int]:
        """Counts modulo 2^32, by the names of `FrameFate`, of what the device has answered, and of
        segments with an urgent pointer.
        """
        with self._changing():
            counts = {}
            for fate in FrameFate:
                self._commands.write(registers.NETWORK_FRAME_FATE, fate=fate)
                count = self._commands.read(registers.NETWORK_FRAMES_SEEN)["value"]
                counts[fate.name.lower()] = count
            for name, register in (
                ("answered", registers.NETWORK_ANSWERED),
                ("unanswered", registers.NETWORK_UNANSWERED),
                ("urgent", registers.NETWORK_URGENT),
            ):
                counts[name] = self._commands.read(register)["value"]
            return {name: count for name, count in counts.items() if count}

    def now_us(self) -> int:
        """The time."""
        return self._host.now_us()

    def frame_heads(self) -> list[FrameHead]:
        """The headers of the last frames, the oldest first, as the host has them."""
        return self._host.frame_heads()

    def link(self) -> Link:
        """How the wire is, as the host has it."""
        return self._host.link()

    def _require_open(self) -> None:
        if self.closed is not None:
            raise DeviceClosed(self.closed)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Under the lock, after all that is in the network queue."""
        with self._lock:
            self._require_open()
            if self._look():
                # The driver's thread may wait for it.
                self._host.wake_network()
            yield

    # The network queue.

    def _collect(self) -> None:
        """Take all entries out of the network queue.

        Also while a command is under way, however long it takes: frames need the places.
        """
        while self._queue.ready:
            entry = self._queue.take()
            if entry.frame is not None and len(self._entries) >= MAXIMUM_FRAMES:
                self._dropped += 1
            else:
                self._entries.append(entry)
        self._queue.free(self._commands)

    def _look(self) -> bool:
        """See what came; whether there was something for the driver's thread."""
        if self._leaving and self._commands.idle:
            for flow in self._leaving:
                self._leave(flow)
            self._leaving.clear()
        self._collect()
        before = len(self._frames), len(self._ended), len(self._doubtful)
        while self._entries:
            self._take(self._entries.popleft())
        after = len(self._frames), len(self._ended), len(self._doubtful)
        return self._news or before != after

    def _take(self, entry: Entry) -> None:
        """An entry of the network queue."""
        if entry.kind is NetworkKind.FRAME:
            if entry.frame is not None and not self._give(entry.frame):
                if len(self._frames) < MAXIMUM_FRAMES:
                    self._frames.append(entry.frame)
                else:
                    self._dropped += 1
            return
        flow = self._by_number.get(entry.connection)
        fin = bool(entry.flags & NetworkFlags.FIN)
        if flow is None or flow.ended is not None:
            self.late_notices += 1
        elif entry.kind is NetworkKind.SUSPECT:
            self._doubtful.append(flow.handle)
        elif entry.kind is NetworkKind.READABLE:
            if flow.lane is not None or not flow.tell(entry.acknowledgment, fin):
                self.late_notices += 1
                return
            self._news = True
            if flow.discards:
                self._streams.discard(flow)
        else:
            ended = flow.end_by(entry.kind, entry.sequence, entry.acknowledgment, fin)
            established = flow.established
            del self._by_ends[established.local, established.remote]
            self._ended.append(ended)
            # At once: a new connection may have the same ends.
            self._engine.forget(flow)
            if flow.lane is None:
                self._free(flow)

    def _give(self, frame: bytes) -> bool:
        """Give the engine a frame that came before it had its connection; whether it was one."""
        if not self._by_ends:
            return False
        found = segment_of(frame, self._settings.mac)
        if found is None or (flow := self._by_ends.get(found[0])) is None:
            return False
        self.lost_segments += not self._streams.give(flow, found[1])
        return True

    def _free(self, flow: Flow) -> None:
        """It is forgotten, and nobody uses its rings."""
        del self._by_number[flow.number]
        self._numbers.give_back(flow.number)

    # Frames, and what the driver waits for.

    def send_frame(self, frame: bytes) -> bool:
        """Send a frame; `False` if there is no room. Raises `ValueError` for its length."""
        with self._lock:
            self._require_open()
            return self._sends.send(self._commands, frame)

    def receive_frame(self) -> bytes | None:
        """The next frame for the driver, `None` if there is none."""
        with self._changing():
            return self._frames.popleft() if self._frames else None

    def take_ended(self) -> Ended | None:
        """The next connection that ended, `None` if there is none."""
        with self._changing():
            self._last = None
            if not self._ended:
                return None
            ended = self._ended.popleft()
            self._last = self._flows.pop(ended.handle)
            return ended

    def take_doubtful(self) -> int | None:
        """The next connection whose retransmissions are not answered, `None` if there is none."""
        with self._changing():
            return self._doubtful.popleft() if self._doubtful else None

    def wait(self, until_us: int | None) -> None:
        """Wait for frames, ends, news of a stream, `wake`, or a time."""
        with self._lock:
            self._require_open()
            self._look()
            if self._take_news():
                return
            if self._leaving or any(flow.hungry for flow in self._by_ends.values()):
                soon = self.now_us() + ROOM_US
                until_us = soon if until_us is None else min(soon, until_us)
        self._host.wait_network(until_us)
        with self._lock:
            self._require_open()
            # First: what comes from now on raises it again.
            raised = self._commands.read(registers.NETWORK_INTERRUPT_STATUS)
            if any(raised.values()):
                self._commands.write(registers.NETWORK_INTERRUPT_STATUS, **raised)
            self._look()
            self._failed |= bool(raised["failed"])
            if self._failed and self._queue.broken:
                raise TransportError(
                    "an entry of the network queue is lost: memory could not be written"
                )
            self._take_news()

    def _take_news(self) -> bool:
        waiting = bool(self._frames or self._ended or self._doubtful)
        found = waiting or self._news or self._woken
        self._news = self._woken = False
        return found

    def wake(self) -> None:
        """End a `wait`."""
        with self._lock:
            self._require_open()
            self._woken = True
        self._host.wake_network()

    def pause(self) -> AbstractContextManager[None]:
        """A program's thread waits in this block for something of the network."""
        return self._host.pause()

    def new_lock(self) -> Any:
        """A re-entrant lock for threads that call the port while they have it."""
        return self._host.new_lock()

    # Connections.

    def establish(self, connection: Established, early: tuple[bytes, ...] = ()) -> int:
        """Give a connection to the engine."""
        with self._changing():
            ends = connection.local, connection.remote
            if ends in self._by_ends:
                raise TransportError(f"the engine has the connection {ends} already; allowed: once")
            most = self.mtu - _HEADERS_OCTETS
            if not 1 <= connection.maximum_segment_size <= most:
                raise TransportError(
                    f"segments of {connection.maximum_segment_size} bytes; allowed: 1 to {most}"
                )
            if not self._numbers:
                limit = self._connections
                raise TransportError(
                    f"{limit} connections are established, or ended with a QP that still has the "
                    f"stream; allowed: {limit}"
                )
            number = self._numbers.next
            self._handles += 1
            flow = Flow(self._handles, number, connection, *self._numbers.rings(number))
            if not self._engine.establish(flow, self._settings.rto_minimum):
                raise TransportError(
                    f"the engine's table has no place for the connection {ends} beside "
                    f"{len(self._by_number)} others; allowed: another port"
                )
            self._numbers.take()
            self._flows[flow.handle] = self._by_ends[ends] = self._by_number[number] = flow
            for frame in early:
                self._give(frame)
            self._frames = deque(frame for frame in self._frames if not self._give(frame))
            return flow.handle

    @contextmanager
    def _flow(self, handle: int) -> Iterator[Flow]:
        """The connection of a handle. Raises `KeyError`."""
        with self._changing():
            if self._last is not None and self._last.handle == handle:
                yield self._last
            else:
                yield self._flows[handle]

    @contextmanager
    def _live(self, handle: int) -> Iterator[Flow]:
        """One that has not ended. Raises `KeyError`."""
        with self._flow(handle) as flow:
            if flow.ended is not None:
                raise KeyError(handle)
            yield flow

    def readable(self, handle: int) -> bool:
        """Whether there are bytes, or the end."""
        with self._flow(handle) as flow:
            if flow.ended is not None:
                return True
            return flow.fin or (flow.unread > 0 and not flow.discards)

    def send(self, handle: int, octets: bytes) -> int:
        """Write to the stream; how many bytes were taken."""
        with self._live(handle) as flow:
            return self._streams.send(flow, octets)

    def receive(self, handle: int, maximum: int) -> bytes:
        """Take bytes of the stream."""
        with self._flow(handle) as flow:
            return self._streams.receive(flow, maximum)

    def attach(self, handle: int, connection: int) -> None:
        """Join a stream to the LLP connection of a QP."""
        with self._live(handle) as flow:
            if connection in self._lanes:
                raise TransportError(
                    f"connection {connection} has a stream already; detach it first"
                )
            self._streams.require_own(flow)
            self._engine.attach(flow, connection)
            flow.lane = connection
            flow.hungry = False
            self._lanes[connection] = flow

    def detach(self, connection: int, timeout: float) -> None:
        """Take the stream from the LLP; FIN follows what the device has sent."""
        with self._changing():
            flow = self._lanes.pop(connection, None)
            if flow is None:
                raise TransportError(f"connection {connection} has no stream")
            until = self.now_us() + round(timeout * SECOND_US)
            try:
                self._engine.detach(flow, connection, lambda: self.now_us() >= until)
            except TransportTimeout:
                self._leaving.append(flow)
                raise TransportTimeout(
                    f"detach of connection {connection}: not everything could be sent in "
                    f"{timeout:g} s"
                ) from None
            self._leave(flow)

    def _leave(self, flow: Flow) -> None:
        """The device has let go of a stream: FIN follows, and nobody reads what comes."""
        flow.lane = None
        if flow.ended is not None:
            self._free(flow)
            return
        self._streams.leave(flow)

    def shutdown(self, handle: int) -> None:
        """FIN after all that was sent; what comes is released as soon as it is told of.

        So the peer's window stays open, and its FIN is seen. (DISCARD would reset the connection
        at the first octet, as RFC 9293, SHLD-3 has it for data that nobody reads.)
        """
        with self._flow(handle) as flow:
            if flow.ended is None:
                self._streams.shutdown(flow)

    def abort(self, handle: int) -> None:
        """RST."""
        with self._flow(handle) as flow:
            if flow.ended is None:
                self._engine.abort(flow)

    def set_segment_size(self, handle: int, octets: int) -> None:
        """The path takes less. Raises `ValueError` below 1, or above what the MTU allows."""
        most = self.mtu - _HEADERS_OCTETS
        if not 1 <= octets <= most:
            raise ValueError(f"segment size {octets}; allowed: 1 to {most}")
        with self._flow(handle) as flow:
            if flow.ended is None:
                self._engine.resize(flow, octets)

    def set_remote_mac(self, handle: int, mac: bytes) -> None:
        """The peer has another MAC address."""
        if len(mac) != MAC_OCTETS:
            raise ValueError(f"MAC address of {len(mac)} bytes; allowed: {MAC_OCTETS}")
        with self._flow(handle) as flow:
            flow.mac = mac
            if flow.ended is None:
                self._engine.write_mac(flow)

    def set_ip(self, handle: int, dscp: int, ttl: int) -> None:
        """DSCP and TTL of all packets from now on."""
        fields = IpFields(dscp, ttl)
        with self._flow(handle) as flow:
            flow.fields = fields
            if flow.ended is None:
                self._engine.write_fields(flow)

    def info(self, handle: int) -> ConnectionInfo:
        """How a connection does. Raises `KeyError` if it has ended."""
        with self._live(handle) as flow:
            return flow.information(self._engine.info(flow))

    # The end.

    def close(self, why: str) -> None:
        """There is no network any more; calls raise `DeviceClosed`. May be called again.

        Connections that are left are reset, and memory is given back, if the device answers.
        """
        with self._lock:
            if self.closed is not None:
                return
            self.closed = why
            with contextlib.suppress(StagecoachError):
                for flow in list(self._by_number.values()):
                    self._end(flow)
                switch_off(self._commands)
                for memory in (self._queue, self._sends, self._numbers):
                    memory.close()
        with contextlib.suppress(StagecoachError):
            self._host.wake_network()

    def _end(self, flow: Flow) -> None:
        """Reset a connection and have nothing of it be under way."""
        if flow.lane is not None:
            self._engine.detach(flow, flow.lane, lambda: False)
        if flow.ended is None:
            self._engine.abort(flow)
            self._engine.forget(flow)
