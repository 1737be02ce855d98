"""The reference TCP where the engine in gateware is going to stand: all connections of a device."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address

from stagecoach.host_driver.transport.base import TransportError
from stagecoach.host_driver.transport.network import (
    ETHERNET_HEADER_OCTETS,
    Ended,
    Established,
)
from stagecoach.sim.llp_messages import LlpMessage
from stagecoach.sim.model.tcp import ipv4
from stagecoach.sim.model.tcp.malformed import MalformedError
from stagecoach.sim.model.tcp.segment import Flags, Segment, decode_packet, encode_packet
from stagecoach.sim.model.tcp.state import Settings
from stagecoach.sim.network.flow import Flow, Post

MAXIMUM_FRAMES = 1024
"""Frames that wait for the driver; more are dropped and counted."""

DELAYED_ACK_US = 40_000
"""As Linux delays ACKs; RFC 9293, MUST-40 allows 500 ms."""

_IPV4 = b"\x08\x00"

_Ends = tuple[tuple[IPv4Address, int], tuple[IPv4Address, int]]


@dataclass(frozen=True)
class EngineSettings:
    """Of an engine: bytes of the rings and of an IP packet, least RTO in microseconds."""

    mac: bytes
    mtu: int
    rx_ring: int
    tx_ring: int
    rto_minimum: int
    maximum_connections: int

    @property
    def tcp(self) -> Settings:
        """Those of the reference TCP.

        An ACK is not delayed until a peer with the same least RTO gives the segment up.
        """
        return Settings(
            mss=self.mtu - 40,
            receive_buffer=self.rx_ring,
            rto_minimum=self.rto_minimum,
            delayed_ack=min(DELAYED_ACK_US, self.rto_minimum // 4),
        )


class Engine:
    """Connections by handle, by their ends, and by LLP connection. Nothing here waits.

    Parameters
    ----------
    send: sends a frame. post: sends a message to the device.

    Attributes
    ----------
    frames: for the driver. ended: connections that ended. doubtful: handles of connections with R1
        retransmissions that were not answered. dropped: frames without room. urgent: segments of
        connections with an urgent pointer, whose bytes stay in the stream.
    news: whether something came for a stream that no QP has, since this was set to `False`.
    """

    def __init__(self, settings: EngineSettings, send: Callable[[bytes], None], post: Post) -> None:
        self.settings = settings
        self.frames: deque[bytes] = deque()
        self.ended: deque[Ended] = deque()
        self.doubtful: deque[int] = deque()
        self.dropped = self.urgent = 0
        self.news = False
        self._tcp = settings.tcp
        self._send = send
        self._post = post
        self._flows: dict[int, Flow] = {}
        self._by_ends: dict[_Ends, Flow] = {}
        # Those that leave the device come before the one that follows them there.
        self._lanes: dict[int, list[Flow]] = {}
        self._last: tuple[int, Flow] | None = None
        self._handles = 0

    def __len__(self) -> int:
        return len(self._by_ends)

    def flow(self, handle: int) -> Flow:
        """The connection of a handle. Raises `KeyError`."""
        if self._last is not None and self._last[0] == handle:
            return self._last[1]
        return self._flows[handle]

    # Connections.

    def establish(self, now: int, established: Established, early: tuple[bytes, ...]) -> int:
        """Take a connection, and frames that came for it before; returns its handle."""
        ends = established.local, established.remote
        if ends in self._by_ends:
            raise TransportError(f"the engine has the connection {ends} already; allowed: once")
        limit = self.settings.maximum_connections
        if len(self._by_ends) >= limit:
            raise TransportError(f"{limit} connections are established; allowed: {limit}")
        self._handles += 1
        flow = Flow(now, self._handles, established, self._tcp, self.settings.tx_ring, self._post)
        self._flows[flow.handle] = self._by_ends[ends] = flow
        for frame in early:
            self._receive(now, frame)
        return flow.handle

    def take_ended(self) -> Ended | None:
        """The next connection that ended; its handle holds until the next call."""
        self._last = None
        if not self.ended:
            return None
        ended = self.ended.popleft()
        self._last = ended.handle, self._flows.pop(ended.handle)
        return ended

    def attach(self, now: int, handle: int, lane: int) -> None:
        """Give a stream to an LLP connection of the device."""
        flow = self.flow(handle)
        known = self._lanes.setdefault(lane, [])
        if known and not known[-1].leaving:
            raise TransportError(f"connection {lane} has a stream already; detach it first")
        flow.attach(lane)
        known.append(flow)
        self.serve(now, flow)

    def leave(self, lane: int) -> Flow:
        """Have the stream of an LLP connection leave the device. Raises `TransportError`."""
        known = self._lanes.get(lane)
        if not known or known[-1].leaving:
            raise TransportError(f"connection {lane} has no stream")
        known[-1].leave()
        return known[-1]

    def take_message(
        self, now: int, kind: LlpMessage, lane: int, value: int, octets: bytes
    ) -> None:
        """A message of the device."""
        known = self._lanes.get(lane)
        if not known:
            return
        flow = known.pop(0) if kind is LlpMessage.DETACHED else known[0]
        flow.take_message(now, kind, value, octets)
        self.serve(now, flow)

    def serve(self, now: int, flow: Flow) -> None:
        """Send what follows from the last event of a connection, and see whether it ended."""
        established = flow.established
        source, destination = established.local[0], established.remote[0]
        header = flow.remote_mac + established.local_mac + _IPV4
        for segment in flow.take_output(now):
            fields = flow.connection.dscp, flow.connection.ttl
            self._send(header + encode_packet(segment, source, destination, *fields))
        if flow.turns_doubtful():
            self.doubtful.append(flow.handle)
        ends = established.local, established.remote
        if flow.over and self._by_ends.get(ends) is flow:
            del self._by_ends[ends]
            self.ended.append(flow.ended())

    # Frames.

    def take_frame(self, now: int, frame: bytes) -> None:
        """A frame of the wire: for a connection, or for the driver."""
        if self._receive(now, frame):
            return
        if len(self.frames) >= MAXIMUM_FRAMES:
            self.dropped += 1
        else:
            self.frames.append(frame)

    def _receive(self, now: int, frame: bytes) -> bool:
        """Whether the frame was one of a connection."""
        found = self._segment(frame)
        if found is None:
            return False
        packet, segment = found
        local = packet.destination, segment.destination_port
        flow = self._by_ends.get((local, (packet.source, segment.source_port)))
        if flow is None:
            return False
        self.urgent += Flags.URG in segment.flags
        flow.arrives(now, segment)
        if flow.lane is None:
            self.news = True
        self.serve(now, flow)
        return True

    def _segment(self, frame: bytes) -> tuple[ipv4.Packet, Segment] | None:
        """What is malformed, or no segment, is the driver's, who counts it."""
        if frame[:6] != self.settings.mac or frame[12:ETHERNET_HEADER_OCTETS] != _IPV4:
            return None
        try:
            return decode_packet(frame[ETHERNET_HEADER_OCTETS:])
        except MalformedError:
            return None

    # Time.

    def next_deadline(self) -> int | None:
        """When `timer` has something to do, `None` if never."""
        times = (flow.connection.next_deadline() for flow in self._by_ends.values())
        return min((each for each in times if each is not None), default=None)

    def timer(self, now: int) -> None:
        """Do what is due."""
        for flow in list(self._by_ends.values()):
            deadline = flow.connection.next_deadline()
            if deadline is not None and deadline <= now:
                flow.connection.timer(now)
                self.serve(now, flow)
