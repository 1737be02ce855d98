"""Values of options of the `stagecoach` command."""

import argparse
import os
import re
from collections.abc import Callable

from stagecoach.host_driver.hostlink.serial_device import DEFAULT_BAUD
from stagecoach.host_driver.locate import SIMULATION, device_option
from stagecoach.host_driver.snapshots.publisher import parse_interval

DEVICE_VARIABLE = "STAGECOACH_DEVICE"
"""Environment variable: the device of commands that are not told of one."""

DEFAULT_EMSS = 1460
"""Payload of a TCP segment in an Ethernet frame of 1500 octets."""

_SIZE = re.compile(r"(\d+)\s*(|B|KiB|MiB|GiB)")
_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

_MAXIMUM_SIZE = 1 << 30  # of generated data: both ends hold all of it, the source twice


def parse_size(text: str) -> int:
    """Octets of a size such as 4MiB, 64KiB or 1000."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(
            f"size is {text!r}; allowed: a number of octets, or of KiB, MiB, GiB"
        )
    octets = int(match[1]) * _UNITS[match[2]]
    if octets > _MAXIMUM_SIZE:
        raise argparse.ArgumentTypeError(f"{text} is too large; allowed: 0 to 1GiB")
    return octets


def parse_emss(text: str) -> int:
    """An EMSS that devices take."""
    from stagecoach.host_driver.cm import MAXIMUM_EMSS, MINIMUM_EMSS

    if not text.isdecimal() or not MINIMUM_EMSS <= int(text) <= MAXIMUM_EMSS:
        raise argparse.ArgumentTypeError(
            f"EMSS is {text}; allowed: {MINIMUM_EMSS} to {MAXIMUM_EMSS}"
        )
    return int(text)


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
        help=f"{what}: simulation, or serial:///dev/ttyUSB0?baud={DEFAULT_BAUD} "
        f"({DEVICE_VARIABLE} of the environment, else simulation)",
    )


def number(name: str, least: int, most: int) -> Callable[[str], int]:
    """What parses an integer in a range, both ends included."""

    def parse(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{name} is {text}; allowed: {least} to {most}")
        return int(text)

    return parse
