"""IPv4 headers (RFC 791), as far as a TCP endpoint needs them."""

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address

from stagecoach.sim.model.tcp.checksum import checksum
from stagecoach.sim.model.tcp.malformed import MalformedError, Reason

HEADER_OCTETS = 20
PROTOCOL_TCP = 6
TTL = 64
_VERSION = 4
_DONT_FRAGMENT = 0x4000
# MF and the fragment offset: not zero in each fragment.
_FRAGMENT = 0x3FFF
_LOOSE_SOURCE_ROUTE, _STRICT_SOURCE_ROUTE = 131, 137
_END_OF_OPTIONS, _NO_OPERATION = 0, 1
_BROADCAST = IPv4Address("255.255.255.255")
_HEADER = struct.Struct(">BBHHHBBH4s4s")


@dataclass(frozen=True)
class Packet:
    """An unfragmented IPv4 packet; ``service`` is DSCP and ECN."""

    source: IPv4Address
    destination: IPv4Address
    payload: bytes
    protocol: int = PROTOCOL_TCP
    service: int = 0
    identification: int = 0
    ttl: int = TTL

    def encode(self) -> bytes:
        """The packet with DF set and no options.

        Raises ``ValueError`` for a payload that does not fit the total length.
        """
        total = HEADER_OCTETS + len(self.payload)
        if total > 0xFFFF:
            raise ValueError(f"{len(self.payload)} bytes of payload (at most {0xFFFF - 20})")
        fields = (self.identification, _DONT_FRAGMENT, self.ttl, self.protocol)
        ends = (self.source.packed, self.destination.packed)
        header = _HEADER.pack(0x45, self.service, total, *fields, 0, *ends)
        return header[:10] + checksum(header).to_bytes(2, "big") + header[12:] + self.payload

    @classmethod
    def decode(cls, octets: bytes) -> "Packet":
        """The packet at the start of ``octets``; what Ethernet padded after it is left out.

        Raises :class:`MalformedError`.
        """
        if len(octets) < HEADER_OCTETS:
            raise MalformedError(Reason.IP_SHORT, f"{len(octets)} bytes")
        first, service, total, identification, fragment, ttl, protocol, _, source, destination = (
            _HEADER.unpack_from(octets)
        )
        if first >> 4 != _VERSION:
            raise MalformedError(Reason.IP_VERSION, f"version {first >> 4}")
        header = (first & 15) * 4
        if not HEADER_OCTETS <= header <= len(octets):
            raise MalformedError(Reason.IP_HEADER_LENGTH, f"IHL {first & 15}")
        if checksum(octets[:header]):
            raise MalformedError(Reason.IP_CHECKSUM, f"field {octets[10:12].hex()}")
        if not header <= total <= len(octets):
            raise MalformedError(Reason.IP_TOTAL_LENGTH, f"{total} in {len(octets)} bytes")
        if fragment & _FRAGMENT:
            raise MalformedError(Reason.IP_FRAGMENT, f"flags and offset {fragment:04x}")
        _refuse_source_routes(octets[HEADER_OCTETS:header])
        if not is_host(IPv4Address(source)):
            raise MalformedError(Reason.IP_SOURCE, str(IPv4Address(source)))
        ends = IPv4Address(source), IPv4Address(destination)
        return cls(*ends, octets[header:total], protocol, service, identification, ttl)


def is_host(address: IPv4Address) -> bool:
    """Whether a packet may come from here: RFC 1122, 3.2.1.3."""
    # 0/8, 127/8, 224/4 and 240/4.
    return address.packed[0] not in (0, 127) and address.packed[0] < 224


def is_single(address: IPv4Address) -> bool:
    """Whether it is neither the limited broadcast nor a multicast address."""
    return not address.is_multicast and address != _BROADCAST


def _refuse_source_routes(options: bytes) -> None:
    """Walk through the options; all but source routes are skipped."""
    at = 0
    while at < len(options) and options[at] != _END_OF_OPTIONS:
        if options[at] == _NO_OPERATION:
            at += 1
            continue
        if options[at] in (_LOOSE_SOURCE_ROUTE, _STRICT_SOURCE_ROUTE):
            raise MalformedError(Reason.IP_SOURCE_ROUTE, f"option {options[at]}")
        if at + 1 == len(options) or options[at + 1] < 2:
            return
        at += options[at + 1]
