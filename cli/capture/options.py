"""The options of `stagecoach capture`."""

import argparse
from pathlib import Path
from typing import Any

from stagecoach.host_driver.snapshots.folder import FOLDER_VARIABLE, PRIVATE


def add_capture(subparsers: Any) -> None:
    """Adds the command to those of a parser."""
    parser = subparsers.add_parser(
        "capture",
        help="show the headers of the last frames of a network",
        description="Shows the headers of the last 64 frames of each device with a network of its "
        "own, the oldest first. The programs that have the devices are seen as by `stagecoach ip`: "
        f"with {FOLDER_VARIABLE}={PRIVATE} in their environment. For whole frames, give the "
        "device pcap=FILE.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, bytes in hexadecimal")
    parser.add_argument(
        "-w",
        dest="file",
        type=Path,
        metavar="FILE",
        help="write them to this pcapng file instead, for Wireshark",
    )
    parser.set_defaults(check=_check, run=_run)


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.json and options.file is not None:
        parser.error("-w and --json are given; allowed: one of them")


def _run(options: argparse.Namespace) -> int:
    from stagecoach.cli.capture.command import capture

    return capture(options.json, options.file)
