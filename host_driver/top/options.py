"""The options of `stagecoach top`."""

import argparse
from typing import Any

from host_driver.options import parse_interval
from host_driver.top.command import top
from host_driver.top.publisher import DEFAULT_INTERVAL


def add_top(subparsers: Any) -> None:
    """Adds the command to those of a parser."""
    parser = subparsers.add_parser(
        "top",
        help="show what the devices of a program do, while it runs",
        description="Runs COMMAND and shows, for each device that it or its children open, QPs "
        "and their states, octets and messages per second, outstanding reads, errors and drops "
        "with their reason. What COMMAND prints is printed on standard error when it has ended. "
        "The exit status is that of COMMAND.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.add_argument(
        "--once", action="store_true", help="only at the end of COMMAND, with rates of its life"
    )
    parser.add_argument(
        "--interval",
        type=parse_interval,
        default=DEFAULT_INTERVAL,
        metavar="SECONDS",
        help="between two looks (%(default)s)",
    )
    parser.add_argument(
        "program", nargs="+", metavar="COMMAND", help="after --, e.g. -- stagecoach perf write"
    )


def run_top(options: argparse.Namespace) -> int:
    """Runs the command and returns its exit status."""
    return top(options.program, once=options.once, as_json=options.json, interval=options.interval)
