"""Segments of TCP over IPv4 (RFC 9293, 3.1)."""

import enum
import struct
from dataclasses import dataclass
from ipaddress import IPv4Address

from stagecoach.host_driver.network.checksum import checksum
from stagecoach.host_driver.network.ipv4 import Datagram, Protocol
from stagecoach.host_driver.network.refusal import Refused

HEADER_OCTETS = 20
"""Without options."""

# Ports, sequence and acknowledgment number, data offset, flags, window, checksum, urgent pointer.
_HEADER = struct.Struct(">HHIIBBHHH")


class Flag(enum.IntFlag):
    """Control bits; those of ECN (RFC 3168) are neither set nor looked at."""

    FIN = 0x01
    SYN = 0x02
    RST = 0x04
    PSH = 0x08
    ACK = 0x10
    URG = 0x20


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment with its addresses, as RFC 9293 names its fields.

    Attributes
    ----------
    source, destination: address and port. window: the field, not scaled. options: octets, padded.
    """

    source: tuple[IPv4Address, int]
    destination: tuple[IPv4Address, int]
    sequence: int
    acknowledgment: int
    flags: int
    window: int = 0
    options: bytes = b""
    data: bytes = b""

    @property
    def length(self) -> int:
        """SEG.LEN: data, SYN and FIN."""
        return len(self.data) + bool(self.flags & Flag.SYN) + bool(self.flags & Flag.FIN)

    def encode(self) -> bytes:
        """With its checksum."""
        octets = HEADER_OCTETS + len(self.options)
        header = _HEADER.pack(
            *(self.source[1], self.destination[1], self.sequence, self.acknowledgment),
            *(octets // 4 << 4, self.flags, self.window, 0, 0),
        )
        header += self.options
        pseudo = _pseudo_header(self.source[0], self.destination[0], octets + len(self.data))
        total = checksum(pseudo, header, self.data)
        return header[:16] + total.to_bytes(2) + header[18:] + self.data


def _pseudo_header(source: IPv4Address, destination: IPv4Address, octets: int) -> bytes:
    return source.packed + destination.packed + struct.pack(">HH", Protocol.TCP, octets)


def decode(datagram: Datagram) -> Segment:
    """Raises `Refused`: `tcp_short`, `tcp_checksum`, `tcp_data_offset`, `tcp_port`."""
    octets = datagram.payload
    if len(octets) < HEADER_OCTETS:
        raise Refused("tcp_short")
    if checksum(_pseudo_header(datagram.source, datagram.destination, len(octets)), octets):
        raise Refused("tcp_checksum")
    (source, destination, sequence, acknowledgment, offset, flags, window, _, _) = (
        _HEADER.unpack_from(octets)
    )
    data = (offset >> 4) * 4
    if not HEADER_OCTETS <= data <= len(octets):
        raise Refused("tcp_data_offset")
    if not source or not destination:
        raise Refused("tcp_port")
    options, rest = octets[HEADER_OCTETS:data], octets[data:]
    ends = (datagram.source, source), (datagram.destination, destination)
    return Segment(*ends, sequence, acknowledgment, flags, window, options, rest)
