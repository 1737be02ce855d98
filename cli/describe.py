"""What a device is, in words and numbers for `stagecoach info` and `stagecoach devices`."""

import dataclasses
from typing import Any

from stagecoach.host_driver.device_attr import DeviceAttr
from stagecoach.host_driver.enums import AccessFlags


def sizes(attr: DeviceAttr) -> dict[str, int]:
    """How much there is of everything, as the device's registers tell it."""
    values = dataclasses.asdict(attr)
    return {name: value for name, value in values.items() if name.startswith("max_")}


def version(attr: DeviceAttr) -> str:
    """That of the register description."""
    return ".".join(map(str, attr.version))


def digest(attr: DeviceAttr) -> str:
    """That of the interface."""
    return "none" if attr.interface_digest is None else f"0x{attr.interface_digest:08X}"


def capabilities(attr: DeviceAttr) -> dict[str, Any]:
    """What it can do. CRC, Markers and access rights are those of every device."""
    return {
        "operations": [opcode.name for opcode in attr.operations],
        "access": [str(flag.name) for flag in AccessFlags],
        "crc": True,
        "markers": True,
        "counters": attr.counters,
    }


def network_of(info: dict[str, Any]) -> dict[str, Any]:
    """What a transport tells of a network of its own; nothing if it has none."""
    names = ("tcp", "wire", "ip", "gateway", "mac", "mtu", "carrier")
    return {name: info[name] for name in names if "tcp" in info and name in info}


def in_words(value: object) -> str:
    """A value for a cell of a table."""
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
