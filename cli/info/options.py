"""The options of `stagecoach info`."""

import argparse
from typing import Any

from stagecoach.cli.options import add_device


def add_info(subparsers: Any) -> None:
    """Adds the command to those of a parser."""
    info = subparsers.add_parser(
        "info",
        help="show a device",
        description="Opens a device and shows its sizes, versions and capabilities.",
    )
    info.add_argument("--json", action="store_true", help="print JSON instead of a table")
    add_device(info)
    info.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from stagecoach.cli.info import command

    return command.info(options.json, options.device)
