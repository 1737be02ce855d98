"""Checks of what another program has published, before any of it is believed.

Each raises `FolderError` that names the field, its value and what is allowed.
"""

import json
from pathlib import Path
from typing import Any

from stagecoach.host_driver.snapshots.folder import FolderError, read_file

_MOST_SECONDS = 1e12


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        found = json.loads(read_file(path))
    except (ValueError, RecursionError):  # not UTF-8 among them
        raise FolderError("not JSON") from None
    require(isinstance(found, dict), "it", found, "an object")
    known: dict[str, Any] = found
    return known


def require(ok: bool, name: str, value: object, allowed: str) -> None:
    """Raises unless `ok`."""
    if not ok:
        raise FolderError(f"{name} is {repr(value)[:40]}; allowed: {allowed}")


def check_count(found: dict[str, Any], name: str, where: str = "") -> None:
    """A field is a number of something; `where` it is."""
    value = found.get(name)
    require(type(value) is int and 0 <= value < 1 << 64, where + name, value, "0 to 2^64 - 1")


def check_time(found: dict[str, Any], name: str, where: str = "") -> None:
    """A field is a time, and no NaN."""
    value: Any = found.get(name)
    ok = type(value) in (int, float) and abs(value) < _MOST_SECONDS
    require(ok, where + name, value, "seconds since 1970")
