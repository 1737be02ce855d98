"""CRC32c over 8, 32 or 64 bits in one step (RFC 5044, 4.4; RFC 3720, 12.1).

The register is the reflected one, so that byte i of a word is bits [8i+7:8i] as everywhere. On the
wire the complement of the register follows the data, least significant byte first: the CRC field
as a 32-bit little-endian lane value is `~state`.
"""

from amaranth.hdl import Cat, Value

from stagecoach.hw.interface.wire import CRC32C_POLYNOMIAL

INITIAL_STATE = 0xFFFFFFFF
STATE_BITS = 32


def _shift(word: int, bits: int) -> int:
    for _ in range(bits):
        word = (word >> 1) ^ (CRC32C_POLYNOMIAL if word & 1 else 0)
    return word


def _step(bits: list[Value], columns: list[int]) -> Value:
    """Sum of the `columns` whose bit is set; one XOR tree deep."""
    return Cat(
        Cat(bit for bit, column in zip(bits, columns, strict=True) if column >> row & 1).xor()
        for row in range(STATE_BITS)
    )


def _columns(positions: range, bits: int) -> list[int]:
    """What each position of a word of `bits` bits would leave alone: a step is linear."""
    return [_shift(1 << position, bits) for position in positions]


def word_part(word: Value) -> Value:
    """Return what the 8, 32 or 64 bits of `word` contribute to the register after them."""
    if len(word) not in (8, 32, 64):
        raise ValueError(f"CRC32c word has {len(word)} bits; allowed: 8, 32 or 64")
    return _step(list(word), _columns(range(len(word)), len(word)))


def state_part(state: Value, bits: int) -> Value:
    """Return what the register contributes to the one `bits` later, the other summand."""
    return _step(list(state), _columns(range(STATE_BITS), bits))


def next_state(state: Value, word: Value) -> Value:
    """Return the register after the 8, 32 or 64 bits of `word`.

    A sum of two XOR trees, which may be computed in different cycles.
    """
    return word_part(word) ^ state_part(state, len(word))


RESIDUE = _shift(INITIAL_STATE, STATE_BITS)
"""The register after any data and its CRC: old state and CRC field add up to all ones."""

RESIDUE_AND_ZEROS = _shift(RESIDUE, 32)
"""The register 32 zeros later."""
