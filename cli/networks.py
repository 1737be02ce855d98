"""The networks that running programs of this user publish."""

import sys
from collections.abc import Iterator
from typing import Any

from stagecoach.cli.plain_text import printable
from stagecoach.host_driver.snapshots.file import read_snapshot
from stagecoach.host_driver.snapshots.folder import (
    FOLDER_VARIABLE,
    PRIVATE,
    FolderError,
    files,
    lives,
    named_folder,
    private_folder,
    process_of,
)

NOBODY = (
    f"no program with a network was found; start it with {FOLDER_VARIABLE}={PRIVATE} in its "
    "environment"
)
"""What is said where there is none."""


def networks() -> Iterator[dict[str, Any]]:
    """Those of devices that are open, with the program and the number of each device."""
    folder = named_folder() or private_folder()
    for path in files(folder):
        if not lives(process_of(path)):
            continue
        try:
            snapshot = read_snapshot(path)
        except FolderError as error:
            print(printable(f"{path} is not shown: {error}"), file=sys.stderr)
            continue
        network = snapshot.get("network")
        if network is not None and snapshot["open"]:
            names = {name: snapshot[name] for name in ("device", "program")}
            yield names | network
