"""CRC32c over 32 or 64 bits in one step (RFC 5044, 4.4; RFC 3720, 12.1).

The register is the reflected one, so that octet i of a word is bits [8i+7:8i] as everywhere. On the
wire the complement of the register follows the data, least significant octet first: the CRC field
as a 32-bit little-endian lane value is `~state`.
"""

from amaranth.hdl import Cat, Value

POLYNOMIAL = 0x82F63B78
"""0x11EDC6F41 with its bits reflected, without the highest one."""

INITIAL_STATE = 0xFFFFFFFF
STATE_BITS = 32


def _shift(word: int, bits: int) -> int:
    for _ in range(bits):
        word = (word >> 1) ^ (POLYNOMIAL if word & 1 else 0)
    return word


def next_state(state: Value, word: Value) -> Value:
    """Return the register after the 32 or 64 bits of `word`; one XOR tree deep.

    The step is linear: every bit of `word`, with the old state added to the first 32 of them,
    contributes what it would leave behind alone.
    """
    bits = len(word)
    if bits not in (32, 64):
        raise ValueError(f"CRC32c word has {bits} bits; allowed: 32 or 64")
    columns = [_shift(1 << position, bits) for position in range(bits)]
    mixed = [state[i] ^ word[i] if i < STATE_BITS else word[i] for i in range(bits)]
    return Cat(
        Cat(bit for bit, column in zip(mixed, columns, strict=True) if column >> row & 1).xor()
        for row in range(STATE_BITS)
    )


RESIDUE = _shift(INITIAL_STATE, STATE_BITS)
"""The register behind any data and its CRC: old state and CRC field add up to all ones."""
