"""What `stagecoach devices` finds: the simulated device, and boards at serial ports."""

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table
from serial.tools import list_ports

from gateware.config import RnicConfig
from host_driver.context import Context
from host_driver.errors import StagecoachError
from host_driver.transport.locate import SIMULATION, Locator, parse_device

BRIDGES = {(0x0403, 0x6010), (0x0403, 0x6011), (0x0403, 0x6014), (0x0403, 0x6015)}
"""USB vendor and product of the serial bridges on boards. Other ports are not asked: who knows what
is there."""

OPEN_SECONDS = 1.0


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


def _simulated() -> dict[str, Any]:
    return {
        "device": SIMULATION,
        "kind": SIMULATION,
        "state": "ready",
        "configuration": dataclasses.asdict(RnicConfig()),
    }


def _ask(locator: Locator, text: str | None = None) -> dict[str, Any]:
    row: dict[str, Any] = {"device": text or locator.text, "kind": "serial"}
    try:
        device = locator.open()
        with Context(device) as context:
            attr = dataclasses.asdict(context.query_device())
        found = device.info
    except (StagecoachError, OSError) as error:
        return row | {"state": str(error).splitlines()[0]}
    attr["version"] = ".".join(map(str, attr["version"]))
    attr["atomics"] = [opcode.name for opcode in attr["atomics"]]
    return row | {"state": "ready", "clock_hz": found["clock_hz"], "configuration": attr}


def show_devices(named: Iterable[Locator], baud: int, as_json: bool) -> int:
    """Prints all devices; returns the exit status."""
    rows = find_devices(named, baud)
    if as_json:
        print(json.dumps(rows, indent=2))
        return 0
    table = Table("device", "state", "configuration and capabilities")
    for row in rows:
        values = row.get("configuration", {})
        if "clock_hz" in row:
            values = {"clock": f"{row['clock_hz'] / 1e6:g} MHz"} | values
        text = ", ".join(
            f"{name} {' '.join(value) if isinstance(value, list) else value}"
            for name, value in values.items()
        )
        table.add_row(row["device"], row["state"], text)
    Console().print(table)
    return 0
