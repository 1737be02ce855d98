"""ARP and echo requests, their answers by RFC 826 and RFC 792, and frames that are none."""

import struct
from ipaddress import IPv4Address
from random import Random

from stagecoach.sim.model.tcp.checksum import checksum
from tests.tcp.frames import ARP, IPV4, MAC, PEER

HERE, THERE = IPv4Address("192.0.2.2"), IPv4Address("192.0.2.1")
BROADCAST = b"\xff" * 6
GROUP = bytes.fromhex("01005e000001")
MOST_DATA = 2003
"""Octets of the data of the longest echo that is answered."""

# Of a Linux peer (tcpdump -r arp-icmp-udp.pcap): the first two frames, and the two after them.
CAPTURED_ARP = (
    bytes.fromhex(
        "ffffffffffff02000000000108060001080006040001020000000001c0000201000000000000c0000202"
    ),
    bytes.fromhex(
        "02000000000102000000000208060001080006040002020000000002c0000202020000000001c0000201"
    ),
)
CAPTURED_ECHO = (
    bytes.fromhex(
        "02000000000202000000000108004500"
        "0054e58c40004001d118c0000201c0000202"
        "08007c31378d000145fb036b0000000030070c0000000000"
        "101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637"
    ),
    bytes.fromhex(
        "02000000000102000000000208004500"
        "0054b64700004001405ec0000202c0000201"
        "00008431378d000145fb036b0000000030070c0000000000"
        "101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637"
    ),
)


def arp_request(
    *,
    to: bytes = BROADCAST,
    mac: bytes = PEER,
    sender_mac: bytes | None = None,
    sender: IPv4Address = THERE,
    target: IPv4Address = HERE,
    operation: int = 1,
    kinds: tuple[int, int, int, int] = (1, 0x0800, 6, 4),
    padding: bytes = bytes(18),
) -> bytes:
    """As RFC 826 has it, in a frame."""
    packet = struct.pack(
        ">HHBBH6s4s6s4s",
        *(*kinds, operation, mac if sender_mac is None else sender_mac, sender.packed),
        *(bytes(6), target.packed),
    )
    return to + mac + ARP + packet + padding


