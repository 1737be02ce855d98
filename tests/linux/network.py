"""A case's surroundings: namespace, TAP, wire, Linux' end, our end."""

import contextlib
import ipaddress
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stagecoach.sim.wire.tap_setup import set_up_tap
from tests.linux.namespace import namespace
from tests.linux.ours import Interface, Opener
from tests.linux.peer import LinuxPeer

TAP = "tap0"
LINUX, OURS = "192.0.2.1", "192.0.2.2"
FAR = "198.51.100.7"
"""Of Linux' end behind a router."""

ROUTER_LINK = "veth0"
"""The router's interface to the network of Linux' end."""

_PREFIX = 24
_FAR_ROUTER, _FAR_LINK = "198.51.100.1", "veth1"
CAPTURES = "LINUX_CAPTURES"
"""Names a folder for the captures of tests that pass; without it, only those of others stay."""

PATIENT_MS = 20_000
"""A retransmission timeout that no stall of a loaded machine reaches."""


@dataclass
class Network:
    """Both ends, and what the wire carried.

    linux_address: of Linux' end, which `ours` can reach.
    """

    ours: Interface
    linux: LinuxPeer
    capture: Path
    linux_address: str = LINUX


@contextlib.contextmanager
def network(
    opener: Opener,
    folder: Path,
    wire: str = "",
    *,
    patient: bool = False,
    window: int | None = None,
    routed: bool = False,
) -> Iterator[Network]:
    """Both ends joined by a wire.

    wire: more options of our address, such as `&loss=0.01`. patient: nothing is sent again but
    for a loss that was seen. window: of our end. routed: Linux' end is in a namespace of its own,
    and the test's namespace is a router before it.
    """
    capture = folder / "wire.pcapng"
    with namespace(), contextlib.ExitStack() as undo:
        set_up_linux(patient=patient)
        linux = LinuxPeer(*(("unshare", "-n") if routed else ()))
        undo.callback(linux.close)
        if routed:
            set_up_router(linux)
            wire += f"&gw={LINUX}"
        rto = f"&rto_min_ms={PATIENT_MS}" if patient else ""
        address = (
            f"sim://?wire=tap:{TAP}&ip={OURS}/{_PREFIX}&tcp=reference&pcap={capture}{rto}{wire}"
        )
        ours = opener(address, window)
        undo.callback(ours.close)
        yield Network(ours, linux, capture, FAR if routed else LINUX)
    if kept := os.environ.get(CAPTURES):
        Path(kept).mkdir(parents=True, exist_ok=True)
        shutil.move(capture, Path(kept, f"{folder.name}.pcapng"))
    else:
        capture.unlink()


def set_up_linux(*, patient: bool) -> None:
    """The TAP with its address, and no IPv6 on it."""
    for name in ("all", "default"):
        with contextlib.suppress(FileNotFoundError):
            set_sysctl(f"net/ipv6/conf/{name}/disable_ipv6", "1")
    set_up_tap(TAP, ipaddress.IPv4Interface(f"{LINUX}/{_PREFIX}"), 1500, os.getuid())
    if patient:
        ip("route", "change", f"192.0.2.0/{_PREFIX}", "dev", TAP, "rto_min", f"{PATIENT_MS}ms")
        # Nor a tail loss probe.
        set_sysctl("net/ipv4/tcp_early_retrans", "0")


def set_up_router(linux: LinuxPeer) -> None:
    """Linux' end on a link of its own, of which this namespace has the other side."""
    ip("link", "add", ROUTER_LINK, "type", "veth", "peer", "name", _FAR_LINK)
    ip("link", "set", _FAR_LINK, "netns", str(linux.pid))
    ip("address", "add", f"{_FAR_ROUTER}/{_PREFIX}", "dev", ROUTER_LINK)
    ip("link", "set", ROUTER_LINK, "up")
    for words in (
        f"address add {FAR}/{_PREFIX} dev {_FAR_LINK}",
        f"link set {_FAR_LINK} up",
        f"route add default via {_FAR_ROUTER}",
    ):
        linux("ip", arguments=words.split())
    set_sysctl("net/ipv4/ip_forward", "1")


def ip(*arguments: str) -> None:
    """The command of iproute2, in the namespace."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr.strip()}"


def set_sysctl(name: str, value: str) -> None:
    """A setting of the namespace."""
    Path("/proc/sys", name).write_text(value)
