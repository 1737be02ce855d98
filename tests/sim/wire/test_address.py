"""Addresses of simulated Ethernet interfaces."""

import ipaddress
from fractions import Fraction

import pytest

from stagecoach.sim.wire.address import Attachment, parse_attachment, parse_wire
from stagecoach.sim.wire.errors import WireAddressError
from stagecoach.sim.wire.impairments import Impairments

START = "sim://?wire=pair:a&ip=192.0.2.2/24"


def test_what_is_not_given_has_its_default():
    address = parse_wire(START)
    assert address.text == START
    assert address.wire == Attachment("pair", "a")
    assert address.ip == ipaddress.IPv4Interface("192.0.2.2/24")
    assert address.gateway is None
    assert address.tcp == "engine"
    assert address.mac == bytes.fromhex("0200c0000202")
    assert (address.mtu, address.rto_min_ms) == (1500, 200)
    assert (address.dscp, address.ttl, address.keep_alive_s) == (0, 64, None)
    assert address.rx_ring == address.tx_ring == 256 << 10
    assert address.memory == 0
    assert address.tx == address.rx == Impairments()
    assert address.pcap is None


def test_every_option_is_taken():
    address = parse_wire(
        f"{START}&tcp=reference&gw=192.0.2.1&mac=02:00:00:00:00:0a&mtu=9000&rto_min_ms=1&rx_ring=1MiB"
        "&memory=256MiB&dscp=63&ttl=255&keep_alive_s=7200"
        "&tx_ring=131072&pcap=/tmp/a%26b+c.pcapng&loss=0.01&duplicate=0.02&reorder=0.03"
        "&corrupt=0.04&delay_us=2.5&rate_gbps=1&seed=18446744073709551615"
    )
    assert address.tcp == "reference"
    assert address.gateway == ipaddress.IPv4Address("192.0.2.1")
    assert address.mac == bytes.fromhex("02000000000a")
    assert (address.mtu, address.rto_min_ms) == (9000, 1)
    assert (address.dscp, address.ttl, address.keep_alive_s) == (63, 255, 7200)
    assert (address.rx_ring, address.tx_ring) == (1 << 20, 128 << 10)
    assert address.memory == 256 << 20
    assert address.pcap == "/tmp/a&b+c.pcapng"
    parts = (Fraction(n, 100) for n in (1, 2, 3, 4))
    assert address.tx == Impairments(*parts, Fraction(5, 2), 1, seed=(1 << 64) - 1)
    assert address.rx == address.tx


