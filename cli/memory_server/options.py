"""The options of `stagecoach memory-server`."""

import argparse
import re
from typing import Any

from stagecoach.cli.options import (
    add_device,
    add_startup,
    check_startup,
    number,
    size,
    startup_options,
)
from stagecoach.host_driver.locate import DeviceNameError, parse_device
from stagecoach.hw.interface.device_memory import MOST_MEMORY
from stagecoach.ulp.memory_server.protocol import DEFAULT_PORT


def add_memory_server(subparsers: Any) -> None:
    """Adds the command to those of a parser."""
    server = subparsers.add_parser(
        "memory-server",
        help="offer a device's own memory to peers on the network",
        description="Offers memory of the device, such as the DDR3 of a board, until it is "
        "interrupted. Peers read, write and do atomics with RDMA; `stagecoach memory` is such a "
        "peer. Everybody who can connect reads and writes all of it.",
    )
    server.add_argument(
        "--size",
        type=size("size", 1, MOST_MEMORY),
        metavar="SIZE",
        help="of the memory that is offered, such as 256MiB (all that the device has)",
    )
    server.add_argument(
        "--ip",
        metavar="IP/PREFIX",
        help="address of the device and prefix of its network, as or in place of the ip in "
        "--device",
    )
    server.add_argument(
        "-p",
        "--port",
        type=number("port", 0, 65535),
        default=DEFAULT_PORT,
        help="where to listen (%(default)s); 0 chooses one",
    )
    server.add_argument(
        "-v", "--verbose", action="store_true", help="tell of peers that come and go"
    )
    add_startup(server)
    add_device(server)
    server.set_defaults(check=_check, run=_run)


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    check_startup(parser, options)
    if options.ip is None:
        return
    text = options.device.text
    if options.device.is_simulated:
        parser.error(
            f"--ip with device {text}; allowed: with sim:// and serial://, which may have a "
            "network of their own"
        )
    if not re.fullmatch(r"[0-9./]+", options.ip):
        parser.error(f"--ip is {options.ip!r}; allowed: an IPv4 address and its prefix")
    address, given = re.subn(r"(?<=[?&])ip=[^&]*", f"ip={options.ip}", text)
    if not given:  # of a board; a simulated card always has one
        address += f"{'&' if '?' in text else '?'}ip={options.ip}"
    try:
        options.device = parse_device(address)
    except DeviceNameError as error:
        parser.error(str(error))


def _run(options: argparse.Namespace) -> int:
    from stagecoach.cli.memory_server import command

    startup = startup_options(options)
    return command.serve(options.device, options.size, options.port, startup, options.verbose)
