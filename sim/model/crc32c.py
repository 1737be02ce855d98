"""CRC32c as MPA uses it (RFC 5044, 4.4; RFC 3720, 12.1).

A CRC is linear over GF(2): the contribution of an octet depends only on its value and on its
distance from the end. A block is therefore one table lookup per octet and one XOR over all of
them, which numpy does without a Python loop.
"""

import numpy as np

# Reflected form of the polynomial 0x11EDC6F41.
POLYNOMIAL = 0x82F63B78
# Octets of one lookup; the table has 256 entries of 4 octets for each.
BLOCK = 1024
# Below this length the plain loop is faster than entering numpy.
SHORT = 24


def _octet_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _octet_table()


def _block_table() -> np.ndarray:
    """Row i: what an octet at offset i of a block of BLOCK octets adds to the remainder."""
    octet = np.array(_TABLE, dtype=np.uint32)
    rows = np.empty((BLOCK, 256), dtype=np.uint32)
    rows[BLOCK - 1] = octet
    for i in range(BLOCK - 2, -1, -1):
        rows[i] = (rows[i + 1] >> 8) ^ octet[rows[i + 1] & 0xFF]
    return rows.reshape(-1)


_ROWS = _block_table()
_ROW_START = np.arange(BLOCK, dtype=np.intp) * 256


def _short(data: bytes, state: int) -> int:
    for octet in data:
        state = (state >> 8) ^ _TABLE[(state ^ octet) & 0xFF]
    return state


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """CRC32c of ``data``: the complemented reflected register, as a 32-bit integer."""
    if len(data) < SHORT:
        return _short(bytes(data), 0xFFFFFFFF) ^ 0xFFFFFFFF
    octets = np.array(np.frombuffer(data, dtype=np.uint8), dtype=np.intp)
    state = 0xFFFFFFFF
    # The odd block comes first, so that all others use the whole table.
    start, end = 0, len(data) % BLOCK or BLOCK
    if end < 4:
        state = _short(bytes(data[:end]), state)
        start, end = end, end + BLOCK
    while start < len(data):
        block = octets[start:end]
        for i in range(4):
            block[i] ^= (state >> (8 * i)) & 0xFF
        state = int(np.bitwise_xor.reduce(_ROWS[_ROW_START[BLOCK - len(block) :] + block]))
        start, end = end, end + BLOCK
    return state ^ 0xFFFFFFFF


def crc32c_octets(data: bytes | bytearray | memoryview) -> bytes:
    """The CRC field as it goes on the wire: least significant octet of the register first."""
    return crc32c(data).to_bytes(4, "little")
