"""ICMP messages (RFC 792, RFC 1191): echo, and errors with the datagram that they quote."""

import enum
import struct
from dataclasses import dataclass
from ipaddress import IPv4Address

from stagecoach.host_driver.network.checksum import checksum
from stagecoach.host_driver.network.refusal import Refused

# Type, code, checksum, and four bytes whose meaning depends on the type.
_HEADER = struct.Struct(">BBHHH")

# Of what an error quotes: an IPv4 header, then ports and sequence number of TCP.
_LEAST_QUOTED = 20
_QUOTED_TCP = struct.Struct(">HHI")


class Kind(enum.IntEnum):
    """The types that are understood."""

    ECHO_REPLY = 0
    UNREACHABLE = 3
    SOURCE_QUENCH = 4
    REDIRECT = 5
    ECHO = 8
    TIME_EXCEEDED = 11
    PARAMETER_PROBLEM = 12


class Unreachable(enum.IntEnum):
    """Codes of `Kind.UNREACHABLE`; others are those of routers."""

    NET = 0
    HOST = 1
    PROTOCOL = 2
    PORT = 3
    FRAGMENTATION_NEEDED = 4
    SOURCE_ROUTE_FAILED = 5


ERRORS = (
    *(Kind.UNREACHABLE, Kind.SOURCE_QUENCH, Kind.REDIRECT),
    *(Kind.TIME_EXCEEDED, Kind.PARAMETER_PROBLEM),
)
"""No error is ever sent about one of these (RFC 1122, 3.2.2)."""

QUOTE_OCTETS = 8
"""Of the payload of a datagram that an error is about, after its header."""


@dataclass(frozen=True, slots=True)
class IcmpMessage:
    """One message.

    Attributes
    ----------
    kind: a number, not only of `Kind`. first, second: the two fields of 16 bits after the
        checksum: identifier and sequence number of an echo; the latter is the next-hop MTU of
        `FRAGMENTATION_NEEDED`. body: data of an echo, or what an error quotes.
    """

    kind: int
    code: int
    first: int
    second: int
    body: bytes

    def encode(self) -> bytes:
        """With its checksum."""
        header = _HEADER.pack(self.kind, self.code, 0, self.first, self.second)
        total = checksum(header, self.body)
        return _HEADER.pack(self.kind, self.code, total, self.first, self.second) + self.body


def decode(octets: bytes) -> IcmpMessage:
    """Raises `Refused`: `icmp_short`, `icmp_checksum`."""
    if len(octets) < _HEADER.size:
        raise Refused("icmp_short")
    if checksum(octets):
        raise Refused("icmp_checksum")
    kind, code, _, first, second = _HEADER.unpack_from(octets)
    return IcmpMessage(kind, code, first, second, octets[_HEADER.size :])


@dataclass(frozen=True, slots=True)
class Quoted:
    """The segment that an error is about: this end sent it. `length` is its total length."""

    local: tuple[IPv4Address, int]
    remote: tuple[IPv4Address, int]
    sequence: int
    length: int


def quoted_segment(message: IcmpMessage) -> Quoted:
    """Raises `Refused`: `icmp_quote` unless it quotes a segment of TCP."""
    octets = message.body
    header_octets = (octets[0] & 0xF) * 4 if octets else 0
    ports = octets[header_octets : header_octets + _QUOTED_TCP.size]
    if (
        header_octets < _LEAST_QUOTED
        or len(ports) < _QUOTED_TCP.size
        or octets[0] >> 4 != 4
        or octets[9] != 6
    ):
        raise Refused("icmp_quote")
    local_port, remote_port, sequence = _QUOTED_TCP.unpack(ports)
    return Quoted(
        (IPv4Address(octets[12:16]), local_port),
        (IPv4Address(octets[16:20]), remote_port),
        sequence,
        int.from_bytes(octets[2:4]),
    )
