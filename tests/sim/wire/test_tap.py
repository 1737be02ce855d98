"""TAPs, in a network namespace of the test's own."""

import fcntl
import ipaddress
import os
import select
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stagecoach.sim.wire import tap
from stagecoach.sim.wire.address import Attachment, parse_wire
from stagecoach.sim.wire.errors import (
    NetworkInUse,
    NoSuchWire,
    PeerGone,
    WireDown,
    WireError,
    WireInUse,
    WireNotPermitted,
    WireTooNarrow,
    WrongWire,
)
from stagecoach.sim.wire.tap import TapEnd, attach_tap, interface_flags, interface_mtu
from stagecoach.sim.wire.tap_setup import set_up_tap
from stagecoach.sim.wire.wire import Wire, open_end
from tests.linux.namespace import in_namespace

MAXIMUM = 1518
LINUX = ipaddress.IPv4Interface("192.0.2.1/24")
MAC = bytes.fromhex("020000000002")
BROADCAST = b"\xff" * 6
ARP, IPV4 = 0x0806, 0x0800


def set_up(mtu: int = 1500) -> None:
    set_up_tap("tap0", LINUX, mtu, os.getuid())


def run_ip(*commands: str) -> None:
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True)


ETH0 = "link add eth0 type veth peer name other"


def opened(maximum: int = MAXIMUM) -> TapEnd:
    """The TAP, when Linux has seen that it is open."""
    end = TapEnd("tap0", maximum)
    wait_until_connected(end)
    return end


def wait_until_connected(end: TapEnd) -> None:
    give_up = time.monotonic() + 30
    while not end.connected:
        assert time.monotonic() < give_up
        time.sleep(0.01)


def next_frame(end: TapEnd, ethertype: int, ask: Callable[[], object]) -> bytes:
    """The next frame of a protocol; Linux also sends IPv6 of its own accord. `ask`, which makes
    Linux send it, is repeated: no frame is safe.
    """
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        ask()
        while select.select([end], [], [], 0.5)[0]:
            frame = end.receive()
            if frame is not None and frame[12:14] == ethertype.to_bytes(2, "big"):
                return frame
    raise AssertionError(f"no frame with EtherType {ethertype:04x}")


def arp_request() -> bytes:
    sender = MAC + ipaddress.IPv4Address("192.0.2.2").packed
    target = bytes(6) + LINUX.ip.packed
    head = struct.pack(">HHHBBH", ARP, 1, 0x0800, 6, 4, 1)
    return BROADCAST + MAC + head + sender + target + bytes(18)


def test_linux_answers_and_asks():
    def body() -> None:
        set_up()
        end = opened()
        reply = next_frame(end, ARP, lambda: end.send(arp_request()))
        # RFC 826: a reply (2) to whom it asked, with Linux's address as that of the sender.
        assert (reply[:6], reply[20:22], reply[28:32]) == (MAC, b"\0\2", LINUX.ip.packed)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            hello = next_frame(end, IPV4, lambda: udp.sendto(b"hello", ("192.0.2.2", 7)))
            assert hello[42:] == b"hello"
        end.close()
        end.close()

    in_namespace(body)


def test_an_interface_is_set_up_with_its_address_and_mtu():
    def body() -> None:
        set_up(mtu=9000)
        set_up(mtu=1400)
        shown = subprocess.run(["ip", "addr", "show", "tap0"], capture_output=True, text=True)
        assert "inet 192.0.2.1/24" in shown.stdout
        assert "mtu 1400" in shown.stdout
        assert interface_flags("tap0") & tap.IFF_UP

    in_namespace(body)


def test_of_longer_frames_than_allowed_comes_one_octet_more():
    def body() -> None:
        set_up(mtu=9000)
        end = opened()
        # A neighbour that Linux knows: no ARP is needed.
        add = ["ip", "neigh", "add", "192.0.2.2", "lladdr", "02:00:00:00:00:02", "dev", "tap0"]
        subprocess.run(add, check=True)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:

            def send() -> None:
                udp.sendto(bytes(MAXIMUM), ("192.0.2.2", 7))
                udp.sendto(b"x" * (MAXIMUM - 42), ("192.0.2.2", 7))

            assert next_frame(end, IPV4, send)[42:] == bytes(MAXIMUM - 41)
            assert next_frame(end, IPV4, send)[42:] == b"x" * (MAXIMUM - 42)
        end.close()

    in_namespace(body)