def echo_request(
    data: bytes,
    *,
    to: bytes = MAC,
    mac: bytes = PEER,
    source: IPv4Address = THERE,
    destination: IPv4Address = HERE,
    kind: tuple[int, int] = (8, 0),
    service: int = 0,
    identification: int = 0x1234,
    fragment: int = 0x4000,
    ttl: int = 64,
    protocol: int = 1,
    options: bytes = b"",
    numbers: bytes = bytes.fromhex("abcd0001"),
    padding: bytes = b"",
    cut: int = 0,
) -> bytes:
    """As RFC 792 has it, in a frame; `padding` comes after the datagram.

    cut: octets by which its total length is less than it should be.
    """
    message = bytes(kind) + bytes(2) + numbers + data
    message = message[:2] + checksum(message).to_bytes(2, "big") + message[4:]
    total = 20 + len(options) + len(message) - cut
    header = struct.pack(
        ">BBHHHBBH4s4s",
        *(0x45 + len(options) // 4, service, total, identification, fragment, ttl, protocol, 0),
        *(source.packed, destination.packed),
    )
    header += options
    header = header[:10] + checksum(header).to_bytes(2, "big") + header[12:]
    return to + mac + IPV4 + header + message + padding


def echo_message(frame: bytes) -> bytes:
    """The ICMP message of a frame, without padding."""
    return frame[14 + 4 * (frame[14] & 15) : 14 + int.from_bytes(frame[16:18], "big")]


def answer_to(frame: bytes, address: IPv4Address = HERE) -> bytes | None:
    """The answer that this station gives by itself, if there is one. The frame passes all checks of
    Ethernet and IPv4."""
    if len(frame) < 42:
        return None
    if frame[12:14] == ARP:
        *kinds, sender_mac, sender, _, target = struct.unpack(">HHBBH6s4s6s4s", frame[14:42])
        is_request = kinds == [1, 0x0800, 6, 4, 1] and target == address.packed
        if not is_request or sender_mac != frame[6:12] or sender in (bytes(4), address.packed):
            return None
        reply = struct.pack(">HHBBH", *kinds[:4], 2) + MAC + target + sender_mac + sender
        return sender_mac + MAC + ARP + reply
    message = echo_message(frame)
    header = bytearray(frame[14:34])
    if (
        frame[:6] != MAC
        or header[0] != 0x45
        or header[9] != 1
        or header[16:20] != address.packed
        or len(message) < 8
        or len(message) - 8 > MOST_DATA
        or message[:2] != b"\x08\x00"
        or checksum(message)
    ):
        return None
    header[8] = 64
    header[12:20] = header[16:20] + header[12:16]
    header[10:12] = bytes(2)
    header[10:12] = checksum(bytes(header)).to_bytes(2, "big")
    reply = bytes(4) + message[4:]
    reply = reply[:2] + checksum(reply).to_bytes(2, "big") + reply[4:]
    return frame[6:12] + MAC + IPV4 + bytes(header) + reply


def random_request(rng: Random, most: int = 1514) -> bytes:
    """One that is answered; half of them are short."""
    source = IPv4Address(rng.randrange(1 << 24, 127 << 24))
    mac = bytes([rng.getrandbits(8) & 0xFE]) + rng.randbytes(5)
    if rng.random() < 0.3:
        to = rng.choice([BROADCAST, MAC, GROUP])
        return arp_request(to=to, mac=mac, sender=source, padding=rng.randbytes(18))
    data = rng.randbytes(rng.choice([0, 1, 2, 3, rng.randrange(64), rng.randrange(most - 41)]))
    return echo_request(
        data,
        mac=mac,
        source=source,
        service=rng.getrandbits(8),
        identification=rng.getrandbits(16),
        fragment=rng.choice([0, 0x4000]),
        ttl=rng.getrandbits(8),
        numbers=rng.randbytes(4),
        padding=rng.randbytes(max(18 - len(data), 0)),
    )


def no_requests() -> dict[str, bytes]:
    """Good frames that are for the driver, by what they are."""
    other, none = IPv4Address("192.0.2.3"), IPv4Address(0)
    wrong_sum = bytearray(echo_request(b"abcdefgh"))
    wrong_sum[45] ^= 1
    return {
        "a reply of ARP": arp_request(operation=2),
        "a probe": arp_request(sender=none),
        "an announcement": arp_request(sender=HERE),
        "ARP for another address": arp_request(target=other),
        "ARP for an address of which the upper half is right": arp_request(
            target=IPv4Address("192.0.3.2")
        ),
        "ARP for an address of which the lower half is right": arp_request(
            target=IPv4Address("192.1.2.2")
        ),
        "ARP of two MAC addresses": arp_request(sender_mac=bytes.fromhex("020000000003")),
        "ARP of a MAC address that differs in its first octet": arp_request(
            sender_mac=bytes.fromhex("060000000001")
        ),
        "ARP of other hardware": arp_request(kinds=(6, 0x0800, 6, 4)),
        "ARP of another protocol": arp_request(kinds=(1, 0x86DD, 6, 4)),
        "ARP of longer hardware addresses": arp_request(kinds=(1, 0x0800, 8, 4)),
        "ARP of longer addresses": arp_request(kinds=(1, 0x0800, 6, 16)),
        "ARP that ends early": arp_request(padding=b"")[:-1],
        "an echo reply": echo_request(b"abc", kind=(0, 0)),
        "a code": echo_request(b"abc", kind=(8, 1)),
        "a timestamp request": echo_request(b"abc", kind=(13, 0)),
        "an echo for another address": echo_request(b"abc", destination=other),
        "an echo for the other half": echo_request(b"abc", destination=IPv4Address("192.1.2.2")),
        "an echo in a frame to all": echo_request(b"abc", to=BROADCAST),
        "an echo in a frame to a group": echo_request(b"abc", to=GROUP),
        "an echo to all": echo_request(
            b"abc", to=BROADCAST, destination=IPv4Address("255.255.255.255")
        ),
        "an echo to all in a frame to one": echo_request(
            b"abc", destination=IPv4Address("255.255.255.255")
        ),
        "an echo with options": echo_request(b"abc", options=b"\x01" * 4),
        "UDP": echo_request(b"abc", protocol=17),
        "a wrong sum": bytes(wrong_sum),
        "an ICMP message that is too short": echo_request(
            b"", numbers=bytes.fromhex("abcd0000"), cut=1
        ),
    }
