"""Segments and ICMP errors, each to what it belongs to (RFC 9293, 3.10.7 and 3.9.2.2)."""

import secrets
from collections import Counter
from collections.abc import Callable
from ipaddress import IPv4Address

from stagecoach.host_driver.network import icmp
from stagecoach.host_driver.network.errors import PortInUse
from stagecoach.host_driver.network.established import Connection, EngineConnections
from stagecoach.host_driver.network.icmp import IcmpMessage, Kind, Unreachable
from stagecoach.host_driver.network.ip_fields import IpFields
from stagecoach.host_driver.network.openings import Opening, Openings
from stagecoach.host_driver.network.output import Output
from stagecoach.host_driver.network.path_mtu import PathMtus
from stagecoach.host_driver.network.rate_limit import RateLimit
from stagecoach.host_driver.network.sequence import advance
from stagecoach.host_driver.network.settings import SECOND_US, NetworkSettings
from stagecoach.host_driver.network.stream import NetworkListener
from stagecoach.host_driver.network.tcp import Flag, Segment
from stagecoach.host_driver.network.time_wait import Answer, Ends, TimeWait
from stagecoach.host_driver.network.turn import Turn
from stagecoach.host_driver.transport.network import Ended

RESETS_A_SECOND = 200
TIME_WAIT_ANSWERS_A_SECOND = 200

FIRST_PORT = 1024
LAST_PORT = 65535
"""Local ports of connections that this end opens: all that are not well known (RFC 6056, 3.2)."""

_UNREACHABLE = {
    Unreachable.NET: "network unreachable",
    Unreachable.HOST: "host unreachable",
    Unreachable.PROTOCOL: "protocol unreachable",
    Unreachable.PORT: "port unreachable",
    Unreachable.SOURCE_ROUTE_FAILED: "source route failed",
}
_HARD = (Unreachable.PROTOCOL, Unreachable.PORT)


def error_words(message: IcmpMessage) -> str:
    """What an ICMP error says."""
    match message.kind:
        case Kind.UNREACHABLE:
            known = {int(code): words for code, words in _UNREACHABLE.items()}
            return known.get(message.code, f"destination unreachable, code {message.code}")
        case Kind.TIME_EXCEEDED:
            return "time exceeded"
    return "parameter problem"


def random_port(
    in_use: Callable[[int], bool], draw: Callable[[int], int] = secrets.randbelow
) -> int:
    """A local port that nobody can guess; the next free one if it is in use (RFC 6056, 3.3.1).

    Raises `PortInUse`.
    """
    count = LAST_PORT - FIRST_PORT + 1
    start = draw(count)
    for step in range(count):
        port = FIRST_PORT + (start + step) % count
        if not in_use(port):
            return port
    raise PortInUse(f"all ports from {FIRST_PORT} to {LAST_PORT} are in use")


def _reset_for(segment: Segment) -> Segment | None:
    """The RST that answers one of a connection that is not known, `None` for a RST.

    RFC 9293, 3.10.7.1.
    """
    if segment.flags & Flag.RST:
        return None
    ends = segment.destination, segment.source
    if segment.flags & Flag.ACK:
        return Segment(*ends, segment.acknowledgment, 0, Flag.RST)
    end = advance(segment.sequence, segment.length)
    return Segment(*ends, 0, end, Flag.RST | Flag.ACK)


