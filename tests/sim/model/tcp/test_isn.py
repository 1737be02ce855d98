"""SipHash and initial sequence numbers."""

from ipaddress import IPv4Address

import pytest

from stagecoach.sim.model.tcp.isn import initial_sequence, siphash
from tests.sim.model.tcp.vectors import VECTORS

requirement = pytest.mark.requirement
ISN = [vector for vector in VECTORS["isn"] if vector["prf"] == "siphash-2-4"]


@requirement("TCP-MUST-9", "ISN-3-02")
def test_siphash_gives_the_published_vectors():
    # Aumasson and Bernstein, "SipHash: a fast short-input PRF", appendix A, and its test program.
    assert siphash(bytes(range(16)), bytes(range(15))) == 0xA129CA6149BE45E5
    assert siphash(bytes(range(16)), b"") == 0x726FDB47DD0E0E31


@requirement("TCP-SHLD-1", "ISN-3-01", "TCP-MUST-8")
@pytest.mark.parametrize("vector", ISN, ids=lambda vector: vector["name"])
def test_initial_sequence(vector):
    local = IPv4Address(vector["local_ip"]), vector["local_port"]
    remote = IPv4Address(vector["remote_ip"]), vector["remote_port"]
    key = bytes.fromhex(vector["key_hex"])
    found = initial_sequence(key, local, remote, vector["time_us"])
    assert f"{found:08x}" == vector["isn"]


def test_short_key_is_refused():
    with pytest.raises(ValueError, match="key of 3 bytes"):
        siphash(b"abc", b"")


@pytest.mark.requirement("TCP-MUST-9", "ISN-3-02", "TCP-SHLD-1")
def test_each_part_of_the_pair_and_the_key_change_the_number():
    first, second = IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2")
    key = bytes(range(16))
    calls = [
        (key, (first, 1), (second, 2)),
        (key, (first, 2), (second, 2)),
        (key, (first, 1), (second, 3)),
        (key, (second, 1), (second, 2)),
        (key, (first, 1), (first, 2)),
        (bytes(16), (first, 1), (second, 2)),
    ]
    assert len({initial_sequence(*call, 0) for call in calls}) == len(calls)
