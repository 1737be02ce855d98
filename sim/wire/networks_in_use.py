"""IPv4 networks that interfaces of this machine reach, by address or route (rtnetlink(7))."""

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

_NEW_ADDRESS, _GET_ADDRESS = 20, 22
_NEW_ROUTE, _GET_ROUTE = 24, 26
_REQUEST_DUMP = 0x301
_ERROR, _DONE = 2, 3
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_DESTINATION, _RTA_INTERFACE, _RTA_GATEWAY, _RTA_MULTIPATH = 1, 4, 5, 9
_UNICAST = 1

_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_ADDRESS = struct.Struct("=BBBBI")  # ifaddrmsg: family, prefix, flags, scope, interface
_ROUTE = struct.Struct("=BBBBBBBBI")  # rtmsg: family, prefix, ..., type, flags
_ATTRIBUTE = struct.Struct("=HH")  # rtattr: length, type
_NEXT_HOP = struct.Struct("=HBBI")  # rtnexthop: length, flags, hops, interface
_NUMBER = struct.Struct("=I")

_HALF_OF_ALL = 1
"""Prefix of a route that is half a default route, as those of a VPN."""


@dataclass(frozen=True)
class Use:
    """A network that is in use: of which interface, and as what, in words."""

    interface: int
    network: IPv4Network
    words: str


def networks_in_use() -> Iterator[Use]:
    """Those of all interfaces in the network namespace of this thread, but no default routes.

    The gateway of any route is a network of one address. Raises `OSError`.
    """
    for body in _dump(_GET_ADDRESS, _NEW_ADDRESS):
        _, prefix, _, _, interface = _ADDRESS.unpack_from(body)
        found = dict(_attributes(body[_ADDRESS.size :]))
        for kind in {_IFA_LOCAL, _IFA_ADDRESS} & found.keys():  # the latter may be the peer's
            address = IPv4Interface((found[kind], prefix))
            yield Use(interface, address.network, f"address {address}")
    for body in _dump(_GET_ROUTE, _NEW_ROUTE):
        _, prefix, _, _, _, _, _, kind, _ = _ROUTE.unpack_from(body)
        if kind != _UNICAST:
            continue
        found = dict(_attributes(body[_ROUTE.size :]))
        for interface, gateway in _hops(found):
            if prefix > _HALF_OF_ALL:
                network = IPv4Network((found[_RTA_DESTINATION], prefix))
                yield Use(interface, network, f"route to {network}")
            if gateway is not None:
                yield Use(interface, IPv4Network(gateway), f"gateway {IPv4Address(gateway)}")


def _hops(attributes: dict[int, bytes]) -> Iterator[tuple[int, bytes | None]]:
    """Interface and gateway of each next hop of a route."""
    if _RTA_INTERFACE in attributes:
        (interface,) = _NUMBER.unpack(attributes[_RTA_INTERFACE])
        yield interface, attributes.get(_RTA_GATEWAY)
    rest = attributes.get(_RTA_MULTIPATH, b"")
    while len(rest) >= _NEXT_HOP.size:
        length, _, _, interface = _NEXT_HOP.unpack_from(rest)
        yield interface, dict(_attributes(rest[_NEXT_HOP.size : length])).get(_RTA_GATEWAY)
        rest = rest[_aligned(length) :]


def _dump(request: int, answer: int) -> Iterator[bytes]:
    """The bodies of all messages that answer a request."""
    body = _ROUTE.pack(socket.AF_INET, *[0] * 8)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(_HEADER.pack(_HEADER.size + len(body), request, _REQUEST_DUMP, 1, 0) + body)
        while True:
            rest = kernel.recv(1 << 16)
            while rest:
                length, kind, _, _, _ = _HEADER.unpack_from(rest)
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    raise OSError("the kernel does not tell addresses and routes")
                if kind == answer:
                    yield rest[_HEADER.size : length]
                rest = rest[_aligned(length) :]


def _attributes(octets: bytes) -> Iterator[tuple[int, bytes]]:
    while len(octets) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(octets)
        yield kind, octets[_ATTRIBUTE.size : length]
        octets = octets[_aligned(length) :]


def _aligned(length: int) -> int:
    return -(-length // 4) * 4
