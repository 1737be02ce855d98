"""The options of `stagecoach wire`."""

import argparse
import contextlib
import ipaddress
import os
import pwd
from typing import Any

from stagecoach.cli.options import number
from stagecoach.sim.wire.address import (
    DEFAULT_MTU,
    FORMS,
    MAXIMUM_MTU,
    MINIMUM_MTU,
    Attachment,
    WireAddress,
    parse_attachment,
    parse_ip,
    parse_wire,
)
from stagecoach.sim.wire.errors import WireAddressError, WireError

DEFAULT_IP = "192.0.2.1/24"


def wire_option(text: str) -> Attachment | WireAddress:
    """A wire for argparse; a name alone is that of a TAP."""
    try:
        if text.startswith("sim:"):
            return parse_wire(text)
        return parse_attachment(text if ":" in text else f"tap:{text}")
    except WireAddressError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def ip_option(text: str) -> ipaddress.IPv4Interface:
    """An address of Linux for argparse, in a network with room for a device."""
    try:
        ip = parse_ip(text)
    except WireAddressError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if ip.network.prefixlen == ip.max_prefixlen:
        raise argparse.ArgumentTypeError(f"ip is {text!r}; allowed: a prefix of up to 31")
    return ip


def user_option(text: str) -> pwd.struct_passwd:
    """A user of this machine for argparse."""
    try:
        return pwd.getpwnam(text)
    except (KeyError, ValueError):
        raise argparse.ArgumentTypeError(
            f"user is {text!r}; allowed: the name of a user of this machine"
        ) from None


def this_user() -> pwd.struct_passwd:
    """Who called, even through sudo. Raises `WireError` for a user without a name."""
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(os.environ["SUDO_USER"])
    try:
        return pwd.getpwuid(os.getuid())
    except KeyError:  # as in containers
        raise WireError(f"user {os.getuid()} has no name; allowed: --user USER") from None


def add_wire(subparsers: Any) -> None:
    """Adds the command to those of a parser."""
    parser = subparsers.add_parser(
        "wire",
        help="set up a TAP, or check a simulated Ethernet wire",
        description="Makes the TAP of a name, if it is not there, gives it to a user, gives Linux "
        "an address on it, sets it up, and says what else is needed. That needs root. Any other "
        "wire, and a whole address sim://?wire=..., is checked: it is opened and closed.",
    )
    parser.add_argument(
        "wire",
        type=wire_option,
        metavar="WIRE",
        help=f"NAME of a TAP, {FORMS}, or an address such as "
        "'sim://?wire=tap:tap0&ip=192.0.2.2/24&loss=0.01'",
    )
    parser.add_argument(
        "--ip",
        type=ip_option,
        metavar="ADDRESS/PREFIX",
        help=f"of Linux on a TAP ({DEFAULT_IP})",
    )
    parser.add_argument(
        "--mtu",
        type=number("mtu", MINIMUM_MTU, MAXIMUM_MTU),
        help=f"of a TAP ({DEFAULT_MTU})",
    )
    parser.add_argument(
        "--user", type=user_option, help="who may open a TAP (who calls, or who called sudo)"
    )
    parser.set_defaults(check=_check, run=_run)


def _is_tap(wire: Attachment | WireAddress) -> bool:
    return isinstance(wire, Attachment) and wire.kind == "tap"


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if _is_tap(options.wire):
        return
    for name in ("ip", "mtu", "user"):
        if getattr(options, name) is not None:
            parser.error(f"--{name} is for a TAP that is set up; allowed: NAME or tap:NAME")


def _run(options: argparse.Namespace) -> int:
    from stagecoach.cli.wire import command

    if not _is_tap(options.wire):
        return command.check(options.wire)
    return command.set_up(
        options.wire.name,
        options.ip or ip_option(DEFAULT_IP),
        options.mtu or DEFAULT_MTU,
        options.user or this_user(),
    )
