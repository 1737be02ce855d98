"""Finds the TCP segments in packets of the usual kinds of link."""

import ipaddress
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from stagecoach.sim.capture.file import CaptureError, Packet

Address = tuple[str, int]

FLAG_FIN, FLAG_SYN, FLAG_RST, FLAG_ACK = 0x01, 0x02, 0x04, 0x10

_PROTOCOL_TCP = 6
_TCP_OCTETS = 20
_IPV4_OCTETS = 20
_IPV6_OCTETS = 40
# Hop-by-hop options, routing header, destination options: 8 bytes and more by their length field.
_IPV6_EXTENSIONS = {0, 43, 60}
_FRAGMENT_MASK = 0x3FFF
ETHERTYPE_IPV4, ETHERTYPE_IPV6 = 0x0800, 0x86DD
_VLAN_TAGS = {0x8100, 0x88A8}
_VLAN_OCTETS = 4
# Link types (pcap-linktype): header bytes and where in them the EtherType is; without one the
# packet starts with IP, whose version tells which.
_LINKS_WITH_ETHERTYPE = {
    1: (14, 12),  # Ethernet
    113: (16, 14),  # Linux cooked
    276: (20, 0),  # Linux cooked, version 2
}
_LINKS_WITHOUT_ETHERTYPE = {
    0: 4,  # BSD loopback
    12: 0,  # raw IP
    14: 0,  # raw IP
    101: 0,  # raw IP
    108: 4,  # OpenBSD loopback
    228: 0,  # IPv4
    229: 0,  # IPv6
}


@dataclass(frozen=True)
class Segment:
    """A TCP segment; ``missing`` bytes at the end of its payload were not captured."""

    packet: int
    time_ns: int
    source: Address
    destination: Address
    sequence: int
    flags: int
    payload: bytes
    missing: int = 0


def tcp_segments(packets: Iterator[Packet]) -> Iterator[Segment]:
    """The TCP segments among the packets; other packets and fragments of IP are left out.

    Raises :class:`CaptureError` for a kind of link that is not known.
    """
    for packet in packets:
        ip = _network_layer(packet)
        if not ip:
            continue
        found = _ipv4(ip) if ip[0] >> 4 == 4 else _ipv6(ip)
        if found is None:
            continue
        source, destination, length, tcp = found
        if len(tcp) < _TCP_OCTETS:
            continue
        source_port, destination_port, sequence = struct.unpack_from(">HHI", tcp)
        offset = (tcp[12] >> 4) * 4
        # The length of IP leaves out what Ethernet padded. With segmentation offload it may be
        # zero: then all of the packet is meant.
        total = length or len(tcp) + packet.original - len(packet.octets)
        payload = tcp[offset:total]
        yield Segment(
            packet.number,
            packet.time_ns,
            (source, source_port),
            (destination, destination_port),
            sequence,
            tcp[13],
            payload,
            max(total - offset - len(payload), 0),
        )


def _network_layer(packet: Packet) -> bytes:
    """The packet from its IP header on; nothing if it has none."""
    octets = packet.octets
    if packet.linktype in _LINKS_WITHOUT_ETHERTYPE:
        ip = octets[_LINKS_WITHOUT_ETHERTYPE[packet.linktype] :]
        return ip if ip[:1] and ip[0] >> 4 in (4, 6) else b""
    if packet.linktype not in _LINKS_WITH_ETHERTYPE:
        known = sorted(_LINKS_WITH_ETHERTYPE | _LINKS_WITHOUT_ETHERTYPE)
        raise CaptureError(
            f"packet {packet.number} has link type {packet.linktype}; "
            f"known: {', '.join(map(str, known))}"
        )
    header, place = _LINKS_WITH_ETHERTYPE[packet.linktype]
    ethertype = int.from_bytes(octets[place : place + 2], "big")
    while ethertype in _VLAN_TAGS:
        ethertype = int.from_bytes(octets[header + 2 : header + 4], "big")
        header += _VLAN_OCTETS
    return octets[header:] if ethertype in (ETHERTYPE_IPV4, ETHERTYPE_IPV6) else b""


_Found = tuple[str, str, int, bytes]


def _ipv4(ip: bytes) -> _Found | None:
    """Source, destination, bytes of TCP by the IP header (0: not told), and TCP."""
    if len(ip) < _IPV4_OCTETS:
        return None
    header = (ip[0] & 0x0F) * 4
    total = int.from_bytes(ip[2:4], "big")
    if ip[9] != _PROTOCOL_TCP or int.from_bytes(ip[6:8], "big") & _FRAGMENT_MASK:
        return None
    source, destination = (str(ipaddress.IPv4Address(ip[n : n + 4])) for n in (12, 16))
    return source, destination, max(total - header, 0), ip[header:]


def _ipv6(ip: bytes) -> _Found | None:
    if len(ip) < _IPV6_OCTETS:
        return None
    total = int.from_bytes(ip[4:6], "big")
    kind, header = ip[6], _IPV6_OCTETS
    while kind in _IPV6_EXTENSIONS and len(ip) > header + 1:
        kind, header = ip[header], header + 8 * (ip[header + 1] + 1)
    if kind != _PROTOCOL_TCP:
        return None
    source, destination = (str(ipaddress.IPv6Address(ip[n : n + 16])) for n in (8, 24))
    return source, destination, max(total - (header - _IPV6_OCTETS), 0), ip[header:]
