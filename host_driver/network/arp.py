"""ARP for IPv4 on Ethernet (RFC 826)."""

import enum
import struct
from dataclasses import dataclass
from ipaddress import IPv4Address

from stagecoach.host_driver.network.ethernet import NO_MAC, EtherType
from stagecoach.host_driver.network.refusal import Refused

# Hardware and protocol type, their lengths, opcode; sender's and target's addresses.
_LAYOUT = struct.Struct(">HHBBH6s4s6s4s")
_ETHERNET = 1
_GROUP = 0x01

UNSPECIFIED = IPv4Address(0)
"""Sender of a probe (RFC 5227, 1.1)."""


class Operation(enum.IntEnum):
    """The opcode."""

    REQUEST = 1
    REPLY = 2


@dataclass(frozen=True, slots=True)
class ArpPacket:
    """Addresses of sender and target: six bytes, and IPv4."""

    operation: Operation
    sender_mac: bytes
    sender: IPv4Address
    target_mac: bytes
    target: IPv4Address

    def encode(self) -> bytes:
        """28 bytes."""
        return _LAYOUT.pack(
            *(_ETHERNET, EtherType.IPV4, 6, 4, self.operation),
            *(self.sender_mac, self.sender.packed, self.target_mac, self.target.packed),
        )


def decode(octets: bytes) -> ArpPacket:
    """Padding is left out. Raises `Refused`: `arp_short`, `arp_format`, `arp_source`."""
    if len(octets) < _LAYOUT.size:
        raise Refused("arp_short")
    *kinds, operation, sender_mac, sender, target_mac, target = _LAYOUT.unpack_from(octets)
    if kinds != [_ETHERNET, EtherType.IPV4, 6, 4] or operation not in tuple(Operation):
        raise Refused("arp_format")
    if sender_mac[0] & _GROUP or sender_mac == NO_MAC:
        raise Refused("arp_source")
    return ArpPacket(
        Operation(operation), sender_mac, IPv4Address(sender), target_mac, IPv4Address(target)
    )
