"""The options of `stagecoach devices`."""

import argparse
from typing import Any

from stagecoach.cli.options import number
from stagecoach.host_driver.hostlink.serial_link import DEFAULT_BAUD
from stagecoach.host_driver.locate import MAXIMUM_BAUD, device_option


def add_devices(subparsers: Any) -> None:
    """Adds the command to those of a parser."""
    devices = subparsers.add_parser(
        "devices",
        help="list simulated and serial devices",
        description="Lists the simulated device and those at serial ports, one a line; `info` "
        "tells more of one. Ports of the bridges that boards have are asked, and their boards "
        "are reset by that; others only if they are named.",
    )
    devices.add_argument(
        "--device",
        type=device_option,
        action="append",
        default=[],
        metavar="DEVICE",
        help=f"ask this one, too: serial:///dev/ttyUSB0?baud={DEFAULT_BAUD}",
    )
    devices.add_argument(
        "--baud",
        type=number("baud", 1, MAXIMUM_BAUD),
        default=DEFAULT_BAUD,
        help="of the boards that are not named (%(default)s)",
    )
    devices.add_argument(
        "--json", action="store_true", help="print JSON, with configuration and capabilities"
    )
    devices.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from stagecoach.cli.devices.command import show_devices

    return show_devices(options.device, options.baud, options.json)
