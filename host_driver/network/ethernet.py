"""Ethernet frames without FCS (RFC 894)."""

import enum
from dataclasses import dataclass

from stagecoach.host_driver.network.refusal import Refused
from stagecoach.host_driver.transport.network import ETHERNET_HEADER_OCTETS

MAC_OCTETS = 6
BROADCAST = b"\xff" * MAC_OCTETS
NO_MAC = bytes(MAC_OCTETS)

MINIMUM_OCTETS = 60
"""A shorter frame is padded by its sender."""

_GROUP = 0x01
# Below it the field is a length (IEEE 802.3).
_LEAST_TYPE = 0x0600


class EtherType(enum.IntEnum):
    """What a frame carries."""

    IPV4 = 0x0800
    ARP = 0x0806


# All that is refused by a name of its own.
_REFUSED = {
    0x8100: "vlan",
    0x88A8: "vlan",
    0x86DD: "ipv6",
    0x8808: "pause",
}


@dataclass(frozen=True, slots=True)
class Frame:
    """Destination and source, six bytes each; `kind` is the EtherType; the payload as it came."""

    destination: bytes
    source: bytes
    kind: EtherType
    payload: bytes

    @property
    def broadcast(self) -> bool:
        """Whether it went to everybody."""
        return self.destination == BROADCAST

    def encode(self) -> bytes:
        """The bytes, padded."""
        header = self.destination + self.source + self.kind.to_bytes(2)
        return (header + self.payload).ljust(MINIMUM_OCTETS, b"\0")


def decode(octets: bytes, own: bytes) -> Frame:
    """Raises `Refused` for all but ARP and IPv4 to `own` or to everybody."""
    if len(octets) < ETHERNET_HEADER_OCTETS:
        raise Refused("frame_short")
    destination, source = octets[:6], octets[6:12]
    kind = int.from_bytes(octets[12:14])
    if kind < _LEAST_TYPE:
        raise Refused("ieee_802_3")
    if kind in _REFUSED:
        raise Refused(_REFUSED[kind])
    if destination not in (own, BROADCAST):
        raise Refused("frame_not_for_us")
    if source[0] & _GROUP or source == NO_MAC:
        raise Refused("frame_source")
    if kind not in (EtherType.IPV4, EtherType.ARP):
        raise Refused("ethertype")
    return Frame(destination, source, EtherType(kind), octets[ETHERNET_HEADER_OCTETS:])


def mac_text(mac: bytes) -> str:
    """Six bytes as `02:00:00:00:00:01`."""
    return mac.hex(":")


def check_mac(mac: bytes) -> None:
    """Raises `ValueError` unless it is the address of one interface."""
    if len(mac) != MAC_OCTETS or mac[0] & _GROUP or mac == NO_MAC:
        raise ValueError(
            f"MAC address {mac_text(mac) or 'of no bytes'}; allowed: six bytes, not a group's"
        )
