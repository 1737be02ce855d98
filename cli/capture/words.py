"""A frame's headers in a line, as tcpdump has them. Whatever the bytes are, it is a line."""

import struct
from ipaddress import IPv4Address

_ETHERNET, _IPV4, _TCP = 14, 20, 20
_FLAGS = ((2, "S"), (1, "F"), (4, "R"), (8, "P"), (32, "U"), (16, "."))
_TYPES = {0x8100: "VLAN", 0x86DD: "IPv6", 0x8808: "PAUSE"}
_ICMP = {0: "echo reply", 3: "unreachable", 8: "echo request", 11: "time exceeded"}


def frame_in_words(head: bytes) -> str:
    """What the first bytes of an Ethernet frame say."""
    if len(head) < _ETHERNET:
        return "no whole Ethernet header"
    kind = int.from_bytes(head[12:14])
    if kind == 0x0806:
        return _arp(head[_ETHERNET:])
    if kind == 0x0800:
        return _ipv4(head[_ETHERNET:])
    return f"{_TYPES.get(kind, f'EtherType {kind:04x}')} {_mac(head[6:12])} > {_mac(head[:6])}"


def _mac(octets: bytes) -> str:
    return octets.hex(":")


def _arp(packet: bytes) -> str:
    if len(packet) < 28:
        return "ARP, short"
    operation = int.from_bytes(packet[6:8])
    sender, target = (IPv4Address(packet[at : at + 4]) for at in (14, 24))
    if operation == 1:
        return f"ARP who has {target}? tell {sender}"
    if operation == 2:
        return f"ARP {sender} is at {_mac(packet[8:14])}"
    return f"ARP operation {operation} of {sender}"


def _ipv4(packet: bytes) -> str:
    if len(packet) < _IPV4 or packet[0] >> 4 != 4:
        return "IP, short or of another version"
    header = (packet[0] & 0xF) * 4
    length, fragment, protocol = int.from_bytes(packet[2:4]), packet[6:8], packet[9]
    source, destination = (str(IPv4Address(packet[at : at + 4])) for at in (12, 16))
    inside = packet[max(header, _IPV4) :]
    if int.from_bytes(fragment) & 0x3FFF:
        return f"IP {source} > {destination}: fragment, protocol {protocol}"
    if protocol == 6 and len(inside) >= _TCP:
        return _tcp(source, destination, inside, length - header)
    if protocol == 1 and inside:
        what = _ICMP.get(inside[0], f"type {inside[0]}")
        return f"IP {source} > {destination}: ICMP {what}, length {length - header}"
    return f"IP {source} > {destination}: protocol {protocol}, length {length - header}"


def _tcp(source: str, destination: str, segment: bytes, length: int) -> str:
    from_port, to_port, sequence, acknowledged, offset, flags, window = struct.unpack_from(
        ">HHIIBBH", segment
    )
    octets = length - (offset >> 4) * 4
    letters = "".join(letter for bit, letter in _FLAGS if flags & bit)
    range_ = f"{sequence}:{(sequence + octets) % 2**32}" if octets > 0 else f"{sequence}"
    ack = f" ack {acknowledged}" if flags & 16 else ""
    return (
        f"IP {source}:{from_port} > {destination}:{to_port}: [{letters}] seq {range_}{ack} "
        f"win {window} length {octets}"
    )