class Connections:
    """Everything of TCP that the engine does not do; under the lock of `turn`.

    Attributes
    ----------
    engine, openings, time_wait, paths: its parts.
    """

    def __init__(
        self,
        turn: Turn,
        settings: NetworkSettings,
        output: Output,
        counters: Counter[str],
        take_early: Callable[[Ends], tuple[bytes, ...]],
    ):
        self._turn = turn
        self._settings = settings
        self._output = output
        self._counters = counters
        self.paths = PathMtus(settings.mtu)
        self.time_wait = TimeWait(round(2 * settings.maximum_segment_lifetime * SECOND_US))
        parts = turn, settings, output
        self.engine = EngineConnections(*parts, self.paths, self.time_wait, counters)
        self.openings = Openings(settings, output, self.engine, counters, take_early, turn.explain)
        self._resets = RateLimit(RESETS_A_SECOND, RESETS_A_SECOND)
        self._answers = RateLimit(TIME_WAIT_ANSWERS_A_SECOND, TIME_WAIT_ANSWERS_A_SECOND)

    def listen(self, port: int, backlog: int, fields: IpFields | None = None) -> NetworkListener:
        """A listener at the local address; port 0 takes a free one. Raises `PortInUse`.

        `fields`: of the packets of its connections, those of the settings if not given.
        """
        own = self._settings.own
        if not port:
            port = random_port(self.openings.listens)
        elif self.openings.listens(port):
            raise PortInUse(f"port {port} of {own} has a listener; allowed: another port")
        address = str(own), port
        fields = fields or self._settings.ip_fields
        listener = NetworkListener(self._turn, address, backlog, fields, self.openings.unlisten)
        self.openings.listen(listener)
        return listener

    def connect(
        self,
        remote: tuple[IPv4Address, int],
        seconds: float,
        now_us: int,
        fields: IpFields | None = None,
    ) -> Opening:
        """Begin a connection, with the fields of the settings if not given.

        Raises `NoRoute`, `PortInUse`.
        """
        own = self._settings.own
        port = random_port(lambda port: self._in_use(((own, port), remote)))
        fields = fields or self._settings.ip_fields
        return self.openings.connect(((own, port), remote), seconds, now_us, fields)

    def _in_use(self, ends: Ends) -> bool:
        known = ends in self.openings or ends in self.engine or ends in self.time_wait
        return known or self.openings.listens(ends[0][1])

    def receive(self, segment: Segment, mac: bytes, octets: bytes, now_us: int) -> None:
        """Take a segment to the local address; `mac` sent its frame, `octets`."""
        if segment.flags & Flag.URG:
            self._counters["tcp_urgent"] += 1  # the bytes stay in the stream
        ends = segment.destination, segment.source
        if ends in self.openings:
            self.openings.receive(ends, segment, mac, octets, now_us)
        elif ends in self.engine:
            self.engine.stray(ends, segment, now_us)
        elif ends in self.time_wait:
            self._receive_time_wait(ends, segment, mac, now_us)
        elif not self.openings.take_syn(ends, segment, mac, now_us):
            self._reset(segment, mac, now_us)

    def _reset(self, segment: Segment, mac: bytes, now_us: int) -> None:
        reset = _reset_for(segment)
        if reset is None:
            self._counters["reset_unknown"] += 1
        elif self._resets.allows(now_us):
            self._counters["resets_sent"] += 1
            self._output.segment(reset, mac)
        else:
            self._counters["resets_limited"] += 1

    def _receive_time_wait(self, ends: Ends, segment: Segment, mac: bytes, now_us: int) -> None:
        entry = self.time_wait.get(ends)
        assert entry is not None
        answer = self.time_wait.receive(ends, segment, now_us)
        if answer is Answer.NEW_CONNECTION and self.openings.listens(ends[0][1]):
            self.time_wait.remove(ends)
            self.openings.take_syn(ends, segment, mac, now_us, least=entry.next_sent)
        elif answer is Answer.NOTHING:
            return
        elif self._answers.allows(now_us):
            self._counters["time_wait_answers"] += 1
            numbers = entry.next_sent, entry.next_received
            acknowledgment = Segment(*ends, *numbers, Flag.ACK)
            self._output.segment(acknowledgment, entry.mac, entry.fields)
        else:
            self._counters["time_wait_limited"] += 1

    def ended(self, ended: Ended, now_us: int) -> None:
        """The engine forgot a connection."""
        self.engine.ended(ended, now_us)

    def icmp_error(self, message: IcmpMessage, now_us: int) -> None:
        """An error that quotes a segment of this host (RFC 9293, 3.9.2.2; RFC 5927).

        Raises `Refused` if it quotes none.
        """
        if message.kind in (Kind.SOURCE_QUENCH, Kind.REDIRECT):
            # RFC 6633; and routes are what the settings say.
            self._counters[f"icmp_{Kind(message.kind).name.lower()}"] += 1
            return
        quoted = icmp.quoted_segment(message)
        ends = quoted.local, quoted.remote
        connection = self.engine.quoted(quoted)
        opening = self.openings.sent(ends, quoted.sequence)
        if connection is None and not opening:
            self._counters["icmp_unknown_segment"] += 1
            return
        unreachable = message.kind == Kind.UNREACHABLE
        if unreachable and message.code == Unreachable.FRAGMENTATION_NEEDED:
            self._too_big(quoted.remote[0], message.second, quoted.length, now_us)
        elif connection is not None:
            self._soft(connection, message)
        elif unreachable and message.code in _HARD:
            self._counters["icmp_hard"] += 1
            self.openings.hard_error(ends, error_words(message))
        else:
            self._counters["icmp_soft"] += 1
            self.openings.soft_error(ends, error_words(message))

    def _soft(self, connection: Connection, message: IcmpMessage) -> None:
        """Hard errors too: nobody off the path can end a connection (RFC 5927, 5.2)."""
        self._counters["icmp_soft"] += 1
        connection.soft_error = error_words(message)

    def _too_big(self, destination: IPv4Address, told: int, length: int, now_us: int) -> None:
        mtu = self.paths.too_big(destination, told, length, now_us)
        if mtu is None:
            self._counters["icmp_too_big_ignored"] += 1
            return
        self._counters["path_mtu_lowered"] += 1
        self.engine.path_mtu(destination, mtu)

    @property
    def next_us(self) -> int | None:
        """When `tick` has something to do."""
        parts = self.openings.next_us, self.engine.next_us, self.time_wait.next_us
        return min((each for each in parts if each is not None), default=None)

    def tick(self, now_us: int) -> None:
        """Whatever it is time for."""
        self.openings.tick(now_us)
        self.engine.tick(now_us)
        self.time_wait.tick(now_us)
