"""The options of `stagecoach top`."""

import argparse
from typing import Any

from stagecoach.cli.options import interval
from stagecoach.host_driver.locate import device_option
from stagecoach.host_driver.snapshots.folder import FOLDER_VARIABLE, PRIVATE
from stagecoach.host_driver.snapshots.publisher import DEFAULT_INTERVAL


def add_top(subparsers: Any) -> None:
    """Adds the command to those of a parser."""
    parser = subparsers.add_parser(
        "top",
        help="show what the devices of programs do, while they run",
        description="Runs COMMAND and shows, for each device that it or its children open, QPs "
        "and their states, bytes and messages per second, outstanding reads, errors and drops "
        "with their reason. What COMMAND prints is printed on standard error when it has ended. "
        "The exit status is that of COMMAND.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.add_argument(
        "--once", action="store_true", help="only at the end of COMMAND, with rates of its life"
    )
    parser.add_argument(
        "--interval",
        type=interval,
        default=DEFAULT_INTERVAL,
        metavar="SECONDS",
        help="between two looks (%(default)s)",
    )
    parser.add_argument(
        "--device",
        type=device_option,
        metavar="DEVICE",
        help="that of the commands of stagecoach in COMMAND, unless they name one",
    )
    parser.add_argument(
        "program",
        nargs="*",
        metavar="COMMAND",
        help="after --, e.g. -- stagecoach perf write; without it, the devices of all programs of "
        f"this user are shown that have {FOLDER_VARIABLE}={PRIVATE} in their environment, or, if "
        "it names a folder, of those that have the same",
    )
    parser.set_defaults(check=_check, run=_run)


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.device is not None and not options.program:
        parser.error("--device without COMMAND; allowed: only with -- COMMAND")


def _run(options: argparse.Namespace) -> int:
    from stagecoach.cli.top.command import top, watch

    if not options.program:
        return watch(once=options.once, as_json=options.json, interval=options.interval)
    return top(
        options.program,
        once=options.once,
        as_json=options.json,
        interval=options.interval,
        device="" if options.device is None else options.device.text,
    )
