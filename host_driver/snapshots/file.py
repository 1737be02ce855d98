"""Reads what a `Publisher` has written, and believes no field of it before it is checked."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

from stagecoach.host_driver.counters import QPCounters
from stagecoach.host_driver.enums import QPState
from stagecoach.host_driver.snapshots.checks import check_count, check_time, read_object, require
from stagecoach.host_driver.transport.network import HEAD_OCTETS, ConnectionInfo
from stagecoach.hw.interface.causes import Cause

_COUNTERS = tuple(field.name for field in fields(QPCounters))

_TEXT, _COUNT, _ANY_COUNT, _ANY_TEXT = "text", "0 to 2^64 - 1", "a count, or null", "text, or null"
_NETWORK = dict.fromkeys(("engine", "address", "mac", "gateway", "carrier"), _TEXT) | {
    "mtu": _COUNT
}
_NEIGHBOUR = dict.fromkeys(("address", "mac", "state"), _TEXT) | {"age_us": _COUNT}
_CONNECTION = dict.fromkeys(("local", "remote", "state"), _TEXT)
_CONNECTION |= {"qp": _ANY_COUNT, "soft_error": _ANY_TEXT}
_FRAME = dict.fromkeys(("time_us", "octets"), _COUNT)
_INFO = {each.name: _COUNT for each in fields(ConnectionInfo)}
_HEAD = re.compile(rf"([0-9a-f]{{2}}){{0,{HEAD_OCTETS}}}")
_INFO |= {"state": _TEXT, "smoothed_rtt_us": _ANY_COUNT, "rtt_variance_us": _ANY_COUNT}

_NO_COUNTS = {"device", "kind", "program", "open", "opened", "time", "counters", "total"}
_NO_COUNTS |= {"qps", "stopped", "network"}
"""Fields of a snapshot that are not counts; all others are."""


def read_snapshot(path: Path) -> dict[str, Any]:
    """The last snapshot of a device, with the first one in `opened`.

    Raises `FolderError` that says what is wrong with the file.
    """
    found = read_object(path)
    _check_state(found, "")
    for name in ("device", "kind", "program"):
        require(isinstance(found.get(name), str), name, found.get(name), "text")
    require(isinstance(found.get("open"), bool), "open", found.get("open"), "true, false")
    _check_state(found.get("opened"), "opened.")
    if found.get("network") is not None:
        _check_network(found["network"])
    return found


def _check_state(found: Any, where: str) -> None:
    """One snapshot: `host_driver.snapshots.publisher.snapshot` has the fields."""
    require(isinstance(found, dict), where or "it", found, "an object")
    check_time(found, "time", where)
    check_count(found, "cycles", where)
    for name in found.keys() - _NO_COUNTS:
        check_count(found, name, where)
    counted = found.get("counters")
    require(isinstance(counted, bool), f"{where}counters", counted, "true, false")
    total, stopped, qps = (found.get(name, {}) for name in ("total", "stopped", "qps"))
    require(isinstance(stopped, dict), f"{where}stopped", stopped, "an object")
    for name in stopped:
        require(name in Cause.__members__, f"{where}stopped", name, "names of causes")
        check_count(stopped, name, f"{where}stopped.")
    require(isinstance(qps, list), f"{where}qps", qps, "a list")
    _check_counters(total, f"{where}total.", counted)
    for qp in qps:
        _check_counters(qp, f"{where}qps.", counted)
        check_count(qp, "qp", f"{where}qps.")
        for name, allowed in (("state", QPState.__members__), ("cause", Cause.__members__)):
            value = qp.get(name)
            ok = isinstance(value, str) and value in allowed
            require(ok, f"{where}qps.{name}", value, "a name of the register description")


def _check_counters(found: Any, where: str, counted: bool) -> None:
    """All counters, or none at all if the device has none."""
    require(isinstance(found, dict), where, found, "an object")
    for name in _COUNTERS:
        if counted:
            check_count(found, name, where)
        else:
            require(name not in found, where + name, found.get(name), "nothing without counters")


def _check_network(found: Any) -> None:
    """What `host_driver.snapshots.network` publishes."""
    _check_values(found, _NETWORK, "network.")
    for name, values in (("neighbours", _NEIGHBOUR), ("connections", _CONNECTION)):
        entries = found.get(name)
        require(isinstance(entries, list), f"network.{name}", entries, "a list")
        for entry in entries:
            _check_values(entry, values, f"network.{name}.")
    frames = found.get("frames")
    require(isinstance(frames, list), "network.frames", frames, "a list")
    for frame in frames:
        _check_values(frame, _FRAME, "network.frames.")
        sent, head = frame.get("sent"), frame.get("head")
        require(isinstance(sent, bool), "network.frames.sent", sent, "true, false")
        ok = isinstance(head, str) and _HEAD.fullmatch(head) is not None
        require(ok, "network.frames.head", head, f"at most {HEAD_OCTETS} bytes in hexadecimal")
    for connection in found["connections"]:
        if connection.get("info") is not None:
            _check_values(connection["info"], _INFO, "network.connections.info.")


def _check_values(found: Any, values: dict[str, str], where: str) -> None:
    require(isinstance(found, dict), where, found, "an object")
    for name, allowed in values.items():
        value = found.get(name)
        if value is None and allowed in (_ANY_COUNT, _ANY_TEXT):
            continue
        if allowed in (_TEXT, _ANY_TEXT):
            require(isinstance(value, str), where + name, value, allowed)
        else:
            check_count(found, name, where)
