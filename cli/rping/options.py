"""The options of `stagecoach rping`."""

import argparse
import dataclasses
from typing import Any

from stagecoach.cli.options import (
    add_device,
    add_startup,
    check_startup,
    number,
    seconds,
    startup_options,
)
from stagecoach.ulp.rping.ends import DEFAULT_IDLE, DEFAULT_PORT, DEFAULT_SIZE, Settings
from stagecoach.ulp.rping.link import PATIENCE
from stagecoach.ulp.rping.messages import MAXIMUM_SIZE, MINIMUM_SIZE


def add_rping(subparsers: Any) -> None:
    """Adds the command to those of a parser."""
    rping = subparsers.add_parser(
        "rping",
        help="RDMA ping-pong, with the messages of rping",
        description="Does what rping of rdmacm-utils does, with a simulated device: the server "
        "reads every ping of the client by RDMA Read and writes it back by RDMA Write. The other "
        "side is another `stagecoach rping`, or `rping` on Linux (docs/interop.md).",
    )
    side = rping.add_mutually_exclusive_group(required=True)
    side.add_argument("-s", dest="server", action="store_true", help="be the server")
    side.add_argument("-c", dest="server", action="store_false", help="be the client")
    rping.add_argument(
        "-a",
        dest="address",
        default="",
        metavar="ADDRESS",
        help="of the server; there it says where to listen (at all addresses)",
    )
    rping.add_argument(
        "-p",
        dest="port",
        type=number("port", 0, 65535),
        default=DEFAULT_PORT,
        help="of the server (%(default)s); 0 lets the server choose, and -d tells which",
    )
    rping.add_argument(
        "-C",
        dest="count",
        type=number("count", 0, (1 << 31) - 1),
        default=0,
        metavar="COUNT",
        help="pings of the client; 0 for ever (%(default)s)",
    )
    rping.add_argument(
        "-S",
        dest="size",
        type=number("size", MINIMUM_SIZE, MAXIMUM_SIZE),
        default=DEFAULT_SIZE,
        metavar="SIZE",
        help="bytes of a ping (%(default)s); the server takes shorter ones too",
    )
    rping.add_argument("-v", dest="verbose", action="store_true", help="print the ping data")
    rping.add_argument(
        "-V", dest="validate", action="store_true", help="the client compares what comes back"
    )
    rping.add_argument("-d", dest="debug", action="store_true", help="tell of every connection")
    rping.add_argument(
        "-P",
        dest="persistent",
        action="store_true",
        help="the server serves clients side by side, and does not end",
    )
    rping.add_argument(
        "--idle",
        type=_parse_idle,
        metavar="SECONDS",
        help="for which a client may be silent before the server ends its connection "
        f"({DEFAULT_IDLE:g}); 0 for ever; in the middle of a ping at most {PATIENCE:g}",
    )
    add_startup(rping)
    add_device(rping)
    rping.set_defaults(check=_check, run=_run)


def _parse_idle(text: str) -> float:
    return 0.0 if text == "0" else seconds("idle")(text)


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if not options.server and not options.address:
        parser.error("-c without -a; allowed: -c with -a and the address of the server")
    if not options.server and options.idle is not None:
        parser.error("--idle with -c; allowed: at the server")
    check_startup(parser, options)


def _run(options: argparse.Namespace) -> int:
    from stagecoach.cli.rping import command

    given = vars(options) | {"startup": startup_options(options)}
    if options.idle is None:
        given["idle"] = DEFAULT_IDLE
    names = [field.name for field in dataclasses.fields(Settings)]
    settings = Settings(**{name: given[name] for name in names})
    return command.rping(options.server, settings, options.device)
