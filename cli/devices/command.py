"""What `stagecoach devices` finds: the simulated device, and boards at serial ports."""

import dataclasses
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text
from serial.tools import list_ports

from stagecoach.cli.describe import capabilities, network_of, sizes, version
from stagecoach.cli.plain_text import printable
from stagecoach.gateware.config import RnicConfig
from stagecoach.host_driver.context import Context
from stagecoach.host_driver.errors import StagecoachError
from stagecoach.host_driver.extras import extra_named
from stagecoach.host_driver.locate import (
    NETWORK_CARD,
    SIMULATED,
    SIMULATION,
    Locator,
    parse_device,
)
from stagecoach.hw.cache import CacheError
from stagecoach.sim.build import BuildError, build_device

BRIDGES = {(0x0403, 0x6010), (0x0403, 0x6011), (0x0403, 0x6014), (0x0403, 0x6015)}
"""USB vendor and product of the serial bridges on boards. Other ports are not asked: who knows what
is there."""

OPEN_SECONDS = 1.0

SHORT_STATE = 20
"""Columns: a state up to this is shown whole."""

CUT_STATE = 12
"""Columns that a longer state has at least, which is an error."""

LEAST_ADDRESS = 12
"""Columns of addresses that are cut; in a terminal so narrow the states are cut."""


class _NotBuilt(BuildError):
    """The simulated device is not in the cache."""


def find_devices(named: Iterable[Locator], baud: int) -> list[dict[str, Any]]:
    """All devices: the simulated one, those that are named, those at the system's serial ports.

    A board that is asked is reset. `baud` is that of ports that are not named.
    """
    rows = [_simulated()]
    named = [locator for locator in named if not locator.is_simulated]
    rows += [_ask(locator) for locator in named]
    known = {locator.port for locator in named}
    for port in sorted(list_ports.comports()):
        if port.device in known:
            continue
        text = f"serial://{port.device}?baud={baud}"
        if (port.vid, port.pid) in BRIDGES:
            rows.append(_ask(parse_device(f"{text}&open={OPEN_SECONDS}"), text))
        else:
            rows.append({"device": text, "kind": "serial", "state": "not asked: name it"})
    return rows


def _if_built(build: Callable[..., Path]) -> Path:
    """A device is not built only to be listed."""

    def refuse(step: str) -> None:
        raise _NotBuilt("not built: the first command that uses it does that")

    return build(progress=refuse)


def _simulated() -> dict[str, Any]:
    """The simulated device."""
    built: dict[str, Any] = dataclasses.asdict(RnicConfig())
    try:
        with extra_named():
            library = _if_built(build_device)
    except (BuildError, CacheError, StagecoachError) as error:
        words = str(error).splitlines()[0]
        row: dict[str, Any] = {"device": SIMULATION, "kind": SIMULATION, "state": words}
        return row | {"configuration": built}
    row = _ask(SIMULATED, library=lambda: library)
    return row | {"configuration": row.get("configuration", {}) | built}


def _ask(
    locator: Locator, text: str | None = None, library: Callable[..., Path] = _if_built
) -> dict[str, Any]:
    kind = NETWORK_CARD if locator.is_card else SIMULATION if locator.is_simulated else "serial"
    row: dict[str, Any] = {"device": text or locator.text, "kind": kind}
    try:
        device = locator.open(library=library)
        with Context(device) as context:
            attr = context.query_device()
        found = device.info
    except (BuildError, CacheError, StagecoachError, OSError) as error:
        return row | {"state": str(error).splitlines()[0]}
    row["state"] = "ready"
    if "clock_hz" in found:
        row["clock_hz"] = found["clock_hz"]
    configuration: dict[str, Any] = {"version": version(attr)} | network_of(found) | sizes(attr)
    return row | {"configuration": configuration, "capabilities": capabilities(attr)}


def show_devices(named: Iterable[Locator], baud: int, as_json: bool) -> int:
    """Prints all devices; returns the exit status."""
    rows = find_devices(named, baud)
    if as_json:
        print(json.dumps(rows, indent=2))
        return 0
    console = Console()
    lines = _fitted([_HEADINGS, *map(_cells, rows)], console.width)
    *widths, _ = (max(map(len, column)) for column in zip(*lines, strict=True))
    for number, cells in enumerate(lines):
        line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=False))
        # What does not fit stands in the JSON, and `info` tells it of one device.
        words = Text(f"{line}  {cells[-1]}", style="" if number else "bold")
        words.truncate(console.width, overflow="ellipsis")
        console.print(words, no_wrap=True)
    return 0


def _fitted(lines: list[tuple[str, ...]], width: int) -> list[tuple[str, ...]]:
    """The lines, with addresses that leave enough of so many columns for all that comes after."""
    *others, states = zip(*(cells[1:] for cells in lines), strict=True)
    room = max(len(each) if len(each) <= SHORT_STATE else CUT_STATE for each in states)
    taken = room + sum(2 + max(map(len, column)) for column in others) + 2
    left = max(LEAST_ADDRESS, width - taken)
    return [(_shortened(address, left), *rest) for address, *rest in lines]


def _shortened(address: str, width: int) -> str:
    """An address without its middle if it is longer: boards differ at its end."""
    if len(address) <= width:
        return address
    begin = width // 4
    return f"{address[:begin]}\N{HORIZONTAL ELLIPSIS}{address[begin + 1 - width :]}"


_HEADINGS = ("device", "clock", "version", "QPs", "STags", "state")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    """The line of a device. A simulated one has no clock; of one that fails no more is known."""
    has = row.get("configuration", {})
    clock = f"{row['clock_hz'] / 1e6:g} MHz" if "clock_hz" in row else "-"
    known = (str(has.get(name, "-")) for name in ("version", "max_qp", "max_mr"))
    return printable(row["device"]), clock, *known, printable(row["state"])
