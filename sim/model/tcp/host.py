"""An IPv4 host: which connection a packet belongs to, and what is answered if to none."""

from collections import Counter
from ipaddress import IPv4Address, IPv4Interface

from stagecoach.sim.model.tcp import icmp, ipv4
from stagecoach.sim.model.tcp.connection import Connection
from stagecoach.sim.model.tcp.icmp import IcmpError
from stagecoach.sim.model.tcp.malformed import MalformedError, Reason
from stagecoach.sim.model.tcp.record import Endpoint, reset_for
from stagecoach.sim.model.tcp.segment import Flags, Segment, decode_packet, encode_packet
from stagecoach.sim.model.tcp.state import Settings, State

# RFC 6335, 6.
_FIRST_DYNAMIC_PORT, _LAST_PORT = 49152, 65535
_BACKLOG = 128

_Pair = tuple[int, Endpoint]


class Listener:
    """A passive OPEN of one port: each SYN makes a connection of its own (MUST-41)."""

    def __init__(self, port: int, settings: Settings, backlog: int) -> None:
        self.port = port
        self.settings = settings
        self.backlog = backlog
        # In the order of their SYN.
        self.pending: list[Connection] = []

    def accept(self) -> Connection | None:
        """The first connection that is established, which then is the caller's."""
        for connection in self.pending:
            if connection.state not in (State.SYN_RECEIVED, State.LISTEN):
                self.pending.remove(connection)
                return connection
        return None


