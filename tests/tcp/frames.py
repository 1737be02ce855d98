"""Frames for the receive front, and what has to become of them."""

from random import Random

from stagecoach.gateware.ethernet.layouts import FrameFate
from stagecoach.sim.model.tcp import ipv4
from stagecoach.sim.model.tcp.checksum import checksum
from stagecoach.sim.model.tcp.malformed import MalformedError, Reason
from stagecoach.sim.model.tcp.segment import Segment, decode_packet

MAC = bytes.fromhex("020000000002")
PEER = bytes.fromhex("020000000001")
MTU = 1500
IPV4, ARP = b"\x08\x00", b"\x08\x06"


class NotJudgedError(Exception):
    """The reference refuses what the gateware leaves alone: a source route."""


def fate_of(frame: bytes, mtu: int = MTU) -> FrameFate:
    """By the reference model, after the checks of RFC 894 that stand here."""
    own, group = frame[:6] == MAC, bool(frame[0] & 1) if frame else False
    if len(frame) > mtu + 14:
        return FrameFate.LONG
    if len(frame) < 14:
        return FrameFate.SHORT
    if not (own or group) or frame[6] & 1:
        return FrameFate.ADDRESS
    if frame[12:14] == ARP:
        return FrameFate.RAW
    if frame[12:14] != IPV4:
        return FrameFate.ETHERTYPE
    try:
        packet = ipv4.Packet.decode(frame[14:])
        if packet.protocol != ipv4.PROTOCOL_TCP:
            return FrameFate.RAW
        if not own:
            return FrameFate.IP_DESTINATION
        decode_packet(frame[14:])
    except MalformedError as error:
        if error.reason is Reason.IP_SOURCE_ROUTE:
            raise NotJudgedError from None
        return FrameFate[error.reason.name]
    return FrameFate.SEGMENT


def record_of(frame: bytes) -> dict[str, object]:
    """The record of a good segment, by the reference model."""
    packet, segment = decode_packet(frame[14:])
    payload = len(segment.payload)
    total = int.from_bytes(frame[16:18], "big")
    return {
        "raw": 0,
        "octets": len(frame),
        "header": 14 + total - payload,
        "payload": payload,
        "key": {
            "local": int(packet.destination),
            "remote": int(packet.source),
            "local_port": segment.destination_port,
            "remote_port": segment.source_port,
        },
        "sequence": segment.sequence,
        "acknowledgment": segment.acknowledgment,
        "flags": int(segment.flags),
        "window": segment.window,
        "congestion": packet.service & 3,
    }


def random_frame(rng: Random) -> bytes:
    """A good segment with any options of IP and TCP, and any padding."""
    ports = rng.randrange(1, 65536), rng.randrange(1, 65536)
    numbers = rng.getrandbits(32), rng.getrandbits(32)
    payload = rng.randbytes(rng.choice([0, 1, 2, 3, rng.randrange(64), rng.randrange(600)]))
    plain = Segment(*ports, *numbers, window=rng.getrandbits(16)).encode(_SOURCE, _DESTINATION)
    options = rng.randbytes(4 * rng.choice([0, 0, rng.randrange(11)]))
    offset = 5 + len(options) // 4
    octets = plain[:12] + bytes([offset << 4, rng.getrandbits(8)]) + plain[14:20]
    octets += options + payload
    return datagram(rng, summed(octets), 4 * rng.choice([0, 0, rng.randrange(11)]))


def summed(octets: bytes) -> bytes:
    """Octets of TCP with the right checksum, if they have one."""
    if len(octets) < 18:
        return octets
    cleared = octets[:16] + bytes(2) + octets[18:]
    pseudo = _SOURCE.packed + _DESTINATION.packed + b"\0\6" + len(octets).to_bytes(2, "big")
    return octets[:16] + checksum(pseudo + cleared).to_bytes(2, "big") + octets[18:]


def datagram(rng: Random, octets: bytes, options: int, protocol: int = 6) -> bytes:
    """A frame with an IPv4 packet; options of one octet, which mean nothing."""
    header = bytearray([0x45 + options // 4, rng.getrandbits(8)])
    header += (20 + options + len(octets)).to_bytes(2, "big") + rng.randbytes(2)
    header += bytes([rng.choice([0, 0x40]), 0, rng.getrandbits(8), protocol, 0, 0])
    header += _SOURCE.packed + _DESTINATION.packed
    header += bytes(1 for _ in range(options))
    header[10:12] = checksum(bytes(header)).to_bytes(2, "big")
    return MAC + PEER + IPV4 + bytes(header) + octets + rng.randbytes(rng.choice([0, 0, 7, 20]))


_SOURCE, _DESTINATION = ipv4.IPv4Address("192.0.2.1"), ipv4.IPv4Address("192.0.2.2")


def broken(rng: Random, frame: bytes) -> bytes:
    """The frame with something wrong, or not: bits, octets, its length."""
    octets = bytearray(frame)
    kind = rng.randrange(6)
    if kind == 0:
        at = rng.randrange(len(octets))
        octets[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        octets[rng.randrange(14, 40)] = rng.getrandbits(8)
    elif kind == 2:
        del octets[rng.randrange(1, len(octets)) :]
    elif kind == 3:
        octets += rng.randbytes(rng.choice([1, 8, MTU + 14 - len(octets), MTU + 15 - len(octets)]))
    elif kind == 4:
        # A field of the header, and its checksum made right again.
        octets[rng.choice([14, 16, 17, 20, 21, 23, 26, 30])] = rng.getrandbits(8)
        header = 4 * (octets[14] & 15)
        octets[24:26] = bytes(2)
        octets[24:26] = checksum(bytes(octets[14 : 14 + header])).to_bytes(2, "big")
    else:
        octets[rng.randrange(14)] ^= rng.choice([1, 2, 0xFF])
    return bytes(octets)
