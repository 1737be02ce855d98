"""Sequence numbers: initial ones, comparison, and the window of RFC 9293, Table 6."""

from ipaddress import IPv4Address

import pytest

from stagecoach.host_driver.network.isn import SequenceNumbers, siphash
from stagecoach.host_driver.network.sequence import acceptable, advance, before, within
from tests.sim.model.tcp.vectors import VECTORS, vectors


@pytest.mark.requirement("TCP-MUST-8", "TCP-MUST-9", "TCP-SHLD-1", "ISN-3-01", "ISN-3-02")
@pytest.mark.parametrize("vector", [v for v in VECTORS["isn"] if v["prf"] == "siphash-2-4"])
def test_initial_sequence_numbers_are_those_of_the_vectors(vector):
    numbers = SequenceNumbers(bytes.fromhex(vector["key_hex"]))
    ends = (
        (IPv4Address(vector["local_ip"]), vector["local_port"]),
        (IPv4Address(vector["remote_ip"]), vector["remote_port"]),
    )
    assert numbers.choose(*ends, vector["time_us"]) == int(vector["isn"], 16)


@pytest.mark.parametrize(
    ("octets", "expected"),
    [(0, 0x726FDB47DD0E0E31), (8, 0x93F5F5799A932462), (15, 0xA129CA6149BE45E5)],
)
def test_siphash_is_that_of_its_authors(octets, expected):
    """Reference vectors: key 00 01 .. 0f, message 00 01 .. ."""
    assert siphash(bytes(range(16)), bytes(range(octets))) == expected


@pytest.mark.requirement("ISN-3-03")
def test_the_key_is_drawn_anew_and_has_16_octets():
    ends = ((IPv4Address("192.0.2.1"), 1), (IPv4Address("192.0.2.2"), 2))
    chosen = {SequenceNumbers().choose(*ends, 0) for _ in range(4)}
    assert len(chosen) == 4
    with pytest.raises(ValueError, match="key of 3 bytes; allowed: 16"):
        SequenceNumbers(b"abc").choose(*ends, 0)


@pytest.mark.parametrize("vector", vectors("window"))
def test_a_segment_is_acceptable_by_table_6(vector):
    numbers = (int(vector["seg_seq"], 16), vector["seg_len"], int(vector["rcv_nxt"], 16))
    assert acceptable(*numbers, vector["rcv_wnd"]) == vector["acceptable"]


def test_numbers_are_compared_modulo_2_32():
    assert before(0xFFFFFFFF, 0)
    assert not before(0, 0xFFFFFFFF)
    assert not before(5, 5)
    assert advance(0xFFFFFFF0, 0x20) == 0x10
    assert within(0x05, 0xFFFFFFF0, 0x20)
    assert not within(0x10, 0xFFFFFFF0, 0x20)
