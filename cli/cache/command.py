"""What `stagecoach cache` shows and removes."""

import json
import time
from typing import Any

from rich.console import Console
from rich.table import Table

from stagecoach.cli.plain_text import printable
from stagecoach.hw import cache

_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_TIMES = ((86400, "day"), (3600, "hour"), (60, "minute"))


def size_text(octets: int) -> str:
    """A size in the largest unit that it reaches."""
    for unit, name in _UNITS:
        if octets >= unit:
            return f"{octets / unit:.1f} {name}"
    return f"{octets} bytes"


def age_text(seconds: float) -> str:
    """How long ago something was."""
    for unit, name in _TIMES:
        count = int(seconds // unit)
        if count:
            return f"{count} {name}{'s' if count > 1 else ''} ago"
    return "now"


def _rows(entries: list[cache.Entry]) -> list[dict[str, Any]]:
    rows = []
    for kind, what in cache.KINDS.items():
        of_kind = [entry for entry in entries if entry.kind == kind]
        rows.append(
            {
                "what": what,
                "entries": len(of_kind),
                "size_bytes": sum(entry.size for entry in of_kind),
                "used_unix_seconds": max((entry.used for entry in of_kind), default=None),
            }
        )
    return rows


def show_cache(as_json: bool) -> int:
    """Prints what the cache has; returns the exit status."""
    folder, limit = cache.root(), cache.limit()
    rows = _rows(cache.entries())
    if as_json:
        print(json.dumps({"folder": str(folder), "limit_bytes": limit, "kinds": rows}, indent=2))
        return 0
    table = Table()
    table.add_column("what")
    for heading in ("entries", "size", "last used"):
        table.add_column(heading, justify="right")
    for row in rows:
        used = row["used_unix_seconds"]
        age = "" if used is None else age_text(time.time() - used)
        table.add_row(row["what"], str(row["entries"]), size_text(row["size_bytes"]), age)
    Console().print(table)
    total = size_text(sum(row["size_bytes"] for row in rows))
    print(f"{printable(str(folder))}: {total} of {size_text(limit)} ({cache.LIMIT_VARIABLE})")
    return 0


def clear_cache() -> int:
    """Removes what the cache has; returns the exit status."""
    removed, busy = cache.clear()
    size = size_text(sum(entry.size for entry in removed))
    print(f"{printable(str(cache.root()))}: {len(removed)} entries removed, {size}")
    if busy:
        print(f"{len(busy)} entries stay: another process is building them")
    return 0
