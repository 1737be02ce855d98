"""The clients of NFS servers: what a server has published, checked, and the table of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stagecoach.cli.plain_text import TITLE, plain
from stagecoach.host_driver.snapshots.checks import (
    check_count,
    check_time,
    read_object,
    require,
)

_COUNTS = ("calls", "octets_received", "octets_sent")
_MOST_CLIENTS = 10_000


@dataclass
class ServerView:
    """The last snapshot of a server, with the rates of each client since the one before."""

    last: dict[str, Any]
    rates: dict[int, dict[str, float]]

    def as_json(self) -> dict[str, Any]:
        """The snapshot with its rates."""
        rows = [
            {
                **row,
                **{
                    f"{name}_per_second": round(rate, 1)
                    for name, rate in self.rates[row["client"]].items()
                },
            }
            for row in self.last["clients"]
        ]
        return {**self.last, "clients": rows}


def server_view(before: dict[str, Any] | None, after: dict[str, Any]) -> ServerView:
    """What happened from one snapshot of a server to a later one; rates are 0 in the first."""
    seconds = 0.0 if before is None else after["time"] - before["time"]
    known = {} if before is None else {row["client"]: row for row in before["clients"]}
    rates = {}
    for row in after["clients"]:
        old = known.get(row["client"], dict.fromkeys(_COUNTS, 0))
        rates[row["client"]] = {
            name: (row[name] - old[name]) / seconds if seconds > 0 else 0.0 for name in _COUNTS
        }
    return ServerView(after, rates)


def read_server(path: Path) -> dict[str, Any]:
    """The snapshot of a server. Raises `FolderError` that says what is wrong with the file."""
    found = read_object(path)
    require(isinstance(found.get("program"), str), "program", found.get("program"), "text")
    require(isinstance(found.get("open"), bool), "open", found.get("open"), "true, false")
    check_count(found, "server")
    check_time(found, "time")
    rows: Any = found.get("clients")
    require(isinstance(rows, list) and len(rows) <= _MOST_CLIENTS, "clients", rows, "a list")
    for row in rows:
        require(isinstance(row, dict), "client", row, "an object")
        for name in ("client", *_COUNTS):
            check_count(row, name)
        check_time(row, "since")
        for name in ("address", "over"):
            require(isinstance(row.get(name), str), name, row.get(name), "text")
        mounted = row.get("mounted")
        is_list = isinstance(mounted, list) and all(isinstance(each, str) for each in mounted)
        require(is_list, "mounted", mounted, "a list of texts")
    return found


def server_table(view: ServerView, quantity: Any) -> RenderableType:
    """One line for each client; `quantity` writes a number."""
    last = view.last
    title = plain(f"NFS server {last['server']}: {last['program']}", TITLE)
    if not last["clients"]:
        return Group(title, Text("no client is connected\n"))
    table = Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("client", justify="right")
    for heading in ("address", "over"):
        table.add_column(heading, no_wrap=True)
    for heading in ("for, s", "calls", "calls/s", "received\nbytes/s", "sent\nbytes/s"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("mounted")
    for row in last["clients"]:
        rates = view.rates[row["client"]]
        table.add_row(
            str(row["client"]),
            plain(row["address"]),
            plain(row["over"]),
            f"{max(0.0, last['time'] - row['since']):.0f}",
            quantity(row["calls"]),
            *(quantity(rates[name]) for name in _COUNTS),
            plain(" ".join(row["mounted"])),
        )
    return table
