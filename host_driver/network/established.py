"""Connections that the engine has, as long as it has them."""

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

from stagecoach.host_driver.network.handshake import (
    CHALLENGE_INTERVAL_US,
    LARGEST_FIELD,
    Handshake,
)
from stagecoach.host_driver.network.icmp import Quoted
from stagecoach.host_driver.network.ip_fields import IpFields
from stagecoach.host_driver.network.ipv4 import HEADER_OCTETS as IPV4_OCTETS
from stagecoach.host_driver.network.keep_alive import KeepAlive, Step
from stagecoach.host_driver.network.output import Output
from stagecoach.host_driver.network.path_mtu import PathMtus
from stagecoach.host_driver.network.sequence import advance, distance
from stagecoach.host_driver.network.settings import SECOND_US, NetworkSettings
from stagecoach.host_driver.network.stream import NetworkStream
from stagecoach.host_driver.network.tcp import HEADER_OCTETS as TCP_OCTETS
from stagecoach.host_driver.network.tcp import Flag, Segment
from stagecoach.host_driver.network.time_wait import Ends, TimeWait
from stagecoach.host_driver.network.turn import Turn
from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.transport.base import StreamClosed, TransportError
from stagecoach.host_driver.transport.network import ConnectionInfo, Ended, Established

HEADERS = IPV4_OCTETS + TCP_OCTETS
"""Of a segment without options."""


@dataclass
class Connection:
    """One connection of the engine.

    Attributes
    ----------
    mac: of the peer or its gateway. segment_size: bytes of data in the longest segment.
    fields: of its packets. shift: of the windows that it announces.
    qp: LLP connection that has its stream, if one has. soft_error: the last ICMP error that told
        of it, or that nothing is acknowledged, in words. abort_us: when it is given up that this
        end has closed. keep_alive: if it is on. silent: whether it was given up as no probe was
        answered.
    """

    handle: int
    ends: Ends
    mac: bytes
    segment_size: int
    fields: IpFields
    shift: int
    stream: NetworkStream
    qp: int | None = None
    soft_error: str | None = None
    abort_us: int | None = None
    challenged_us: int | None = None
    keep_alive: KeepAlive | None = None
    silent: bool = False


