"""The interface: its addresses and MTU, where datagrams go first, and limits of what is kept."""

import math
from dataclasses import dataclass
from functools import cached_property
from ipaddress import AddressValueError, IPv4Address, IPv4Interface, NetmaskValueError

from stagecoach.host_driver.network.errors import NetworkSettingsError, NoRoute
from stagecoach.host_driver.network.ethernet import check_mac
from stagecoach.host_driver.network.ip_fields import IpFields
from stagecoach.host_driver.network.ipv4 import DEFAULT_TTL
from stagecoach.host_driver.network.ipv4 import HEADER_OCTETS as IPV4_OCTETS
from stagecoach.host_driver.network.tcp import HEADER_OCTETS as TCP_OCTETS

SECOND_US = 1_000_000

MINIMUM_MTU = 576
"""Every host takes as much (RFC 791, 3.2)."""
MAXIMUM_MTU = 65535

_THIS_NETWORK = 0
_LOOPBACK = 127
_LAST_UNICAST = 223


def idle_us(seconds: float) -> int:
    """The idle time of a keep-alive. Raises `NetworkSettingsError`."""
    if not 1 / SECOND_US <= seconds < math.inf:
        raise NetworkSettingsError(f"keep-alive after {seconds:g} s; allowed: 1e-06 or more")
    return round(seconds * SECOND_US)


@dataclass(frozen=True)
class NetworkSettings:
    """Of an interface. Raises `NetworkSettingsError`.

    Attributes
    ----------
    address: own address and prefix, such as 192.0.2.2/24. gateway: for all others, if there is
        one. mac: six bytes.
    mtu: bytes of the longest datagram, 576 to 65,535. ttl: of datagrams that are sent, 1 to 255
        (RFC 9293, MUST-49). dscp: of the segments of connections, 0 to 63. A connection may have
        its own.
    receive_buffer: bytes that the engine keeps for a connection; it decides the window scale.
    maximum_segment_lifetime: in seconds; TIME-WAIT takes two of them (RFC 9293, 3.4.2).
    syn_timeout: seconds after which a SYN is given up unless the caller says so; RFC 9293, MUST-23
        asks for 180 or more.
    fin_timeout: seconds that a closed connection may wait for the peer's FIN, as Linux has them.
    keep_alive: seconds without a segment after which the peer of a connection is probed; `None`:
        never (RFC 9293, MUST-25). A connection may have its own.
    """

    address: IPv4Interface
    mac: bytes
    gateway: IPv4Address | None = None
    mtu: int = 1500
    ttl: int = DEFAULT_TTL
    dscp: int = 0
    receive_buffer: int = 1 << 18
    maximum_segment_lifetime: float = 120.0
    syn_timeout: float = 180.0
    fin_timeout: float = 60.0
    keep_alive: float | None = None

    def __post_init__(self) -> None:
        if not MINIMUM_MTU <= self.mtu <= MAXIMUM_MTU:
            raise NetworkSettingsError(
                f"MTU {self.mtu}; allowed: {MINIMUM_MTU} to {MAXIMUM_MTU} (RFC 791, 3.2)"
            )
        IpFields(self.dscp, self.ttl)
        if self.receive_buffer < 1:
            raise NetworkSettingsError(f"receive buffer {self.receive_buffer}; allowed: 1 or more")
        if self.keep_alive is not None:
            idle_us(self.keep_alive)
        try:
            check_mac(self.mac)
        except ValueError as error:
            raise NetworkSettingsError(str(error)) from None
        if not self._unicast(self.own):
            raise NetworkSettingsError(
                f"address {self.address}; allowed: that of one interface, with its prefix"
            )
        if self.gateway is not None and (
            self.gateway not in self.address.network
            or self.gateway == self.own
            or not self._unicast(self.gateway)
        ):
            raise NetworkSettingsError(
                f"gateway {self.gateway}; allowed: another address in {self.address.network}"
            )

    @classmethod
    def parse(
        cls, address: str, mac: bytes, gateway: str | None = None, mtu: int = 1500
    ) -> "NetworkSettings":
        """From text: an address with its prefix. Raises `NetworkSettingsError`."""
        if "/" not in address:
            raise NetworkSettingsError(
                f"address {address!r} has no prefix; allowed: as in 192.0.2.2/24"
            )
        try:
            own = IPv4Interface(address)
            first = None if gateway is None else IPv4Address(gateway)
        except (AddressValueError, NetmaskValueError) as error:
            raise NetworkSettingsError(f"{error}; allowed: an IPv4 address") from None
        return cls(own, mac, first, mtu)

    @cached_property
    def own(self) -> IPv4Address:
        """The address alone."""
        return self.address.ip

    @cached_property
    def ip_fields(self) -> IpFields:
        """Of the segments of a connection unless it has others."""
        return IpFields(self.dscp, self.ttl)

    @cached_property
    def broadcasts(self) -> frozenset[IPv4Address]:
        """Addresses of everybody, the old ones with zeros among them (RFC 1122, 3.3.6)."""
        found = {IPv4Address("255.255.255.255"), IPv4Address(0)}
        network = self.address.network
        if network.prefixlen < 31:  # RFC 3021
            found |= {network.broadcast_address, network.network_address}
        return frozenset(found)

    def _unicast(self, address: IPv4Address) -> bool:
        first = address.packed[0]
        ordinary = first not in (_THIS_NETWORK, _LOOPBACK) and first <= _LAST_UNICAST
        return ordinary and address not in self.broadcasts

    def is_peer(self, address: IPv4Address) -> bool:
        """Whether it can be the address of one other host (RFC 1122, 3.2.1.3)."""
        return address != self.own and self._unicast(address)

    def next_hop(self, destination: IPv4Address) -> IPv4Address:
        """Whom a datagram goes to first (RFC 1122, 3.3.1.1). Raises `NoRoute`."""
        if not self.is_peer(destination):
            raise NoRoute(f"no route to {destination}; allowed: the address of one other host")
        if destination in self.address.network:
            return destination
        if self.gateway is None:
            raise NoRoute(
                f"no route to {destination}: it is outside {self.address.network}, and there is "
                "no gateway"
            )
        return self.gateway

    @property
    def segment_size(self) -> int:
        """MSS as it is announced: the MTU without two headers, options not counted (RFC 6691)."""
        return self.mtu - IPV4_OCTETS - TCP_OCTETS
