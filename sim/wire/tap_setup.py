"""Makes a TAP for `tap:NAME`: persistent, of a user, with an address, up."""

import contextlib
import fcntl
import ipaddress
import os
import socket
import struct

from stagecoach.sim.wire.errors import NetworkInUse, WireError, WireNotPermitted
from stagecoach.sim.wire.networks_in_use import networks_in_use
from stagecoach.sim.wire.tap import IFF_UP, IFREQ_FLAGS, IFREQ_INTEGER, attach_tap, interface_flags

_TUNSETPERSIST = 0x400454CB
_TUNSETOWNER = 0x400454CC
_SIOCSIFFLAGS = 0x8914
_SIOCSIFADDR = 0x8916
_SIOCSIFNETMASK = 0x891C
_SIOCSIFMTU = 0x8922

# struct ifreq of netdevice(7) with a struct sockaddr_in.
_IFREQ_ADDRESS = struct.Struct("16sHH4s16x")


def set_up_tap(name: str, ip: ipaddress.IPv4Interface, mtu: int, owner: int) -> None:
    """Makes the TAP if it is not there, gives it to the user `owner`, and sets it up.

    ip: of Linux. mtu: bytes of an IP packet. Raises `WireError`, also if another interface has
    addresses of that network: what goes there would go to the TAP. A TAP that was made is removed
    then.
    """
    was_there = name in (known for _, known in socket.if_nameindex())
    try:
        file = attach_tap(name)
    except WireNotPermitted as error:
        raise WireNotPermitted(f"{error}; setting up a TAP needs root (CAP_NET_ADMIN)") from None
    try:
        _require_unused(name, ip.network)
        fcntl.ioctl(file, _TUNSETOWNER, owner)
        fcntl.ioctl(file, _TUNSETPERSIST, 1)
        _set_up(name.encode(), ip, mtu, interface_flags(name))
    except OSError as error:
        if not was_there:
            with contextlib.suppress(OSError):
                fcntl.ioctl(file, _TUNSETPERSIST, 0)
        if isinstance(error, PermissionError):
            raise WireNotPermitted(
                f"tap:{name}: {error.strerror}; setting up a TAP needs root (CAP_NET_ADMIN)"
            ) from None
        raise WireError(f"tap:{name}: {error.strerror}") from None
    finally:
        os.close(file)


def _require_unused(name: str, network: ipaddress.IPv4Network) -> None:
    own = socket.if_nametoindex(name)
    for use in networks_in_use():
        if use.interface != own and use.network.overlaps(network):
            raise NetworkInUse(
                f"tap:{name}: network {network} overlaps {use.words} of interface "
                f"{socket.if_indextoname(use.interface)}; allowed: --ip of another network"
            )


def _set_up(name: bytes, ip: ipaddress.IPv4Interface, mtu: int, flags: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for request, address in ((_SIOCSIFADDR, ip.ip), (_SIOCSIFNETMASK, ip.netmask)):
            octets = _IFREQ_ADDRESS.pack(name, socket.AF_INET, 0, address.packed)
            fcntl.ioctl(any_socket, request, octets)
        fcntl.ioctl(any_socket, _SIOCSIFMTU, IFREQ_INTEGER.pack(name, mtu))
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, IFREQ_FLAGS.pack(name, flags | IFF_UP))
