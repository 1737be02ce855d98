"""The options of `stagecoach cache`."""

import argparse
from typing import Any

from stagecoach.hw.cache import DEFAULT_LIMIT_MIB, FOLDER_VARIABLE, LIMIT_VARIABLE


def add_cache(subparsers: Any) -> None:
    """Adds the command to those of a parser."""
    cache = subparsers.add_parser(
        "cache",
        help="show or clear what was built",
        description="Shows how much of what was built is kept, where, and when it was used last; "
        f"`clear` removes it. {FOLDER_VARIABLE} of the environment names another folder, "
        f"{LIMIT_VARIABLE} how many MiB it may have ({DEFAULT_LIMIT_MIB}).",
    )
    cache.add_argument("action", nargs="?", choices=("show", "clear"), default="show")
    cache.add_argument("--json", action="store_true", help="print JSON instead of a table")
    cache.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from stagecoach.cli.cache.command import clear_cache, show_cache

    return clear_cache() if options.action == "clear" else show_cache(options.json)
