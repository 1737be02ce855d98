"""Values of options of the `stagecoach` command."""

import argparse
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stagecoach.host_driver.hostlink.serial_link import DEFAULT_BAUD
from stagecoach.host_driver.locate import DEVICE_VARIABLE, SIMULATION, device_option
from stagecoach.host_driver.mpa_exchange import DEFAULT_TIMEOUT
from stagecoach.host_driver.mpa_startup import ENHANCED_REVISION, PLAIN_REVISION
from stagecoach.host_driver.snapshots.publisher import parse_interval
from stagecoach.host_driver.startup_options import StartupOptions

DEFAULT_EMSS = 1460
"""Payload of a TCP segment in an Ethernet frame of 1500 bytes."""

_SIZE = re.compile(r"(\d+)\s*(|B|KiB|MiB|GiB)")
_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

_MAXIMUM_SIZE = 1 << 30  # of generated data: both ends hold all of it, the source twice


def _octets(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(
            f"invalid size {text!r} (expected a size such as 4096 or 64KiB)"
        )
    return int(match[1]) * _UNITS[match[2]]


def parse_size(text: str) -> int:
    """Bytes of a size such as 4MiB, 64KiB or 1000."""
    octets = _octets(text)
    if octets > _MAXIMUM_SIZE:
        raise argparse.ArgumentTypeError(f"{text} is too large; allowed: 0 to 1GiB")
    return octets


def size(name: str, least: int, most: int) -> Callable[[str], int]:
    """What parses a size in a range of bytes, both ends included."""

    def parse(text: str) -> int:
        octets = _octets(text)
        if not least <= octets <= most:
            raise argparse.ArgumentTypeError(f"{name} is {text}; allowed: {least} to {most} bytes")
        return octets

    return parse


def parse_emss(text: str) -> int:
    """An EMSS that devices take."""
    from stagecoach.host_driver.cm import MAXIMUM_EMSS, MINIMUM_EMSS

    if not text.isdecimal() or not MINIMUM_EMSS <= int(text) <= MAXIMUM_EMSS:
        raise argparse.ArgumentTypeError(
            f"EMSS is {text}; allowed: {MINIMUM_EMSS} to {MAXIMUM_EMSS}"
        )
    return int(text)


def parse_file(text: str) -> Path:
    """A regular file that can be read."""
    try:
        # Without O_NONBLOCK the opening of a FIFO waits for a writer.
        with open(os.open(text, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            if stat.S_ISDIR(status.st_mode):
                why = "Is a directory"
            elif not stat.S_ISREG(status.st_mode):
                why = "not a regular file"
            elif status.st_size == 0 and file.read(1):
                why = "it has content but no size"  # as files in /proc
            else:
                return Path(text)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
    raise argparse.ArgumentTypeError(f"cannot read {text}: {why}; allowed: a regular file")


def interval(text: str) -> float:
    """`parse_interval` for argparse."""
    try:
        return parse_interval(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_device(parser: argparse.ArgumentParser, what: str = "the device") -> None:
    """Adds the option `--device`, a `Locator`."""
    parser.add_argument(
        "--device",
        type=device_option,
        default=os.environ.get(DEVICE_VARIABLE) or SIMULATION,
        metavar="DEVICE",
        help=f"{what}: simulation, sim://?wire=WIRE&ip=192.0.2.2/24 with a network of its own, or "
        f"serial:///dev/ttyUSB0?baud={DEFAULT_BAUD} ({DEVICE_VARIABLE} of the environment, else "
        "simulation)",
    )


def number(name: str, least: int, most: int) -> Callable[[str], int]:
    """What parses an integer in a range, both ends included."""

    def parse(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{name} is {text}; allowed: {least} to {most}")
        return int(text)

    return parse


_MOST_SECONDS = 86400


def seconds(name: str) -> Callable[[str], float]:
    """What parses a time in seconds, more than 0 and up to a day."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0 < value <= _MOST_SECONDS:
            raise argparse.ArgumentTypeError(
                f"{name} is {text}; allowed: above 0 to {_MOST_SECONDS} s"
            )
        return value

    return parse


_STARTUP = ("crc", "markers", "revision", "peer_to_peer")


def add_startup(parser: argparse.ArgumentParser, *, timeout: float = DEFAULT_TIMEOUT) -> None:
    """Adds the options of MPA startup, the same at every command that connects or listens.

    `timeout`: of this command if it is not told of another. An option that was not given is `None`;
    `startup_options` is what they say.
    """
    group = add_mpa(parser)
    group.add_argument(
        "--peer-to-peer",
        action="store_true",
        default=None,
        help="begin with an RTR frame, after which either end may send first; a server takes only "
        "clients that do",
    )
    group.add_argument(
        "--timeout",
        type=seconds("timeout"),
        metavar="SECONDS",
        help=f"for the connection and MPA startup together ({timeout:g})",
    )
    parser.set_defaults(startup_timeout=timeout)


def add_mpa(parser: argparse.ArgumentParser) -> Any:
    """Adds those of `add_startup` that say nothing of time and of who sends first.

    Returns the group of options.
    """
    group = parser.add_argument_group(
        "MPA startup", "What this end asks for when a connection begins (RFC 5044, RFC 6581)."
    )
    group.add_argument(
        "--crc",
        action=argparse.BooleanOptionalAction,
        help="check and send CRCs (yes); they are off only if both ends have --no-crc",
    )
    group.add_argument(
        "--markers", action="store_true", default=None, help="ask the peer to send Markers"
    )
    group.add_argument(
        "--revision",
        type=number("revision", PLAIN_REVISION, ENHANCED_REVISION),
        metavar="REVISION",
        help=f"of MPA: {PLAIN_REVISION} is RFC 5044 without RFC 6581 ({ENHANCED_REVISION}); a "
        "server takes no newer one",
    )
    return group


def check_startup(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Ends with a message if options of `add_startup` do not fit together."""
    if options.revision == PLAIN_REVISION and options.peer_to_peer:
        parser.error(
            f"--peer-to-peer with --revision {PLAIN_REVISION}; "
            f"allowed: with revision {ENHANCED_REVISION}"
        )


def startup_options(options: argparse.Namespace) -> StartupOptions:
    """What the options of `add_startup` say."""
    given = vars(options)
    told = {name: given[name] for name in _STARTUP if given[name] is not None}
    timeout = given["startup_timeout"] if given["timeout"] is None else given["timeout"]
    return StartupOptions(timeout=timeout, **told)
