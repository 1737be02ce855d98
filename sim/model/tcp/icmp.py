"""ICMP errors (RFC 792) about segments that a host sent, and the echo of RFC 1122, 3.2.2.6."""

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address

from stagecoach.sim.model.tcp.checksum import checksum
from stagecoach.sim.model.tcp.malformed import MalformedError, Reason

PROTOCOL = 1
ECHO_REPLY, UNREACHABLE, SOURCE_QUENCH, ECHO, TIME_EXCEEDED, PARAMETER_PROBLEM = 0, 3, 4, 8, 11, 12
# Codes of UNREACHABLE.
PROTOCOL_UNREACHABLE, PORT_UNREACHABLE, FRAGMENTATION_NEEDED = 2, 3, 4
HEADER_OCTETS = 8
# RFC 792: an error quotes so much of the packet's data.
QUOTED_OCTETS = 8
_ERRORS = (UNREACHABLE, SOURCE_QUENCH, TIME_EXCEEDED, PARAMETER_PROBLEM)
_IPV4_OCTETS = 20


@dataclass(frozen=True)
class IcmpError:
    """An error: what it says, and of which segment.

    ``next_hop`` is the MTU that FRAGMENTATION_NEEDED names (RFC 1191, 4), ``length`` the total
    length of the packet that is quoted, ``sequence`` its SEG.SEQ.
    """

    type: int
    code: int
    source: IPv4Address
    destination: IPv4Address
    source_port: int
    destination_port: int
    sequence: int
    length: int = 0
    next_hop: int = 0
    protocol: int = 6

    @classmethod
    def decode(cls, octets: bytes) -> "IcmpError | None":
        """The error in an ICMP message, None for a message of another type, which is ignored.

        Raises :class:`MalformedError`.
        """
        if len(octets) < HEADER_OCTETS:
            raise MalformedError(Reason.ICMP_SHORT, f"{len(octets)} bytes")
        if checksum(octets):
            raise MalformedError(Reason.ICMP_CHECKSUM, f"field {octets[2:4].hex()}")
        kind, code = octets[0], octets[1]
        if kind not in _ERRORS:
            return None
        quoted = octets[HEADER_OCTETS:]
        header = (quoted[0] & 15) * 4 if quoted else 0
        whole = len(quoted) >= max(header, _IPV4_OCTETS) + QUOTED_OCTETS
        if not whole or quoted[0] >> 4 != 4 or header < _IPV4_OCTETS:
            raise MalformedError(Reason.ICMP_QUOTE, f"{len(quoted)} bytes quoted")
        source, destination = IPv4Address(quoted[12:16]), IPv4Address(quoted[16:20])
        source_port, destination_port, sequence = struct.unpack_from(">HHI", quoted, header)
        (length,) = struct.unpack_from(">H", quoted, 2)
        (next_hop,) = struct.unpack_from(">H", octets, 6)
        needed = (kind, code) == (UNREACHABLE, FRAGMENTATION_NEEDED)
        ends = source, destination, source_port, destination_port
        return cls(kind, code, *ends, sequence, length, next_hop if needed else 0, quoted[9])


def error_about(packet: bytes, kind: int, code: int, next_hop: int = 0) -> bytes:
    """The ICMP message that quotes an IPv4 packet: its header and the first 8 bytes of its data.

    ``next_hop`` is the MTU for FRAGMENTATION_NEEDED.
    """
    header = (packet[0] & 15) * 4
    return _message(kind, code, struct.pack(">HH", 0, next_hop) + packet[: header + QUOTED_OCTETS])


def echo_reply(octets: bytes) -> bytes | None:
    """The answer to an echo request: all of its data (RFC 792). None for other messages."""
    if len(octets) < HEADER_OCTETS or octets[0] != ECHO or checksum(octets):
        return None
    return _message(ECHO_REPLY, 0, octets[4:])


def _message(kind: int, code: int, rest: bytes) -> bytes:
    octets = bytes((kind, code, 0, 0)) + rest
    return octets[:2] + checksum(octets).to_bytes(2, "big") + rest
