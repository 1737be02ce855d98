"""Addresses of a simulated Ethernet interface:
`sim://?wire=tap:tap0&ip=192.0.2.2/24&gw=192.0.2.1&loss=0.01&seed=7`.
"""

import ipaddress
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar
from urllib.parse import parse_qsl, urlsplit

from stagecoach.host_driver.network.ip_fields import MAXIMUM_DSCP, MAXIMUM_TTL
from stagecoach.host_driver.network.ipv4 import DEFAULT_TTL
from stagecoach.hw.interface.device_memory import LEAST_MEMORY, MOST_MEMORY
from stagecoach.sim.wire.errors import WireAddressError
from stagecoach.sim.wire.impairments import LIMITS, Impairments, Number, is_allowed

FORMS = "tap:NAME, unix:PATH, unix-listen:PATH or pair:NAME"

DEFAULT_MTU = 1500
MINIMUM_MTU = 576
MAXIMUM_MTU = 9000

# RFC 6298, 2.4 asks for 1 s; Linux has 200 ms.
DEFAULT_RTO_MIN_MS = 200
_RTO_MIN_MS = (1, 60_000)
_KEEP_ALIVE_S = (1, 86_400)

DEFAULT_RING = 256 << 10
# The longest FPDU with Markers has to fit; more than 2^30 no window can announce (RFC 7323, 2.3).
_RING = (128 << 10, 1 << 30)
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

# sun_path of unix(7) has 108 octets with its zero.
_MAXIMUM_PATH = 107
# IFNAMSIZ of netdevice(7) is 16 with its zero. The kernel puts a number in place of %d.
_TAP_NAME = re.compile(r"[!-~]{1,15}")
_NOT_OF_A_TAP = frozenset("/:%")
_PAIR_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_MAC = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")
_DECIMAL = re.compile(r"\d+(\.\d+)?")
_SIZE = re.compile(r"(\d{1,10})(|KiB|MiB|GiB)")

_DIRECTIONS = ("tx", "rx")
_PER_DIRECTION = tuple(name for name in LIMITS if name != "seed")
ENGINES = ("reference", "engine")
"""What keeps connections: the reference TCP in Python, or the TCP engine in gateware."""

