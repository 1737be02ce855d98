"""What `stagecoach wire` does."""

import ipaddress
import os
import pwd
import stat
from dataclasses import fields

from stagecoach.sim.wire import tap
from stagecoach.sim.wire.address import DEFAULT_MTU, MINIMUM_MTU, Attachment, WireAddress
from stagecoach.sim.wire.impairments import Impairments
from stagecoach.sim.wire.tap_setup import set_up_tap
from stagecoach.sim.wire.wire import open_end
from stagecoach.sim.wire.wire_capture import require_writable

_OPENED = {
    "tap": ("it is there, and up",) * 2,  # else it does not open; Linux sends a little later
    "unix": ("a program is there", "no program is there"),
    "unix-listen": ("a program has come", "a program can connect"),
    "pair": ("the other end is there", "the other end can come"),
}


def set_up(name: str, ip: ipaddress.IPv4Interface, mtu: int, user: pwd.struct_passwd) -> int:
    """Sets a TAP up and says what it needs; returns the exit status."""
    set_up_tap(name, ip, mtu, user.pw_uid)
    print(f"tap:{name}: up, {ip}, MTU {mtu}, of user {user.pw_name}")
    sizes = "" if mtu == DEFAULT_MTU else f"&mtu={mtu}"
    print(f"device: sim://?wire=tap:{name}&ip={_neighbour(ip)}{sizes}")
    if not _may_open(user):
        print(f"needs: {user.pw_name} may not open {tap.CLONE}; `chmod 666 {tap.CLONE}` as root")
    print(f"remove: `ip link delete {name}` as root")
    return 0


def check(wire: Attachment | WireAddress) -> int:
    """Opens the end of a wire and closes it, and says what it is; returns the exit status.

    Whether the capture of an address can be opened is looked at; it is not touched.
    """
    if isinstance(wire, Attachment):
        _open(wire, MINIMUM_MTU)  # whatever a device will have
        return 0
    if wire.pcap is not None:
        require_writable(wire.pcap)
    _open(wire.wire, wire.mtu)
    gateway = "" if wire.gateway is None else f", gateway {wire.gateway}"
    print(f"ip {wire.ip}{gateway}, MAC {wire.mac.hex(':')}, MTU {wire.mtu}")
    rings = f"rings rx {wire.rx_ring >> 10} KiB, tx {wire.tx_ring >> 10} KiB"
    print(f"{rings}, least RTO {wire.rto_min_ms} ms")
    print(f"tx {_in_words(wire.tx)}")
    print(f"rx {_in_words(wire.rx)}")
    if wire.pcap is not None:
        print(f"pcap {wire.pcap}")
    return 0


def _open(wire: Attachment, mtu: int) -> None:
    end = open_end(wire, mtu)
    try:
        there, missing = _OPENED[wire.kind]
        print(f"{wire}: {there if end.connected else missing}")
    finally:
        end.close()


def _in_words(impairments: Impairments) -> str:
    values = ((field.name, getattr(impairments, field.name)) for field in fields(impairments))
    return ", ".join(f"{name} {float(value):g}" for name, value in values if name != "seed") + (
        f", seed {impairments.seed}"
    )


def _neighbour(ip: ipaddress.IPv4Interface) -> ipaddress.IPv4Interface:
    """The first other host of the network of an address."""
    other = next(host for host in ip.network.hosts() if host != ip.ip)
    return ipaddress.IPv4Interface((other, ip.network.prefixlen))


def _may_open(user: pwd.struct_passwd) -> bool:
    """Whether a user may open the device file of TAPs."""
    status = os.stat(tap.CLONE)
    groups = os.getgrouplist(user.pw_name, user.pw_gid)
    if user.pw_uid == 0:
        return True
    if status.st_uid == user.pw_uid:
        wanted = stat.S_IRUSR | stat.S_IWUSR
    elif status.st_gid in groups:
        wanted = stat.S_IRGRP | stat.S_IWGRP
    else:
        wanted = stat.S_IROTH | stat.S_IWOTH
    return status.st_mode & wanted == wanted
