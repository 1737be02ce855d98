"""Addresses, MTU and routes of an interface; limits by time; ports; paths."""

from ipaddress import IPv4Address

import pytest

from stagecoach.host_driver.network.connections import FIRST_PORT, LAST_PORT, random_port
from stagecoach.host_driver.network.errors import NetworkSettingsError, NoRoute, PortInUse
from stagecoach.host_driver.network.path_mtu import (
    LIFETIME_US,
    MAXIMUM_PATHS,
    PathMtus,
    plateau_below,
)
from stagecoach.host_driver.network.rate_limit import RateLimit
from stagecoach.host_driver.network.settings import SECOND_US, NetworkSettings
from tests.host_driver.network.rig import FAR, GATEWAY, OWN_MAC, PEER, SETTINGS


@pytest.mark.requirement("IP-1122-3.3.3-02", "IPV4-3.2-01")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("192.0.2.2", OWN_MAC), "address '192.0.2.2' has no prefix; allowed: as in 192.0.2.2/24"),
        (("192.0.2/24", OWN_MAC), "Expected 4 octets in '192.0.2'; allowed: an IPv4 address"),
        (("127.0.0.1/8", OWN_MAC), "address 127.0.0.1/8; allowed: that of one interface"),
        (("192.0.2.255/24", OWN_MAC), "address 192.0.2.255/24; allowed: that of one interface"),
        (("192.0.2.0/24", OWN_MAC), "address 192.0.2.0/24; allowed"),
        (("0.0.0.1/8", OWN_MAC), "address 0.0.0.1/8; allowed"),
        (("224.0.0.1/24", OWN_MAC), "address 224.0.0.1/24; allowed"),
        (("192.0.2.2/24", bytes(6)), "MAC address 00:00:00:00:00:00; allowed: six bytes"),
        (("192.0.2.2/24", b"\x01" * 6), "MAC address 01:01:01:01:01:01; allowed: six bytes"),
        (("192.0.2.2/24", b""), "MAC address of no bytes; allowed: six bytes"),
        (("192.0.2.2/24", OWN_MAC, "192.0.3.1"), "gateway 192.0.3.1; allowed: another address"),
        (("192.0.2.2/24", OWN_MAC, "192.0.2.2"), "gateway 192.0.2.2; allowed: another address"),
        (("192.0.2.2/24", OWN_MAC, None, 575), "MTU 575; allowed: 576 to 65535"),
        (("192.0.2.2/24", OWN_MAC, None, 65536), "MTU 65536; allowed: 576 to 65535"),
    ],
)
def test_settings_that_no_interface_has_are_refused_in_one_line(arguments, text):
    with pytest.raises(NetworkSettingsError, match=text.replace("(", r"\(")) as refused:
        NetworkSettings.parse(*arguments)
    assert isinstance(refused.value, ValueError)
    assert "\n" not in str(refused.value)


@pytest.mark.requirement("TCP-MUST-49", "IP-1122-3.2.1.7-01", "IP-1122-3.2.1.7-02")
@pytest.mark.parametrize(
    ("change", "text"),
    [({"ttl": 0}, "TTL 0; allowed: 1 to 255"), ({"receive_buffer": 0}, "receive buffer 0")],
)
def test_other_settings_are_checked_too(change, text):
    with pytest.raises(NetworkSettingsError, match=text):
        NetworkSettings(SETTINGS.address, OWN_MAC, **change)


@pytest.mark.requirement("IP-1122-3.3.1.1-01", "IP-1122-3.3.1.2-01")
@pytest.mark.parametrize(("destination", "hop"), [(PEER, PEER), (FAR, GATEWAY), (GATEWAY, GATEWAY)])
def test_the_next_hop_is_the_peer_or_the_gateway(destination, hop):
    assert SETTINGS.next_hop(destination) == hop


@pytest.mark.requirement("TCP-MUST-46", "IP-1122-3.2.1.3-04", "IP-1122-3.3.6-01")
@pytest.mark.parametrize(
    "destination",
    [
        "192.0.2.2",
        "127.0.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "192.0.2.255",
        "192.0.2.0",
        "0.0.0.0",
    ],
)
def test_there_is_no_route_to_what_is_not_one_other_host(destination):
    with pytest.raises(NoRoute, match=f"no route to {destination}; allowed: the address of one"):
        SETTINGS.next_hop(IPv4Address(destination))


def test_there_is_no_route_beyond_the_prefix_without_a_gateway():
    settings = NetworkSettings.parse("192.0.2.2/24", OWN_MAC)
    with pytest.raises(NoRoute, match=r"outside 192\.0\.2\.0/24, and there is no gateway"):
        settings.next_hop(FAR)


def test_both_addresses_of_a_link_of_two_are_hosts():
    """RFC 3021."""
    settings = NetworkSettings.parse("192.0.2.2/31", OWN_MAC)
    assert settings.next_hop(IPv4Address("192.0.2.3")) == IPv4Address("192.0.2.3")


@pytest.mark.requirement("TCP-MUST-67", "MSSOPT-2-01")
def test_the_segment_size_is_the_mtu_less_40():
    assert NetworkSettings.parse("192.0.2.2/24", OWN_MAC, None, 9000).segment_size == 8960


def test_a_rate_has_a_burst_and_comes_back():
    limit = RateLimit(10, 3)
    assert [limit.allows(0) for _ in range(4)] == [True, True, True, False]
    assert not limit.allows(SECOND_US // 20)
    assert limit.allows(SECOND_US // 10)
    assert not limit.allows(SECOND_US // 10)
    assert [limit.allows(60 * SECOND_US) for _ in range(4)] == [True, True, True, False]


def test_ports_are_drawn_and_the_next_free_one_is_taken():
    """RFC 6056, 3.3.1."""
    assert random_port(lambda port: False, lambda count: 7) == FIRST_PORT + 7
    assert random_port(lambda port: port > FIRST_PORT, lambda count: count - 1) == FIRST_PORT
    assert len({random_port(lambda port: False) for _ in range(8)}) > 4
    with pytest.raises(PortInUse, match=f"all ports from {FIRST_PORT} to {LAST_PORT} are in use"):
        random_port(lambda port: True)


@pytest.mark.requirement("PMTUD-3-03")
@pytest.mark.parametrize(
    ("octets", "plateau"), [(1500, 1492), (1492, 1006), (600, 576), (576, 576)]
)
def test_the_plateau_of_an_old_router_is_below_the_length(octets, plateau):
    assert plateau_below(octets) == plateau


@pytest.mark.requirement("PMTUD-3-01", "PMTUD-3-02", "PMTUD-3-04")
def test_a_path_goes_down_and_comes_back_after_ten_minutes():
    paths = PathMtus(1500)
    assert paths.too_big(FAR, 1400, 1500, 0) == 1400
    assert paths.too_big(FAR, 1450, 1500, 0) is None
    assert paths.too_big(FAR, 1400, 1500, 0) is None
    assert paths.too_big(FAR, 68, 1400, 0) == 576
    assert (paths.get(FAR, LIFETIME_US - 1), paths.get(PEER, 0)) == (576, 1500)
    assert (paths.get(FAR, LIFETIME_US), len(paths)) == (1500, 0)


def test_paths_are_bounded():
    paths = PathMtus(1500)
    for number in range(3 * MAXIMUM_PATHS):
        paths.too_big(IPv4Address(number), 1000, 1500, number)
    assert len(paths) == MAXIMUM_PATHS
    assert paths.get(IPv4Address(3 * MAXIMUM_PATHS - 1), 0) == 1000
    assert paths.get(IPv4Address(0), 0) == 1500
