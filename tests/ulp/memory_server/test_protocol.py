"""The private data of a memory server."""

import pytest

from stagecoach.ulp.memory_server.protocol import PRIVATE_DATA_OCTETS, Region

MOST64, MOST32 = (1 << 64) - 1, (1 << 32) - 1
EXAMPLE = Region(addr=0x1000000000000, length=256 << 20, rkey=0x12345678)
OCTETS = bytes.fromhex("53434d53 0001 0000 0001000000000000 0000000010000000 12345678")


def test_the_layout_is_the_one_of_the_page():
    assert EXAMPLE.pack() == OCTETS
    assert len(OCTETS) == PRIVATE_DATA_OCTETS == 28
    assert Region.unpack(OCTETS) == EXAMPLE


@pytest.mark.parametrize("region", [Region(0, 0, 0), Region(MOST64, MOST64, MOST32)])
def test_the_smallest_and_the_largest_value_of_each_field(region):
    assert Region.unpack(region.pack()) == region


@pytest.mark.parametrize("name", ["addr", "length", "rkey"])
def test_each_field_has_a_place_of_its_own(name):
    values = {"addr": 0, "length": 0, "rkey": 0} | {name: MOST32}
    assert Region.unpack(Region(**values).pack()) == Region(**values)


@pytest.mark.parametrize("more", [b"", b"\0", bytes(480)])
def test_what_follows_is_ignored(more):
    assert Region.unpack(OCTETS + more) == EXAMPLE


@pytest.mark.parametrize("octets", [b"", OCTETS[:-1], b"x" * 28, b"SCMT" + OCTETS[4:], bytes(508)])
def test_other_private_data_are_refused(octets):
    with pytest.raises(ValueError, match=rf"data are {len(octets)} bytes, .*; allowed: 28 or more"):
        Region.unpack(octets)


@pytest.mark.parametrize("version", [0, 2, 0xFFFF])
def test_another_version_is_refused(version):
    octets = OCTETS[:4] + version.to_bytes(2, "big") + OCTETS[6:]
    with pytest.raises(ValueError, match=f"have version {version}; allowed: 1$"):
        Region.unpack(octets)
