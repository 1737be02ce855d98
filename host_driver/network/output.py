"""Sends datagrams: to a MAC address that is known, or to the next hop when ARP has found it."""

from collections.abc import Callable
from ipaddress import IPv4Address

from stagecoach.host_driver.network.ethernet import EtherType, Frame
from stagecoach.host_driver.network.icmp import IcmpMessage
from stagecoach.host_driver.network.ip_fields import IpFields
from stagecoach.host_driver.network.ipv4 import Datagram, Protocol
from stagecoach.host_driver.network.neighbours import Neighbours
from stagecoach.host_driver.network.settings import NetworkSettings
from stagecoach.host_driver.network.tcp import Segment


class Output:
    """From the local address.

    Parameters
    ----------
    send: sends a frame. now_us: the time.
    """

    def __init__(
        self,
        settings: NetworkSettings,
        neighbours: Neighbours,
        send: Callable[[Frame], None],
        now_us: Callable[[], int],
    ):
        self._settings = settings
        self._neighbours = neighbours
        self._send = send
        self._now_us = now_us

    def segment(
        self, segment: Segment, mac: bytes | None = None, fields: IpFields | None = None
    ) -> None:
        """Send a segment, with the fields of its connection if it has one.

        Raises `NoRoute` without a MAC address.
        """
        fields = fields or IpFields(ttl=self._settings.ttl)
        self._datagram(segment.destination[0], Protocol.TCP, segment.encode(), mac, fields)

    def icmp(
        self, destination: IPv4Address, message: IcmpMessage, mac: bytes | None = None
    ) -> None:
        """Send a message; raises `NoRoute` without a MAC address."""
        fields = IpFields(ttl=self._settings.ttl)
        self._datagram(destination, Protocol.ICMP, message.encode(), mac, fields)

    def doubt(self, neighbour: IPv4Address) -> None:
        """TCP hears nothing: see whether the next hop is still there (RFC 1122, 3.3.1.4)."""
        self._neighbours.check(neighbour, self._now_us())

    def next_mac(self, destination: IPv4Address) -> bytes | None:
        """The MAC address of the next hop to a destination, if it is known."""
        return self._neighbours.mac(self._settings.next_hop(destination))

    def reaches(self, neighbour: IPv4Address) -> bool:
        """Whether the MAC address of a next hop is known."""
        return self._neighbours.mac(neighbour) is not None

    def _datagram(
        self,
        destination: IPv4Address,
        protocol: Protocol,
        payload: bytes,
        mac: bytes | None,
        fields: IpFields,
    ) -> None:
        ends = self._settings.own, destination
        packet = Datagram(*(*ends, protocol, payload, fields.ttl), service=fields.service).encode()
        if mac is not None:
            self._send(Frame(mac, self._settings.mac, EtherType.IPV4, packet))
            return
        self._neighbours.deliver(self._settings.next_hop(destination), packet, self._now_us())