_OPTIONS = (
    "tcp",
    "gw",
    "mac",
    "mtu",
    "dscp",
    "ttl",
    "keep_alive_s",
    "rto_min_ms",
    "rx_ring",
    "tx_ring",
    "memory",
    "seed",
    "pcap",
)

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Attachment:
    """Where a wire ends: `kind` is tap, unix, unix-listen or pair, `name` its name or path."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True)
class WireAddress:
    """A simulated Ethernet interface, as a program is told of it.

    text: the address as it was given. tcp: one of `ENGINES`. ip: of the device, with its network.
    gateway: `None` if it reaches only its network. mac: 6 bytes. mtu: bytes of an IP packet.
    dscp, ttl: of packets of connections. keep_alive_s: idle seconds before a keep-alive probe,
    `None` for none. rto_min_ms: least retransmission timeout. rx_ring, tx_ring: bytes of a
    connection's rings. memory: bytes of the device's own memory, 0 for none. tx, rx: impairments of
    frames from and to the device. pcap: file for what the wire carries, or `None`.
    """

    text: str
    wire: Attachment
    tcp: str
    ip: ipaddress.IPv4Interface
    gateway: ipaddress.IPv4Address | None
    mac: bytes
    mtu: int
    dscp: int
    ttl: int
    keep_alive_s: int | None
    rto_min_ms: int
    rx_ring: int
    tx_ring: int
    memory: int
    tx: Impairments
    rx: Impairments
    pcap: str | None


def parse_attachment(text: str) -> Attachment:
    """The end of a wire. Raises `WireAddressError`."""
    kind, _, name = text.partition(":")
    if kind == "tap":
        wrong = name in (".", "..") or not _NOT_OF_A_TAP.isdisjoint(name)
        if wrong or not _TAP_NAME.fullmatch(name):
            raise WireAddressError(
                f"TAP is {name!r}; allowed: 1 to 15 ASCII characters, no space, '/', ':' or '%'"
            )
    elif kind in ("unix", "unix-listen"):
        if not 0 < len(os.fsencode(name)) <= _MAXIMUM_PATH or "\0" in name:
            raise WireAddressError(
                f"path of the socket is {name!r}; allowed: 1 to {_MAXIMUM_PATH} bytes"
            )
    elif kind == "pair":
        if not _PAIR_NAME.fullmatch(name):
            raise WireAddressError(
                f"pair is {name!r}; allowed: 1 to 64 letters, digits, '.', '_' and '-'"
            )
    else:
        raise WireAddressError(f"wire is {text!r}; allowed: {FORMS}")
    return Attachment(kind, name)


def parse_wire(text: str) -> WireAddress:
    """The interface of an address. Raises `WireAddressError`.

    An impairment such as `loss` is that of both directions; `tx_loss` is that of frames from the
    device, `rx_loss` of frames to it.
    """
    given = _options(text)
    if "wire" not in given or "ip" not in given:
        missing = "wire" if "wire" not in given else "ip"
        raise WireAddressError(
            f"no {missing} in {text!r}; allowed: sim://?wire=WIRE&ip=192.0.2.2/24, with {FORMS}"
        )
    ip = parse_ip(given["ip"])
    tx, rx = (_impairments(given, direction) for direction in _DIRECTIONS)

    def value(name: str, parse: Callable[[str, str], _Value], default: _Value) -> _Value:
        return parse(name, given[name]) if name in given else default

    return WireAddress(
        text=text,
        wire=parse_attachment(given["wire"]),
        tcp=value("tcp", _engine, "engine"),
        ip=ip,
        gateway=_gateway(given["gw"], ip) if "gw" in given else None,
        mac=value("mac", _mac, b"\x02\x00" + ip.ip.packed),
        mtu=value("mtu", _integer(MINIMUM_MTU, MAXIMUM_MTU), DEFAULT_MTU),
        dscp=value("dscp", _integer(0, MAXIMUM_DSCP), 0),
        ttl=value("ttl", _integer(1, MAXIMUM_TTL), DEFAULT_TTL),
        keep_alive_s=value("keep_alive_s", _integer(*_KEEP_ALIVE_S), None),
        rto_min_ms=value("rto_min_ms", _integer(*_RTO_MIN_MS), DEFAULT_RTO_MIN_MS),
        rx_ring=value("rx_ring", _ring, DEFAULT_RING),
        tx_ring=value("tx_ring", _ring, DEFAULT_RING),
        memory=value("memory", _memory, 0),
        tx=tx,
        rx=rx,
        pcap=value("pcap", _path, None),
    )


def _options(text: str) -> dict[str, str]:
    """The options after `sim://?`."""
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise WireAddressError(f"address is {text!r}: {error}") from None
    if parts.scheme != "sim" or parts.netloc or parts.path or parts.fragment:
        raise WireAddressError(
            f"address is {text!r}; allowed: sim://?wire=WIRE&ip=192.0.2.2/24, with {FORMS}"
        )
    names = {"wire", "ip", *_OPTIONS, *_PER_DIRECTION}
    names |= {f"{direction}_{name}" for direction in _DIRECTIONS for name in _PER_DIRECTION}
    given: dict[str, str] = {}
    # In a path, '+' is no space.
    for name, value in parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True):
        if name not in names:
            raise WireAddressError(
                f"{name}={value} in address {text!r}; allowed: wire, ip, {', '.join(_OPTIONS)}, "
                f"{', '.join(_PER_DIRECTION)}, and the latter with tx_ or rx_"
            )
        if name in given:
            raise WireAddressError(f"{name} is twice in address {text!r}; allowed: once")
        given[name] = value
    return given


def _impairments(given: dict[str, str], direction: str) -> Impairments:
    values: dict[str, Number] = {}
    for name in _PER_DIRECTION:
        for option in (name, f"{direction}_{name}"):
            if option in given:
                values[name] = _decimal(option, given[option], name)
    seed = _integer(*map(int, LIMITS["seed"]))("seed", given.get("seed", "0"))
    return Impairments(**values, seed=seed)


def _decimal(option: str, text: str, name: str) -> Fraction:
    if not _DECIMAL.fullmatch(text) or not is_allowed(name, Fraction(text)):
        low, high = LIMITS[name]
        raise WireAddressError(f"{option} is {text!r}; allowed: {low} to {high}")
    return Fraction(text)


def _integer(low: int, high: int) -> Callable[[str, str], int]:
    def parse(name: str, text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,20}", text) or not low <= int(text) <= high:
            raise WireAddressError(f"{name} is {text!r}; allowed: {low} to {high}")
        return int(text)

    return parse


def _octets(text: str) -> int:
    """Bytes of a size such as 256KiB; 0 of what is none."""
    match = _SIZE.fullmatch(text)
    return int(match[1]) * _UNITS[match[2]] if match else 0


def _ring(name: str, text: str) -> int:
    octets = _octets(text)
    if not _RING[0] <= octets <= _RING[1] or octets & (octets - 1):
        raise WireAddressError(f"{name} is {text!r}; allowed: a power of two, 128KiB to 1GiB")
    return octets


def _memory(name: str, text: str) -> int:
    octets = _octets(text)
    if not LEAST_MEMORY <= octets <= MOST_MEMORY:
        raise WireAddressError(f"{name} is {text!r}; allowed: 4KiB to 64GiB")
    return octets


def _engine(name: str, text: str) -> str:
    if text not in ENGINES:
        raise WireAddressError(f"{name} is {text!r}; allowed: {' or '.join(ENGINES)}")
    return text


def _path(name: str, text: str) -> str:
    if not text or "\0" in text:
        raise WireAddressError(f"{name} is {text!r}; allowed: the path of a file")
    return text


def _mac(name: str, text: str) -> bytes:
    octets = bytes.fromhex(text.replace(":", "")) if _MAC.fullmatch(text) else bytes(6)
    if octets[0] & 1 or not any(octets):
        raise WireAddressError(
            f"{name} is {text!r}; allowed: six bytes such as 02:00:c0:00:02:02, no group address"
        )
    return octets


def _is_of_a_host(ip: ipaddress.IPv4Address, network: ipaddress.IPv4Network) -> bool:
    """Whether one interface of the network can have the address."""
    if ip.is_multicast or ip.is_loopback or ip.is_unspecified or ip.is_reserved:
        return False
    # RFC 3021: a network of two has no broadcast address.
    ends = (network.network_address, network.broadcast_address)
    return ip in network and (network.prefixlen >= 31 or ip not in ends)


def parse_ip(text: str) -> ipaddress.IPv4Interface:
    """The address of a host, with the prefix of its network. Raises `WireAddressError`."""
    try:
        ip = ipaddress.IPv4Interface(text)
    except ValueError:
        ip = None
    if ip is None or "/" not in text or not _is_of_a_host(ip.ip, ip.network):
        raise WireAddressError(
            f"ip is {text!r}; allowed: the IPv4 address of a host and its prefix, 192.0.2.2/24"
        )
    return ip


def _gateway(text: str, ip: ipaddress.IPv4Interface) -> ipaddress.IPv4Address:
    try:
        gateway = ipaddress.IPv4Address(text)
    except ValueError:
        gateway = None
    if gateway is None or gateway == ip.ip or not _is_of_a_host(gateway, ip.network):
        raise WireAddressError(f"gw is {text!r}; allowed: another host of {ip.network}")
    return gateway
