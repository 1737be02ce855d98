"""Initial sequence numbers (RFC 6528): a clock of 4 microseconds, and SipHash-2-4 of the ends.

SipHash is that of Aumasson and Bernstein (2012), with a result of 64 bits.
"""

import secrets
import struct
from ipaddress import IPv4Address

from stagecoach.host_driver.network.sequence import SPACE

KEY_OCTETS = 16

_TICK_US = 4  # RFC 9293, 3.4.1
_WORD = (1 << 64) - 1
# "somepseudorandomlygeneratedbytes"
_V0, _V1, _V2, _V3 = struct.unpack(">4Q", b"somepseudorandomlygeneratedbytes")


class SequenceNumbers:
    """Chooses ISS; the key is from the system's source of randomness and is told to nobody."""

    def __init__(self, key: bytes | None = None):
        self._key = secrets.token_bytes(KEY_OCTETS) if key is None else key

    def choose(
        self, local: tuple[IPv4Address, int], remote: tuple[IPv4Address, int], now_us: int
    ) -> int:
        """M + F(local address, remote address, local port, remote port, key)."""
        ends = local[0].packed + remote[0].packed + struct.pack(">HH", local[1], remote[1])
        return (now_us // _TICK_US + siphash(self._key, ends)) % SPACE


def siphash(key: bytes, octets: bytes) -> int:
    """SipHash-2-4. Raises `ValueError` for a key that has not 16 bytes."""
    if len(key) != KEY_OCTETS:
        raise ValueError(f"key of {len(key)} bytes; allowed: {KEY_OCTETS}")
    first, second = struct.unpack("<2Q", key)
    v = (_V0 ^ first, _V1 ^ second, _V2 ^ first, _V3 ^ second)
    # The last word ends with the number of bytes.
    padded = octets + bytes(-(len(octets) + 1) % 8) + bytes((len(octets) % 256,))
    for (word,) in struct.iter_unpack("<Q", padded):
        a, b, c, d = _round(*_round(*v[:3], v[3] ^ word))
        v = (a ^ word, b, c, d)
    a, b, c, d = v
    a, b, c, d = _round(*_round(*_round(*_round(a, b, c ^ 0xFF, d))))
    return a ^ b ^ c ^ d


def _round(a: int, b: int, c: int, d: int) -> tuple[int, int, int, int]:
    a = (a + b) & _WORD
    c = (c + d) & _WORD
    b = a ^ (b << 13 & _WORD | b >> 51)
    d = c ^ (d << 16 & _WORD | d >> 48)
    a = a << 32 & _WORD | a >> 32
    c = (c + b) & _WORD
    a = (a + d) & _WORD
    b = c ^ (b << 17 & _WORD | b >> 47)
    d = a ^ (d << 21 & _WORD | d >> 43)
    c = c << 32 & _WORD | c >> 32
    return a, b, c, d
