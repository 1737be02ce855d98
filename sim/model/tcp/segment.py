"""TCP segments (RFC 9293, 3.1) in IPv4 packets."""

import struct
from dataclasses import dataclass, field
from enum import IntFlag
from ipaddress import IPv4Address

from stagecoach.sim.model.tcp import ipv4
from stagecoach.sim.model.tcp.checksum import checksum
from stagecoach.sim.model.tcp.malformed import MalformedError, Reason
from stagecoach.sim.model.tcp.options import Options

HEADER_OCTETS = 20
_HEADER = struct.Struct(">HHIIBBHHH")
_CHECKSUM_AT = 16


class Flags(IntFlag):
    """The control bits."""

    FIN = 0x01
    SYN = 0x02
    RST = 0x04
    PSH = 0x08
    ACK = 0x10
    URG = 0x20
    ECE = 0x40
    CWR = 0x80


NO_FLAGS = Flags(0)


@dataclass(frozen=True)
class Segment:
    """A segment: SEG.SEQ, SEG.ACK, SEG.WND (as on the wire, not scaled), flags and data."""

    source_port: int
    destination_port: int
    sequence: int
    acknowledgment: int = 0
    flags: Flags = NO_FLAGS
    window: int = 0
    payload: bytes = b""
    options: Options = field(default_factory=Options)
    urgent: int = 0

    @property
    def length(self) -> int:
        """SEG.LEN: data, and one each for SYN and FIN."""
        return len(self.payload) + (Flags.SYN in self.flags) + (Flags.FIN in self.flags)

    def encode(self, source: IPv4Address, destination: IPv4Address) -> bytes:
        """The segment with the checksum for these addresses."""
        options = self.options.encode()
        offset = (HEADER_OCTETS + len(options)) // 4 << 4
        header = _HEADER.pack(
            self.source_port,
            self.destination_port,
            self.sequence,
            self.acknowledgment,
            offset,
            self.flags,
            self.window,
            0,
            self.urgent,
        )
        octets = header + options + self.payload
        field_octets = checksum(_pseudo_header(source, destination, len(octets)) + octets)
        end = _CHECKSUM_AT + 2
        return octets[:_CHECKSUM_AT] + field_octets.to_bytes(2, "big") + octets[end:]

    @classmethod
    def decode(cls, octets: bytes, source: IPv4Address, destination: IPv4Address) -> "Segment":
        """The segment that fills ``octets``. Raises :class:`MalformedError`."""
        if len(octets) < HEADER_OCTETS:
            raise MalformedError(Reason.TCP_SHORT, f"{len(octets)} bytes")
        if checksum(_pseudo_header(source, destination, len(octets)) + octets):
            raise MalformedError(Reason.TCP_CHECKSUM, f"field {octets[16:18].hex()}")
        ports_and_numbers = _HEADER.unpack_from(octets)
        source_port, destination_port, sequence, acknowledgment = ports_and_numbers[:4]
        offset, flags, window, _, urgent = ports_and_numbers[4:]
        header = (offset >> 4) * 4
        if not HEADER_OCTETS <= header <= len(octets):
            raise MalformedError(Reason.TCP_DATA_OFFSET, f"{offset >> 4} in {len(octets)} bytes")
        if not source_port or not destination_port:
            raise MalformedError(Reason.TCP_PORT, f"{source_port} to {destination_port}")
        return cls(
            source_port,
            destination_port,
            sequence,
            acknowledgment,
            Flags(flags),
            window,
            octets[header:],
            Options.decode(octets[HEADER_OCTETS:header]),
            urgent,
        )


def encode_packet(
    segment: Segment,
    source: IPv4Address,
    destination: IPv4Address,
    dscp: int = 0,
    ttl: int = ipv4.TTL,
) -> bytes:
    """The segment in an IPv4 packet."""
    octets = segment.encode(source, destination)
    # The two bits of ECN are none of DSCP.
    return ipv4.Packet(source, destination, octets, service=dscp << 2, ttl=ttl).encode()


def decode_packet(octets: bytes) -> tuple[ipv4.Packet, Segment]:
    """The IPv4 packet and the segment in it. Raises :class:`MalformedError`."""
    packet = ipv4.Packet.decode(octets)
    if packet.protocol != ipv4.PROTOCOL_TCP:
        raise MalformedError(Reason.IP_PROTOCOL, f"protocol {packet.protocol}")
    if not ipv4.is_single(packet.destination):
        raise MalformedError(Reason.IP_DESTINATION, str(packet.destination))
    return packet, Segment.decode(packet.payload, packet.source, packet.destination)


def _pseudo_header(source: IPv4Address, destination: IPv4Address, length: int) -> bytes:
    """RFC 9293, 3.1: addresses, protocol and length are covered by the checksum."""
    return source.packed + destination.packed + struct.pack(">HH", ipv4.PROTOCOL_TCP, length)
