"""Frames that come in: taken apart, checked, and handed to what they are for."""

from collections import Counter

from stagecoach.host_driver.network import arp, ethernet, icmp, ipv4, tcp
from stagecoach.host_driver.network.address_claim import AddressClaim, ClaimState
from stagecoach.host_driver.network.connections import Connections
from stagecoach.host_driver.network.echo import Echo
from stagecoach.host_driver.network.ethernet import EtherType, Frame
from stagecoach.host_driver.network.icmp import ERRORS, IcmpMessage, Kind, Unreachable
from stagecoach.host_driver.network.ipv4 import Datagram, Protocol
from stagecoach.host_driver.network.neighbours import Neighbours
from stagecoach.host_driver.network.output import Output
from stagecoach.host_driver.network.rate_limit import RateLimit
from stagecoach.host_driver.network.refusal import Refused
from stagecoach.host_driver.network.settings import NetworkSettings

UDP = 17
UNREACHABLES_A_SECOND = 50


class Input:
    """Counts every frame: what is refused under the name of its reason."""

    def __init__(
        self,
        settings: NetworkSettings,
        output: Output,
        claim: AddressClaim,
        neighbours: Neighbours,
        echo: Echo,
        connections: Connections,
        counters: Counter[str],
    ):
        self._settings = settings
        self._output = output
        self._claim = claim
        self._neighbours = neighbours
        self._echo = echo
        self._connections = connections
        self._counters = counters
        self._unreachables = RateLimit(UNREACHABLES_A_SECOND, UNREACHABLES_A_SECOND)

    def receive(self, octets: bytes, now_us: int) -> None:
        """Take a frame. Nothing that it can hold raises."""
        self._counters["frames"] += 1
        try:
            frame = ethernet.decode(octets, self._settings.mac)
            if frame.kind == EtherType.ARP:
                self._arp(frame, now_us)
            elif self._claim.state is ClaimState.CLAIMED:
                self._ipv4(frame, octets, now_us)
            else:
                raise Refused("address_not_claimed")
        except Refused as reason:
            self._counters[reason.name] += 1

    def _arp(self, frame: Frame, now_us: int) -> None:
        packet = arp.decode(frame.payload)
        self._counters["arp"] += 1
        if self._claim.state is ClaimState.CLAIMED:
            self._neighbours.receive(packet, now_us)
        else:
            self._claim.receive_probing(packet)

    def _ipv4(self, frame: Frame, octets: bytes, now_us: int) -> None:
        datagram = ipv4.decode(frame.payload)
        if not self._settings.is_peer(datagram.source):
            raise Refused("ip_source")
        if datagram.destination != self._settings.own:
            # Nothing of what is sent to everybody is for this host (RFC 1122, 3.2.2.6).
            everybody = datagram.destination in self._settings.broadcasts
            raise Refused("ip_broadcast" if everybody else "ip_not_for_us")
        if frame.broadcast:
            raise Refused("ip_in_broadcast")  # RFC 1122, 3.3.6
        if datagram.protocol == Protocol.TCP:
            segment = tcp.decode(datagram)
            self._counters["tcp"] += 1
            self._connections.receive(segment, frame.source, octets, now_us)
        elif datagram.protocol == Protocol.ICMP:
            self._icmp(datagram, frame.source, now_us)
        else:
            self._unreachable(datagram, frame.source, now_us)

    def _icmp(self, datagram: Datagram, mac: bytes, now_us: int) -> None:
        message = icmp.decode(datagram.payload)
        self._counters["icmp"] += 1
        if message.kind in (Kind.ECHO, Kind.ECHO_REPLY) and not message.code:
            self._echo.receive(datagram.source, message, mac, now_us)
        elif message.kind in ERRORS:
            self._connections.icmp_error(message, now_us)
        else:
            raise Refused("icmp_type")

    def _unreachable(self, datagram: Datagram, mac: bytes, now_us: int) -> None:
        """There is nothing here but TCP and ICMP (RFC 1122, 3.2.2.1)."""
        self._counters["udp" if datagram.protocol == UDP else "ip_protocol"] += 1
        if not self._unreachables.allows(now_us):
            self._counters["unreachables_limited"] += 1
            return
        code = Unreachable.PORT if datagram.protocol == UDP else Unreachable.PROTOCOL
        quote = datagram.header + datagram.payload[: icmp.QUOTE_OCTETS]
        self._output.icmp(datagram.source, IcmpMessage(Kind.UNREACHABLE, code, 0, 0, quote), mac)
