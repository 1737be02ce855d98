"""IPv4 datagrams (RFC 791), which are never fragments here."""

import enum
import struct
from dataclasses import dataclass
from ipaddress import IPv4Address

from stagecoach.host_driver.network.checksum import checksum
from stagecoach.host_driver.network.refusal import Refused

HEADER_OCTETS = 20
"""Without options, as this end sends them."""

DEFAULT_TTL = 64

# Version and IHL, DSCP and ECN, total length, identification, flags and offset, TTL, protocol,
# checksum, source, destination.
_HEADER = struct.Struct(">BBHHHBBH4s4s")
_VERSION = 4
_DONT_FRAGMENT = 0x4000
# More fragments, and the offset.
_FRAGMENT = 0x3FFF

# Options of one byte, and the two kinds of source route (3.1).
_END, _NOP = 0, 1
_SOURCE_ROUTES = (131, 137)


class Protocol(enum.IntEnum):
    """What a datagram carries."""

    ICMP = 1
    TCP = 6


@dataclass(frozen=True, slots=True)
class Datagram:
    """One datagram.

    Attributes
    ----------
    protocol: a number, not only of `Protocol`. service: DSCP and ECN of one that is sent.
    header: all bytes before the payload as they came, empty in one that is sent.
    """

    source: IPv4Address
    destination: IPv4Address
    protocol: int
    payload: bytes
    ttl: int = DEFAULT_TTL
    header: bytes = b""
    service: int = 0

    def encode(self) -> bytes:
        """With DF set, so that the identification has no meaning (RFC 6864, 4.1)."""
        length = HEADER_OCTETS + len(self.payload)
        header = _HEADER.pack(
            *(_VERSION << 4 | HEADER_OCTETS // 4, self.service, length, 0, _DONT_FRAGMENT),
            *(self.ttl, self.protocol, 0, self.source.packed, self.destination.packed),
        )
        return header[:10] + checksum(header).to_bytes(2) + header[12:] + self.payload


def decode(octets: bytes) -> Datagram:
    """What comes after the total length is padding. Raises `Refused`.

    Options are passed over, but for source routes.
    """
    if len(octets) < HEADER_OCTETS:
        raise Refused("ip_short")
    (version, _, length, _, flags, ttl, protocol, _, source, destination) = _HEADER.unpack_from(
        octets
    )
    if version >> 4 != _VERSION:
        raise Refused("ip_version")
    header_octets = (version & 0xF) * 4
    if not HEADER_OCTETS <= header_octets <= len(octets):
        raise Refused("ip_header_length")
    header = octets[:header_octets]
    if checksum(header):
        raise Refused("ip_checksum")
    if not header_octets <= length <= len(octets):
        raise Refused("ip_total_length")
    if flags & _FRAGMENT:
        raise Refused("ip_fragment")
    if header_octets > HEADER_OCTETS and _has_source_route(header[HEADER_OCTETS:]):
        raise Refused("ip_source_route")
    return Datagram(
        *(IPv4Address(source), IPv4Address(destination), protocol),
        *(octets[header_octets:length], ttl, header),
    )


def _has_source_route(options: bytes) -> bool:
    place = 0
    while place < len(options):
        kind = options[place]
        if kind in _SOURCE_ROUTES:
            return True
        if kind == _END:
            return False
        if kind == _NOP:
            place += 1
            continue
        length = options[place + 1] if place + 1 < len(options) else 0
        if length < 2:
            return False  # nothing after it can be found
        place += length
    return False