def test_a_direction_can_have_impairments_of_its_own():
    address = parse_wire(f"{START}&tx_loss=1&loss=0.5&rx_delay_us=7&seed=3")
    assert address.tx == Impairments(loss=1, seed=3)
    assert address.rx == Impairments(loss=Fraction(1, 2), delay_us=7, seed=3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, end) for name in ("loss", "duplicate", "reorder", "corrupt") for end in "01"),
        *(("delay_us", end) for end in ("0", "10000000")),
        *(("rate_gbps", end) for end in ("0.001", "1000")),
    ],
)
def test_the_ends_of_what_is_allowed_are_allowed(name, value):
    assert getattr(parse_wire(f"{START}&{name}={value}").tx, name) == Fraction(value)


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("tap:tap0", "tap", "tap0"),
        ("tap:fifteen-letters", "tap", "fifteen-letters"),
        ("unix:/run/a:b", "unix", "/run/a:b"),
        ("unix-listen:wire.sock", "unix-listen", "wire.sock"),
        ("pair:A.b_c-1", "pair", "A.b_c-1"),
    ],
)
def test_ends_of_a_wire(text, kind, name):
    assert parse_attachment(text) == Attachment(kind, name)
    assert str(parse_attachment(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "wire is ''; allowed: tap:NAME, unix:PATH, unix-listen:PATH or pair:NAME"),
        ("tap0", "wire is 'tap0'; allowed: tap:NAME"),
        ("tap:", "TAP is ''; allowed: 1 to 15 ASCII characters"),
        ("tap:sixteen-letters-", "TAP is 'sixteen-letters-'; allowed"),
        ("tap:tap%d", "TAP is 'tap%d'; allowed"),
        ("tap:a b", "TAP is 'a b'; allowed"),
        ("tap:a\x1bb", "TAP is 'a\\x1bb'; allowed"),
        ("tap:..", "TAP is '..'; allowed"),
        ("unix:", "path of the socket is ''; allowed: 1 to 107 bytes"),
        ("unix-listen:" + "x" * 108, "allowed: 1 to 107 bytes"),
        ("unix:" + "\u00e9" * 54, "allowed: 1 to 107 bytes"),
        ("unix:a\0b", "allowed: 1 to 107 bytes"),
        ("pair:a/b", "pair is 'a/b'; allowed: 1 to 64 letters, digits"),
    ],
)
def test_other_ends_are_refused(text, message):
    with pytest.raises(WireAddressError) as caught:
        parse_attachment(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("serial://?wire=pair:a&ip=192.0.2.2/24", "allowed: sim://?wire=WIRE&ip=192.0.2.2/24"),
        ("sim://host?wire=pair:a&ip=192.0.2.2/24", "allowed: sim://?wire=WIRE"),
        ("sim:///path?wire=pair:a&ip=192.0.2.2/24", "allowed: sim://?wire=WIRE"),
        (f"{START}#x", "allowed: sim://?wire=WIRE"),
        ("sim://[?wire=pair:a", "Invalid IPv6 URL"),
        ("sim://?ip=192.0.2.2/24", "no wire in"),
        ("sim://?wire=pair:a", "no ip in"),
        ("sim://?wire=cable&ip=192.0.2.2/24", "wire is 'cable'; allowed: tap:NAME"),
        (f"{START}&ip=192.0.2.3/24", "ip is twice in"),
        (f"{START}&lost=1", "lost=1 in address"),
        (f"{START}&tx_seed=1", "tx_seed=1 in address"),
        (f"{START}&loss=1.1", "loss is '1.1'; allowed: 0 to 1"),
        (f"{START}&loss=-1", "loss is '-1'; allowed: 0 to 1"),
        (f"{START}&loss=", "loss is ''; allowed: 0 to 1"),
        (f"{START}&loss=nan", "loss is 'nan'; allowed: 0 to 1"),
        (f"{START}&rx_corrupt=1e9", "rx_corrupt is '1e9'; allowed: 0 to 1"),
        (f"{START}&delay_us=10000001", "delay_us is '10000001'; allowed: 0 to 10000000"),
        (f"{START}&rate_gbps=0", "rate_gbps is '0'; allowed: 0.001 to 1000"),
        (f"{START}&seed=18446744073709551616", "seed is '18446744073709551616'; allowed: 0 to"),
        (f"{START}&seed=x", "seed is 'x'; allowed: 0 to 18446744073709551615"),
        (f"{START}&mtu=9001", "mtu is '9001'; allowed: 576 to 9000"),
        (f"{START}&tcp=linux", "tcp is 'linux'; allowed: reference or engine"),
        (f"{START}&dscp=64", "dscp is '64'; allowed: 0 to 63"),
        (f"{START}&ttl=0", "ttl is '0'; allowed: 1 to 255"),
        (f"{START}&ttl=256", "ttl is '256'; allowed: 1 to 255"),
        (f"{START}&keep_alive_s=0", "keep_alive_s is '0'; allowed: 1 to 86400"),
        (f"{START}&rto_min_ms=0", "rto_min_ms is '0'; allowed: 1 to 60000"),
        (f"{START}&rx_ring=64KiB", "rx_ring is '64KiB'; allowed: a power of two"),
        (f"{START}&tx_ring=200000", "tx_ring is '200000'; allowed: a power of two"),
        (f"{START}&tx_ring=1MB", "tx_ring is '1MB'; allowed: a power of two"),
        (f"{START}&pcap=", "pcap is ''; allowed: the path of a file"),
        (f"{START}&mac=02:00", "mac is '02:00'; allowed: six bytes"),
        (f"{START}&mac=01:00:00:00:00:01", "mac is '01:00:00:00:00:01'; allowed: six bytes"),
        (f"{START}&mac=00:00:00:00:00:00", "allowed: six bytes"),
        (f"{START}&gw=192.0.3.1", "gw is '192.0.3.1'; allowed: another host of 192.0.2.0/24"),
        (f"{START}&gw=192.0.2.2", "gw is '192.0.2.2'; allowed: another host"),
        (f"{START}&gw=192.0.2.255", "gw is '192.0.2.255'; allowed: another host"),
        ("sim://?wire=pair:a&ip=192.0.2.2", "ip is '192.0.2.2'; allowed: the IPv4 address"),
        ("sim://?wire=pair:a&ip=192.0.2.0/24", "ip is '192.0.2.0/24'; allowed"),
        ("sim://?wire=pair:a&ip=127.0.0.1/8", "ip is '127.0.0.1/8'; allowed"),
        ("sim://?wire=pair:a&ip=2001:db8::1/64", "ip is '2001:db8::1/64'; allowed"),
    ],
)
def test_bad_values_are_named_with_what_is_allowed(text, message):
    with pytest.raises(WireAddressError) as caught:
        parse_wire(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_both_addresses_of_a_network_of_two_are_of_hosts():
    address = parse_wire("sim://?wire=pair:a&ip=192.0.2.0/31&gw=192.0.2.1")
    assert address.gateway == ipaddress.IPv4Address("192.0.2.1")