class Host:
    """One address, its connections and listeners; packets and time go in, packets come out.

    ``discarded`` counts the packets that were ignored, by their reason. A fragment is one of
    them: this host reassembles none.
    """

    def __init__(
        self, interface: IPv4Interface, key: bytes, settings: Settings | None = None
    ) -> None:
        self.interface = interface
        self.settings = settings or Settings()
        self.discarded: Counter[Reason] = Counter()
        self.connections: dict[_Pair, Connection] = {}
        self._listeners: dict[int, Listener] = {}
        self._key = key
        self._packets: list[bytes] = []
        self._next_port = _FIRST_DYNAMIC_PORT

    # Calls of the user.

    def connect(
        self,
        now: int,
        remote: Endpoint,
        port: int | None = None,
        local: IPv4Address | None = None,
        settings: Settings | None = None,
    ) -> Connection:
        """Active OPEN, from a free port unless one is named.

        Raises ``ValueError`` for an address that is not this host's, a pair of endpoints that is
        in use, and a remote address that is no single host.
        """
        if local not in (None, self.interface.ip):
            raise ValueError(f"local address {local} (expected {self.interface.ip})")
        if remote[0] == self.interface.network.broadcast_address:
            raise ValueError(f"remote address {remote[0]} (expected that of a single host)")
        pair = (self._free_port(remote) if port is None else port), remote
        if pair in self.connections:
            raise ValueError(f"port {pair[0]} has a connection to {remote[0]}:{remote[1]}")
        connection = self._new(pair[0], settings or self.settings)
        connection.open(now, remote)
        self.connections[pair] = connection
        return connection

    def listen(
        self, port: int, settings: Settings | None = None, backlog: int = _BACKLOG
    ) -> Listener:
        """Passive OPEN. Raises ``ValueError`` if the port has a listener."""
        if port in self._listeners:
            raise ValueError(f"port {port} has a listener")
        self._listeners[port] = Listener(port, settings or self.settings, backlog)
        return self._listeners[port]

    def take_packets(self) -> list[bytes]:
        """The IPv4 packets to be sent since the last call."""
        for (_, remote), connection in list(self.connections.items()):
            for segment in connection.output:
                self._send(segment, remote[0], connection.dscp, connection.ttl)
            connection.output.clear()
        self._forget()
        packets, self._packets = self._packets, []
        return packets

    # Time.

    def next_deadline(self) -> int | None:
        """When ``timer`` has to be called, None if never."""
        deadlines = [connection.next_deadline() for connection in self.connections.values()]
        return min((at for at in deadlines if at is not None), default=None)

    def timer(self, now: int) -> None:
        """Do what is due."""
        for connection in self.connections.values():
            connection.timer(now)

    # The network.

    def packet_arrives(self, now: int, octets: bytes) -> None:
        """Take an IPv4 packet."""
        try:
            packet = ipv4.Packet.decode(octets)
            if packet.destination != self.interface.ip:
                raise MalformedError(Reason.IP_DESTINATION, str(packet.destination))
            if packet.source == self.interface.network.broadcast_address:
                raise MalformedError(Reason.IP_SOURCE, str(packet.source))
            if packet.protocol == icmp.PROTOCOL:
                self._icmp_arrives(now, packet)
            else:
                _, segment = decode_packet(octets)
                self._segment_arrives(now, segment, packet.source)
        except MalformedError as error:
            self.discarded[error.reason] += 1

    def _segment_arrives(self, now: int, segment: Segment, source: IPv4Address) -> None:
        """The pair of endpoints first, then a listener (MUST-42), else a reset."""
        remote = source, segment.source_port
        port = segment.destination_port
        connection = self.connections.get((port, remote))
        if connection:
            connection.segment_arrives(now, segment, source)
            return
        listener = self._listeners.get(port)
        if listener and Flags.ACK not in segment.flags:
            self._to_listener(now, listener, segment, remote)
            return
        answer = reset_for(segment)
        if answer:
            self._send(answer, source)

    def _to_listener(
        self, now: int, listener: Listener, segment: Segment, remote: Endpoint
    ) -> None:
        waiting = [item for item in listener.pending if item.state is not State.CLOSED]
        if Flags.SYN not in segment.flags or len(waiting) >= listener.backlog:
            return
        connection = self._new(listener.port, listener.settings)
        connection.listen()
        connection.segment_arrives(now, segment, remote[0])
        if connection.state is State.SYN_RECEIVED:
            self.connections[listener.port, remote] = connection
            listener.pending = [*waiting, connection]

    def _icmp_arrives(self, now: int, packet: ipv4.Packet) -> None:
        reply = icmp.echo_reply(packet.payload)
        if reply:
            self._packets.append(
                ipv4.Packet(self.interface.ip, packet.source, reply, icmp.PROTOCOL).encode()
            )
            return
        error = IcmpError.decode(packet.payload)
        if not error or error.protocol != ipv4.PROTOCOL_TCP or error.source != self.interface.ip:
            return
        remote = error.destination, error.destination_port
        connection = self.connections.get((error.source_port, remote))
        if connection:
            connection.icmp_arrives(now, error)

    def _send(
        self, segment: Segment, destination: IPv4Address, dscp: int = 0, ttl: int = ipv4.TTL
    ) -> None:
        packet = encode_packet(segment, self.interface.ip, destination, dscp, ttl)
        self._packets.append(packet)

    def _new(self, port: int, settings: Settings) -> Connection:
        return Connection((self.interface.ip, port), self._key, settings)

    def _free_port(self, remote: Endpoint) -> int:
        for _ in range(_FIRST_DYNAMIC_PORT, _LAST_PORT + 1):
            port = self._next_port
            self._next_port = port + 1 if port < _LAST_PORT else _FIRST_DYNAMIC_PORT
            if (port, remote) not in self.connections and port not in self._listeners:
                return port
        raise ValueError(f"no free port to {remote[0]}:{remote[1]}")

    def _forget(self) -> None:
        """Drop connections that have ended, and those that listen again."""
        over = (State.CLOSED, State.LISTEN)
        ended = [pair for pair, item in self.connections.items() if item.state in over]
        for pair in ended:
            del self.connections[pair]
        for listener in self._listeners.values():
            listener.pending = [x for x in listener.pending if x.state is not State.LISTEN]
