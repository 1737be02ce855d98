"""The Internet checksum (RFC 1071)."""

# 2^16 is 1 modulo this, so a number modulo this is the one's complement sum of its words.
_MODULUS = 0xFFFF


def checksum(*parts: bytes) -> int:
    """The checksum of bytes with their checksum field 0, and 0 of bytes that hold it.

    Every part but the last has an even number of bytes; an odd last one is filled with a zero.
    """
    octets = b"".join(parts)
    if len(octets) % 2:
        octets += b"\0"
    value = int.from_bytes(octets)
    # Of the two zeros of one's complement, only zeros alone have the sum 0.
    total = value % _MODULUS or (_MODULUS if value else 0)
    return ~total & 0xFFFF
