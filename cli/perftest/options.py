"""The options of `stagecoach perftest`, named as those of the tools."""

import argparse
import dataclasses
import re
from collections.abc import Callable
from typing import Any

from stagecoach.cli.options import (
    add_device,
    add_mpa,
    check_startup,
    number,
    seconds,
    startup_options,
)
from stagecoach.host_driver.mpa_startup import ENHANCED_REVISION, PLAIN_REVISION
from stagecoach.ulp.perftest.ends import (
    DEFAULT_MODERATION,
    DEFAULT_PATIENCE,
    DEFAULT_PORT,
    DEFAULT_RX_DEPTH,
    MAXIMUM_DEPTH,
    MINIMUM_RX_DEPTH,
    Settings,
)
from stagecoach.ulp.perftest.messages import RELEASE
from stagecoach.ulp.perftest.tools import MAXIMUM_SIZE, MINIMUM_ITERATIONS, TOOLS

_SIZE = re.compile(r"(\d+)([KM]?)", re.ASCII)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}
_MAXIMUM_ITERATIONS = 100_000_000


def add_perftest(subparsers: Any) -> None:
    """Adds the command to those of a parser."""
    perftest = subparsers.add_parser(
        "perftest",
        help=f"the tests of {RELEASE}",
        description=f"Does what the tools of {RELEASE} do with -R. The other side is another "
        "`stagecoach perftest`, or the tool on Linux (docs/perftest.md). Both ends need the same "
        "tool, size and number of messages.",
    )
    perftest.add_argument("tool", choices=TOOLS, metavar="TOOL", help=", ".join(TOOLS))
    perftest.add_argument(
        "host",
        nargs="?",
        default="",
        metavar="HOST",
        help="of the server; without it be the server",
    )
    perftest.add_argument(
        "-s",
        "--size",
        type=_size,
        help="bytes of a message, K and M allowed (65536; 2 for latency)",
    )
    perftest.add_argument(
        "-n",
        "--iters",
        type=number("iterations", MINIMUM_ITERATIONS, _MAXIMUM_ITERATIONS),
        help="messages (1000; 5000 for ib_write_bw)",
    )
    perftest.add_argument(
        "-p",
        "--port",
        type=number("port", 0, 65535),
        default=DEFAULT_PORT,
        help="of the server (%(default)s); 0 lets the server choose, and it tells which",
    )
    perftest.add_argument(
        "-R",
        "--rdma_cm",
        action="store_true",
        help="connect with rdma_cm, as this command always does",
    )
    perftest.add_argument(
        "--source_ip",
        default="",
        metavar="ADDRESS",
        help="where the server listens (at all addresses)",
    )
    perftest.add_argument(
        "-t",
        "--tx-depth",
        type=number("tx-depth", 1, MAXIMUM_DEPTH),
        help="work requests under way (128; 50 for latency)",
    )
    perftest.add_argument(
        "-r",
        "--rx-depth",
        type=number("rx-depth", MINIMUM_RX_DEPTH, MAXIMUM_DEPTH),
        default=DEFAULT_RX_DEPTH,
        help="receives posted ahead by ib_send_bw and ib_send_lat (%(default)s)",
    )
    perftest.add_argument(
        "-Q",
        "--cq-mod",
        type=number("cq-mod", 1, MAXIMUM_DEPTH),
        default=DEFAULT_MODERATION,
        help="one completion for so many messages (%(default)s; 1 for those over 8192 bytes)",
    )
    perftest.add_argument(
        "-o",
        "--outs",
        type=number("outs", 1, 255),
        help="RDMA Reads under way (what the device has, which is also the most)",
    )
    perftest.add_argument(
        "--timeout",
        type=seconds("timeout"),
        default=DEFAULT_PATIENCE,
        metavar="SECONDS",
        help="give up a peer that does nothing for so long, in MPA startup too (%(default)g)",
    )
    add_mpa(perftest).add_argument(
        "--peer-to-peer",
        action=argparse.BooleanOptionalAction,
        help="the client connects the QP of the test peer-to-peer, RFC 6581 (only of ib_write_lat, "
        "whose server begins); the server takes no other client",
    )
    add_device(perftest)
    perftest.set_defaults(check=_check, run=_run)


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    octets = int(match[1]) * _UNITS[match[2]] if match else 0
    if not 1 <= octets <= MAXIMUM_SIZE:
        raise argparse.ArgumentTypeError(f"size is {text}; allowed: 1 to {MAXIMUM_SIZE}, K and M")
    return octets


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.host and options.source_ip:
        parser.error("--source_ip at the client; allowed: at the server, which has no HOST")
    if options.host and not options.port:
        parser.error("port is 0; allowed at the client: 1 to 65535")
    check_startup(parser, options)
    if TOOLS[options.tool].server_first and options.revision == PLAIN_REVISION:
        parser.error(
            f"--revision {PLAIN_REVISION} with {options.tool}, whose client connects peer-to-peer; "
            f"allowed: with revision {ENHANCED_REVISION}"
        )


def _settings(options: argparse.Namespace) -> Settings:
    tool = TOOLS[options.tool]
    startup = startup_options(options)
    given = vars(options) | {"tool": tool}
    given |= {name: getattr(startup, name) for name in ("crc", "markers", "revision")}
    defaults = {"size": tool.size, "iters": tool.iterations, "tx_depth": tool.tx_depth}
    for name, value in defaults.items():
        given[name] = value if given[name] is None else given[name]
    return Settings(**{field.name: given[field.name] for field in dataclasses.fields(Settings)})


def _run(options: argparse.Namespace) -> int:
    from stagecoach.cli.perftest import command

    run: Callable[..., int] = command.perftest
    return run(_settings(options), options.device)
