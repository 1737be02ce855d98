"""CRC32c of the reference model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecoach.sim.model.crc32c import BLOCK, POLYNOMIAL, SHORT, crc32c, crc32c_octets
from tests.sim.model.vectors import vectors


def bit_serial(data: bytes) -> int:
    """The definition, one bit at a time."""
    state = 0xFFFFFFFF
    for octet in data:
        state ^= octet
        for _ in range(8):
            state = (state >> 1) ^ (POLYNOMIAL if state & 1 else 0)
    return state ^ 0xFFFFFFFF


@pytest.mark.parametrize("vector", vectors("crc32c"))
def test_published_values(vector):
    assert crc32c_octets(bytes.fromhex(vector["data_hex"])).hex() == vector["wire_crc"]


@pytest.mark.parametrize(
    "length",
    [*range(SHORT + 4), *range(BLOCK - 1, BLOCK + 6), *range(2 * BLOCK - 1, 2 * BLOCK + 6)],
)
def test_every_split_into_blocks_agrees_with_the_definition(length):
    data = bytes((7 * i + 1) % 251 for i in range(length))
    assert crc32c(data) == bit_serial(data)


@given(st.binary(max_size=3000))
def test_residue_over_data_and_crc_is_constant(data):
    # RFC 3720, 12.1 gives 0x1C2D19ED, which is this after reflection and complement.
    assert crc32c(data + crc32c_octets(data)) == 0x48674BC7
