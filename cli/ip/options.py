"""The options of `stagecoach ip`."""

import argparse
from typing import Any

from stagecoach.cli.options import add_device, number, seconds
from stagecoach.host_driver.snapshots.folder import FOLDER_VARIABLE, PRIVATE

DEFAULT_OCTETS = 56


def add_ip(subparsers: Any) -> None:
    """Adds the command to those of a parser."""
    parser = subparsers.add_parser(
        "ip",
        help="show networks of devices, their neighbours and connections; ping",
        description="Shows the networks of devices that running programs of this user have opened "
        "by sim://..., as `ip` and `ss -ti` do: addresses, neighbours, connections with round-trip "
        "time, congestion window, windows and retransmissions. A program is seen if it has "
        f"{FOLDER_VARIABLE}={PRIVATE} in its environment, or, if that names a folder, the same.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_show)
    commands = parser.add_subparsers(dest="ip_command", metavar="ping")
    ping = commands.add_parser(
        "ping",
        help="send ICMP echoes from a device",
        description="Opens a device with a network of its own, sends ICMP echoes, and says how "
        "long their replies take.",
    )
    ping.add_argument("address", metavar="ADDRESS", help="of the other host")
    ping.add_argument(
        "-c",
        dest="count",
        type=number("count", 1, 1_000_000),
        default=4,
        metavar="COUNT",
        help="how many (%(default)s)",
    )
    ping.add_argument(
        "-s",
        dest="octets",
        type=number("size", 0, 65507),
        default=DEFAULT_OCTETS,
        metavar="BYTES",
        help="that each carries (%(default)s)",
    )
    ping.add_argument(
        "-W",
        dest="timeout",
        type=seconds("time"),
        default=1.0,
        metavar="SECONDS",
        help="to wait for each reply (%(default)s)",
    )
    add_device(ping)
    ping.set_defaults(check=_check_ping, run=_ping)


def _check_ping(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if not options.device.has_network:
        parser.error(
            f"device {options.device.text} has no network of its own; allowed: --device "
            "sim://?wire=WIRE&ip=192.0.2.2/24 or serial://PORT?ip=192.0.2.10/24"
        )


def _show(options: argparse.Namespace) -> int:
    from stagecoach.cli.ip.command import show

    return show(options.json)


def _ping(options: argparse.Namespace) -> int:
    from stagecoach.cli.ip.command import ping

    return ping(options.device, options.address, options.count, options.octets, options.timeout)
