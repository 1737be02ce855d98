"""The tables of `stagecoach top`."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stagecoach.cli.plain_text import TITLE, plain
from stagecoach.cli.top.nfs_clients import ServerView, server_table
from stagecoach.cli.top.rates import DeviceView
from stagecoach.hw.interface.causes import CODES, Cause

_UNITS = ("", "k", "M", "G", "T")


def quantity(number: float) -> str:
    """A number of at most four digits with a decimal unit: 1.23k, 45.6M."""
    unit = 0
    while abs(number) >= 999.5 and unit < len(_UNITS) - 1:
        number /= 1000
        unit += 1
    if unit == 0:
        return f"{number:.0f}"
    return f"{number:.3g}{_UNITS[unit]}"


def _row(values: Mapping[str, int], rates: Mapping[str, float]) -> list[str]:
    if not rates:
        return ["-"] * 7
    cells = []
    for direction in ("sent", "received"):
        for unit in ("octets", "messages"):
            cells.append(quantity(rates[f"{unit}_{direction}"]))
        cells.append(quantity(values[f"octets_{direction}"]))
    return [str(values["outstanding_reads"]), *cells]


def _device(one: DeviceView) -> RenderableType:
    last = one.last
    state = "" if last["open"] else ", closed"
    title = f"device {last['device']} ({last['kind']}{state}): {last['program']}"
    table = Table(
        title=plain(title, TITLE), title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0)
    )
    table.add_column("QP", justify="right")
    table.add_column("state", no_wrap=True)
    headings = ["reads", "sent\nbytes/s", "messages/s", "bytes"]
    headings += ["received\nbytes/s", "messages/s", "bytes"]
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for qp in last["qps"]:
        state = qp["state"] if qp["cause"] == "NONE" else f"{qp['state']} {qp['cause']}"
        table.add_row(str(qp["qp"]), state, *_row(qp, one.qp_rates[qp["qp"]]))
    table.add_section()
    table.add_row("all", "", *_row(last["total"], one.rates))
    lines = [
        f"{count:,} stopped: {CODES[Cause[name]][1]} ({name})"
        for name, count in last.get("stopped", {}).items()
    ]
    if not last["counters"]:
        lines.append("the device was built without counters (COUNTERS=0): nothing is counted")
    if last.get("dropped_fpdus"):
        lines.append(f"{last['dropped_fpdus']:,} FPDUs dropped: their QP did not run")
    if last.get("events_lost"):
        lines.append(f"{last['events_lost']:,} events lost: the event queue was full")
    if last.get("events_not_counted"):
        lines.append(f"{last['events_not_counted']:,} events or more are in no counter")
    if last.get("network") is not None:
        lines.append(_network(last["network"]))
    lines.append(f"{quantity(one.cycles_per_second)} cycles per second")
    return Group(table, Text("\n".join(lines)))


def _network(network: Mapping[str, Any]) -> str:
    """What the connections that are there have sent; `stagecoach ip` shows each of them."""
    known = [each["info"] for each in network["connections"] if each["info"] is not None]
    sent, again = (
        sum(each[name] for each in known) for name in ("segments_sent", "retransmissions")
    )
    count = "1 connection" if len(known) == 1 else f"{len(known)} connections"
    return f"{network['address']}: {count}, {sent:,} segments sent, {again:,} of them again"


def screen(
    views: Iterable[DeviceView], notes: Iterable[str] = (), servers: Iterable[ServerView] = ()
) -> RenderableType:
    """All devices and NFS servers, one under the other, and lines below them."""
    shown = [_device(one) for one in views] + [server_table(one, quantity) for one in servers]
    return Group(*(shown or [Text("no device is open")]), *(plain(note) for note in notes))