class EngineConnections:
    """The table. Everything happens under the lock of `turn`."""

    def __init__(
        self,
        turn: Turn,
        settings: NetworkSettings,
        output: Output,
        paths: PathMtus,
        time_wait: TimeWait,
        counters: Counter[str],
    ):
        self._turn = turn
        self._port = turn.port
        self._settings = settings
        self._output = output
        self._paths = paths
        self._time_wait = time_wait
        self._counters = counters
        self._by_ends: dict[Ends, Connection] = {}
        self._by_handle: dict[int, Connection] = {}
        self._ends_of_qps: dict[int, StreamEnd] = {}  # of those that still have the stream

    def __contains__(self, ends: Ends) -> bool:
        return ends in self._by_ends

    def __len__(self) -> int:
        return len(self._by_ends)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._by_ends.values()))

    @property
    def full(self) -> bool:
        """Whether the engine can take no more."""
        return len(self._by_ends) >= self._port.maximum_connections

    def establish(self, handshake: Handshake, mac: bytes, early: tuple[bytes, ...]) -> Connection:
        """Give the engine a connection. Raises `TransportError` if it does not take it."""
        ends = handshake.local, handshake.remote
        path = self._paths.get(handshake.remote[0], self._port.now_us())
        segment = min(handshake.send_segment, path - HEADERS)
        send_shift, receive_shift = handshake.shifts
        established = Established(
            *(*ends, self._settings.mac, mac),
            *(handshake.next_sent, handshake.next_received, handshake.window, handshake.update),
            *(send_shift, receive_shift, handshake.receive_window, segment),
            *(handshake.sack_permitted, handshake.round_trip_us, handshake.retransmissions > 0),
            *(handshake.fields.dscp, handshake.fields.ttl),
        )
        handle = self._port.establish(established, early)
        stream = NetworkStream(self._turn, handle, *ends, segment, self._close)
        parts = handle, ends, mac, segment, handshake.fields, receive_shift, stream
        connection = Connection(*parts)
        if self._settings.keep_alive is not None:
            self.set_keep_alive(connection, self._settings.keep_alive)
        self._by_ends[ends] = self._by_handle[handle] = connection
        self._counters["established"] += 1
        return connection

    def of(self, stream: NetworkStream) -> Connection:
        """The connection of a stream. Raises `StreamClosed` if it ended, as the end was."""
        connection = self._by_handle.get(stream.handle)
        if connection is None or connection.stream is not stream:
            if stream.has_ended:
                raise stream.gone()
            raise StreamClosed("the stream is not one of this network")
        return connection

    def of_qp(self, qp: int) -> Connection | None:
        """The connection whose stream an LLP connection has."""
        return next((each for each in self if each.qp == qp), None)

    def join(self, connection: Connection, qp: int) -> None:
        """A QP gets its stream."""
        self._ends_of_qps.pop(qp, None)
        connection.qp = qp

    def part(self, qp: int) -> Connection | None:
        """A QP has its stream no more; returns the connection if the engine still has it."""
        self._ends_of_qps.pop(qp, None)
        connection = self.of_qp(qp)
        if connection is not None:
            connection.qp = None
        return connection

    def stream_end(self, qp: int) -> StreamEnd | None:
        """How the stream of a QP ended, whose LLP says that it is over; `None` if it has none.

        A connection that the engine still has got FIN.
        """
        if qp in self._ends_of_qps:
            return self._ends_of_qps[qp]
        return None if self.of_qp(qp) is None else StreamEnd.CLOSED

    def ended(self, ended: Ended, now_us: int) -> None:
        """The engine forgot one: TIME-WAIT if this end closed first, and the stream is told."""
        connection = self._by_handle.pop(ended.handle, None)
        if connection is None:
            self._counters["ended_unknown"] += 1
            return
        del self._by_ends[connection.ends]
        how = ended.how
        if how is StreamEnd.ABORTED and connection.silent:
            how = StreamEnd.TIMED_OUT
        self._counters[f"ended_{how.name.lower()}"] += 1
        if connection.qp is not None:
            # Its bytes ended with the FIN, whatever came then.
            of_qp = StreamEnd.CLOSED if ended.peer_closed else how
            self._ends_of_qps[connection.qp] = of_qp
        if ended.closed_first:
            numbers = ended.next_sent, ended.next_received
            self._time_wait.add(
                connection.ends, *numbers, connection.mac, now_us, connection.fields
            )
        unread = b""
        if connection.stream.open:
            with contextlib.suppress(KeyError, StreamClosed):
                unread = self._port.receive(ended.handle, self._settings.receive_buffer)
        connection.stream.ended(how, unread)

    def _close(self, stream: NetworkStream) -> None:
        connection = self._by_handle.get(stream.handle)
        if connection is None:
            return
        with contextlib.suppress(KeyError):  # it has ended
            if stream.unread():
                self._port.abort(connection.handle)
                return
            self._port.shutdown(connection.handle)
        self.orphan(connection)

    def orphan(self, connection: Connection) -> None:
        """This end has sent FIN: the peer's is not waited for for ever."""
        wait = round(self._settings.fin_timeout * SECOND_US)
        connection.abort_us = self._port.now_us() + wait
        self._port.wake()

    def abort(self, connection: Connection) -> None:
        """End it with RST."""
        connection.abort_us = None
        with contextlib.suppress(KeyError, TransportError):  # it has ended, or the device has
            self._port.abort(connection.handle)

    def stray(self, ends: Ends, segment: Segment, now_us: int) -> None:
        """A segment that the engine left to the driver: a SYN gets a challenge ACK (RFC 5961, 4).

        Not more often than twice a second; everything else is dropped.
        """
        connection = self._by_ends[ends]
        if not segment.flags & Flag.SYN or segment.flags & Flag.RST:
            self._counters["segment_of_established"] += 1
            return
        last = connection.challenged_us
        if last is not None and now_us - last < CHALLENGE_INTERVAL_US:
            self._counters["challenge_limited"] += 1
            return
        connection.challenged_us = now_us
        with contextlib.suppress(KeyError):
            info = self._port.info(connection.handle)
            self._counters["challenge_acks"] += 1
            self._acknowledge(connection, info, info.next_sent)

    def _acknowledge(self, connection: Connection, info: ConnectionInfo, sequence: int) -> None:
        """Send an ACK without data, with the window as it is."""
        window = min(LARGEST_FIELD, info.receive_window >> connection.shift)
        answer = Segment(*connection.ends, sequence, info.next_received, Flag.ACK, window)
        self._output.segment(answer, connection.mac, connection.fields)

    def quoted(self, quoted: Quoted) -> Connection | None:
        """The connection that an ICMP error is about, if its sequence number is under way."""
        connection = self._by_ends.get((quoted.local, quoted.remote))
        if connection is None:
            return None
        with contextlib.suppress(KeyError):
            info = self._port.info(connection.handle)
            outstanding = distance(info.unacknowledged, info.next_sent)
            if distance(info.unacknowledged, quoted.sequence) < outstanding:
                return connection
        return None

    def follow(self, neighbour: IPv4Address, mac: bytes) -> None:
        """All connections to a neighbour and through it use the MAC address that it says.

        Theirs may be another one although the neighbour's never changed: without a neighbour that
        is known, a connection begins with that of the frame in which its peer's SYN came, and that
        need not be the one that answers ARP requests (the virtual address of two routers).
        """
        for connection in self:
            if connection.mac == mac:
                continue
            if self._settings.next_hop(connection.ends[1][0]) == neighbour:
                connection.mac = mac
                with contextlib.suppress(KeyError):
                    self._port.set_remote_mac(connection.handle, mac)

    def set_ip(self, connection: Connection, fields: IpFields) -> None:
        """Its packets have other fields from now on (RFC 9293, SHLD-21)."""
        connection.fields = fields
        with contextlib.suppress(KeyError):
            self._port.set_ip(connection.handle, fields.dscp, fields.ttl)

    def set_keep_alive(self, connection: Connection, idle: float | None) -> None:
        """Probe its peer after so many idle seconds, or no more (RFC 9293, MUST-24).

        Raises `NetworkSettingsError`.
        """
        now_us = self._port.now_us()
        connection.keep_alive = None if idle is None else KeepAlive(idle, now_us)
        self._port.wake()

    def _probe(self, connection: Connection, keep_alive: KeepAlive, now_us: int) -> None:
        with contextlib.suppress(KeyError):  # it has ended
            info = self._port.info(connection.handle)
            match keep_alive.look(info, now_us):
                case Step.PROBE:
                    # The byte before SND.NXT, without data (SHLD-12): the peer has to answer.
                    self._counters["keep_alive_probes"] += 1
                    self._acknowledge(connection, info, advance(info.next_sent, -1))
                case Step.GIVE_UP:
                    self._counters["keep_alive_timeouts"] += 1
                    connection.silent = True
                    self.abort(connection)

    def doubtful(self, handle: int) -> None:
        """R1 retransmissions were not answered: is the next hop there? (RFC 9293, 3.8.3)."""
        connection = self._by_handle.get(handle)
        if connection is not None:
            self._counters["r1_reached"] += 1
            connection.soft_error = "retransmissions are not acknowledged"
            self._output.doubt(self._settings.next_hop(connection.ends[1][0]))

    def path_mtu(self, destination: IPv4Address, mtu: int) -> None:
        """The path to a destination takes less: all of its connections (RFC 1191, 6.4)."""
        segment = mtu - HEADERS
        for connection in self:
            if connection.ends[1][0] == destination and connection.segment_size > segment:
                connection.segment_size = segment
                with contextlib.suppress(KeyError):
                    self._port.set_segment_size(connection.handle, segment)

    @property
    def next_us(self) -> int | None:
        """When `tick` has something to do."""
        connections = self._by_ends.values()
        times = [each.abort_us for each in connections if each.abort_us is not None]
        times += [each.keep_alive.next_us for each in connections if each.keep_alive is not None]
        return min(times, default=None)

    def tick(self, now_us: int) -> None:
        """Give up connections that this end closed, and whose peer does not; keep others alive."""
        for connection in self:
            keep_alive = connection.keep_alive
            if keep_alive is not None and now_us >= keep_alive.next_us:
                self._probe(connection, keep_alive, now_us)
            if connection.abort_us is not None and now_us >= connection.abort_us:
                self._counters["fin_timeouts"] += 1
                self.abort(connection)
