"""Initial sequence numbers (RFC 6528) by SipHash-2-4 (Aumasson and Bernstein, 2012)."""

import struct
from ipaddress import IPv4Address

from stagecoach.sim.model.tcp.sequence import SPACE

KEY_OCTETS = 16
# RFC 9293, 3.4.1: the clock of M ticks every 4 microseconds.
_TICK_US = 4
_MASK = (1 << 64) - 1
_INITIAL = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)


def initial_sequence(
    key: bytes, local: tuple[IPv4Address, int], remote: tuple[IPv4Address, int], now: int
) -> int:
    """M + F(local address, remote address, local port, remote port, key).

    ``now`` is in microseconds; M is a clock of 4 microseconds, F the low 32 bits of SipHash.
    """
    ports = struct.pack(">HH", local[1], remote[1])
    return (now // _TICK_US + siphash(key, local[0].packed + remote[0].packed + ports)) % SPACE


def siphash(key: bytes, octets: bytes) -> int:
    """SipHash-2-4, 64 bits. Raises ``ValueError`` for a key that is not of 16 bytes."""
    if len(key) != KEY_OCTETS:
        raise ValueError(f"key of {len(key)} bytes (expected {KEY_OCTETS})")
    keys = struct.unpack("<QQ", key) * 2
    state = [half ^ constant for half, constant in zip(keys, _INITIAL, strict=True)]
    whole = len(octets) // 8 * 8
    words = [word for (word,) in struct.iter_unpack("<Q", octets[:whole])]
    last = octets[whole:].ljust(7, b"\0") + bytes([len(octets) % 256])
    for word in [*words, int.from_bytes(last, "little")]:
        state[3] ^= word
        _rounds(state, 2)
        state[0] ^= word
    state[2] ^= 0xFF
    _rounds(state, 4)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _rounds(v: list[int], count: int) -> None:
    """SipRound, ``count`` times."""
    for _ in range(count):
        for a, b, turn, other in ((0, 1, 13, 32), (2, 3, 16, 0), (0, 3, 21, 0), (2, 1, 17, 32)):
            v[a] = (v[a] + v[b]) & _MASK
            v[b] = _rotate(v[b], turn) ^ v[a]
            v[a] = _rotate(v[a], other)


def _rotate(word: int, count: int) -> int:
    return (word << count | word >> (64 - count)) & _MASK
