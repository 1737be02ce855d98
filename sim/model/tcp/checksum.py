"""The Internet checksum (RFC 1071) and its incremental update (RFC 1624)."""


def ones_complement_sum(octets: bytes) -> int:
    """16-bit one's complement sum; an odd last byte is padded with zero (RFC 1071, 1)."""
    if len(octets) % 2:
        octets += b"\0"
    # 2^16 is 1 modulo 2^16 - 1: all bytes as one number have the same rest as the sum of words,
    # which is 0 only if they all are.
    number = int.from_bytes(octets, "big")
    return number % 0xFFFF or (0xFFFF if number else 0)


def checksum(octets: bytes) -> int:
    """What goes into the checksum field, computed while that field is zero."""
    return ones_complement_sum(octets) ^ 0xFFFF


def update(old_checksum: int, old_word: int, new_word: int) -> int:
    """The checksum after one 16-bit word of the data changed (RFC 1624, equation 3)."""
    return _fold((old_checksum ^ 0xFFFF) + (old_word ^ 0xFFFF) + new_word) ^ 0xFFFF


def _fold(total: int) -> int:
    """Add the carries back until 16 bits are left."""
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total