def test_longer_frames_than_allowed_are_counted_by_the_wire():
    def body() -> None:
        set_up(mtu=9000)
        add = ["ip", "neigh", "add", "192.0.2.2", "lladdr", "02:00:00:00:00:02", "dev", "tap0"]
        subprocess.run(add, check=True)
        with (
            Wire(parse_wire("sim://?wire=tap:tap0&ip=192.0.2.2/24")) as wire,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        ):
            give_up = time.monotonic() + 30
            while not wire.refused["too_long"]:
                udp.sendto(bytes(4000), ("192.0.2.2", 7))
                wire.receive()
                assert time.monotonic() < give_up
                time.sleep(0.01)

    in_namespace(body)


def test_an_mtu_above_that_of_the_tap_is_refused():
    def body() -> None:
        set_up()
        wire = Attachment("tap", "tap0")
        for _ in range(2):  # it is free afterwards
            with pytest.raises(WireTooNarrow) as refused:
                open_end(wire, 9000)
            assert str(refused.value) == (
                "tap:tap0: mtu is 9000; allowed: up to 1500, which the TAP has, or "
                "`stagecoach wire tap0 --mtu 9000` as root"
            )

    in_namespace(body)


def test_what_is_no_tap_is_not_told_of_its_mtu():
    def body() -> None:
        run_ip(ETH0)
        with pytest.raises(WrongWire, match="tap:eth0: an interface, but no TAP"):
            open_end(Attachment("tap", "eth0"), 9000)

    in_namespace(body)


def test_the_mtu_of_an_interface_is_read():
    assert interface_mtu("lo") == int(Path("/sys/class/net/lo/mtu").read_text())
    assert interface_mtu("no such one") is None


def test_a_device_has_no_larger_mtu_than_its_tap():
    def body() -> None:
        set_up(mtu=1400)
        open_end(Attachment("tap", "tap0"), 1400).close()
        with pytest.raises(WireTooNarrow, match="mtu is 1500; allowed: up to 1400"):
            open_end(Attachment("tap", "tap0"), 1500)

    in_namespace(body)


def test_a_tap_that_is_not_there_is_not_made():
    def body() -> None:
        with pytest.raises(NoSuchWire, match="tap:tap0: no such TAP; `stagecoach wire tap0`"):
            TapEnd("tap0", MAXIMUM)
        assert [name for _, name in socket.if_nameindex()] == ["lo"]

    in_namespace(body)


def test_a_tap_that_is_down():
    def body() -> None:
        set_up()
        subprocess.run(["ip", "link", "set", "tap0", "down"], check=True)
        with pytest.raises(WireDown, match="tap:tap0: it is down"):
            TapEnd("tap0", MAXIMUM)

    in_namespace(body)


def test_frames_are_lost_while_it_is_down():
    def body() -> None:
        set_up()
        end = opened()
        subprocess.run(["ip", "link", "set", "tap0", "down"], check=True)
        assert not end.connected
        assert end.send(arp_request())
        while end.receive() is not None:
            pass
        subprocess.run(["ip", "link", "set", "tap0", "up"], check=True)
        wait_until_connected(end)
        assert next_frame(end, ARP, lambda: end.send(arp_request()))[:6] == MAC
        end.close()

    in_namespace(body)


def test_without_a_carrier_it_is_not_connected():
    def body() -> None:
        set_up()
        end = opened()
        subprocess.run(["ip", "link", "set", "tap0", "carrier", "off"], check=True)
        give_up = time.monotonic() + 30
        while end.connected:
            assert time.monotonic() < give_up
            time.sleep(0.01)
        subprocess.run(["ip", "link", "set", "tap0", "carrier", "on"], check=True)
        wait_until_connected(end)
        end.close()

    in_namespace(body)


def test_a_tap_that_is_removed():
    def body() -> None:
        set_up()
        end = TapEnd("tap0", MAXIMUM)
        subprocess.run(["ip", "link", "delete", "tap0"], check=True)
        assert not end.connected
        assert end.send(arp_request())
        with pytest.raises(PeerGone, match="tap:tap0: File descriptor in bad state"):
            end.receive()
        end.close()

    in_namespace(body)


def test_a_tap_in_use():
    def body() -> None:
        set_up()
        end = TapEnd("tap0", MAXIMUM)
        with pytest.raises(WireInUse, match="tap:tap0: another program has it open"):
            TapEnd("tap0", MAXIMUM)
        end.close()
        TapEnd("tap0", MAXIMUM).close()

    in_namespace(body)


def test_an_interface_that_is_no_tap():
    def body() -> None:
        with pytest.raises(WrongWire, match="tap:lo: an interface, but no TAP"):
            TapEnd("lo", MAXIMUM)
        with pytest.raises(WrongWire, match="tap:lo: an interface, but no TAP"):
            set_up_tap("lo", LINUX, 1500, os.getuid())

    in_namespace(body)


def test_a_tap_that_cannot_be_set_up_is_not_left():
    def body() -> None:
        with pytest.raises(WireError, match="tap:tap0: Invalid argument"):
            set_up_tap("tap0", LINUX, 1 << 20, os.getuid())
        assert [name for _, name in socket.if_nameindex()] == ["lo"]

    in_namespace(body)


@pytest.mark.parametrize(
    ("commands", "told"),
    [
        (["addr add 192.0.2.9/32 dev eth0"], "address 192.0.2.9/32"),
        (["addr add 192.0.2.129/25 dev eth0"], "address 192.0.2.129/25"),
        (["addr add 192.0.0.1/16 dev eth0"], "address 192.0.0.1/16"),
        (["addr add 10.0.0.1 peer 192.0.2.7 dev eth0"], "address 192.0.2.7/32"),
        (["addr add 10.0.0.1/8 dev eth0", "addr add 192.0.2.1/24 dev eth0"], "address 192.0.2.1"),
        (["link set eth0 up", "route add 192.0.2.64/26 dev eth0"], "route to 192.0.2.64/26"),
        (
            ["link set eth0 up", "route add default via 192.0.2.254 dev eth0 onlink"],
            "gateway 192.0.2.254",
        ),
        (
            [
                "link set eth0 up",
                "route add default nexthop via 10.9.9.9 dev eth0 onlink "
                "nexthop via 192.0.2.3 dev eth0 onlink",
            ],
            "gateway 192.0.2.3",
        ),
        (
            ["link set eth0 up", "route add 192.0.2.0/24 dev eth0 table 77"],
            "route to 192.0.2.0/24",
        ),
    ],
)
def test_a_network_that_another_interface_has_is_refused(commands, told):
    def body() -> None:
        run_ip("link set lo up", ETH0, *commands)
        before = subprocess.run(["ip", "addr"], capture_output=True, check=True).stdout
        with pytest.raises(NetworkInUse) as refused:
            set_up()
        start = f"tap:tap0: network 192.0.2.0/24 overlaps {told}"
        assert str(refused.value).startswith(start)
        assert str(refused.value).endswith(" of interface eth0; allowed: --ip of another network")
        assert subprocess.run(["ip", "addr"], capture_output=True, check=True).stdout == before

    in_namespace(body)


def test_other_networks_and_default_routes_are_no_hindrance():
    def body() -> None:
        run_ip(
            ETH0,
            "link set eth0 up",
            "addr add 198.51.100.1/24 dev eth0",
            "route add default via 198.51.100.2",
            "route add 128.0.0.0/1 via 198.51.100.2",
            "route add blackhole 192.0.3.0/24",
        )
        set_up()
        set_up()  # what it has itself is replaced

    in_namespace(body)


def test_a_machine_without_taps(monkeypatch):
    monkeypatch.setattr(tap, "CLONE", "/no/such/device")
    with pytest.raises(NoSuchWire, match="tap:tap0: no /no/such/device; `modprobe tun`"):
        attach_tap("tap0")


def test_a_device_that_is_not_for_this_user(monkeypatch):
    monkeypatch.setattr(tap, "CLONE", "/proc/1")
    with pytest.raises(WireNotPermitted, match="tap:tap0: /proc/1: Is a directory"):
        attach_tap("tap0")


def test_a_tap_of_another_user(monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(tap, "CLONE", "/dev/null")
    monkeypatch.setattr(fcntl, "ioctl", refuse)
    with pytest.raises(WireNotPermitted, match="`stagecoach wire tap0 --user USER` as root"):
        attach_tap("tap0")
    with pytest.raises(WireNotPermitted, match="needs root"):
        set_up_tap("tap0", LINUX, 1500, os.getuid())
