"""Reads what a `Publisher` has written, and believes no field of it before it is checked."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from stagecoach.host_driver.counters import QPCounters
from stagecoach.host_driver.enums import QPState
from stagecoach.host_driver.snapshots.folder import FolderError, read_file
from stagecoach.hw.interface.causes import Cause

_COUNTERS = tuple(field.name for field in fields(QPCounters))
_MOST_SECONDS = 1e12

_NO_COUNTS = {"device", "kind", "program", "open", "opened", "time", "counters", "total"}
_NO_COUNTS |= {"qps", "stopped"}
"""Fields of a snapshot that are no numbers of something; all others are."""


def read_snapshot(path: Path) -> dict[str, Any]:
    """The last snapshot of a device, with the first one in `opened`.

    Raises `FolderError` that says what is wrong with the file.
    """
    try:
        found = json.loads(read_file(path))
    except (ValueError, RecursionError):  # not UTF-8 among them
        raise FolderError("it is no JSON") from None
    _check_state(found, "")
    for name in ("device", "kind", "program"):
        _require(isinstance(found.get(name), str), name, found.get(name), "text")
    _require(isinstance(found.get("open"), bool), "open", found.get("open"), "true, false")
    _check_state(found.get("opened"), "opened.")
    known: dict[str, Any] = found
    return known


def _require(ok: bool, name: str, value: object, allowed: str) -> None:
    if not ok:
        raise FolderError(f"{name} is {repr(value)[:40]}; allowed: {allowed}")


def _check_count(found: dict[str, Any], name: str, where: str) -> None:
    value = found.get(name)
    ok = type(value) is int and 0 <= value < 1 << 64
    _require(ok, where + name, value, "0 to 2^64 - 1")


def _check_state(found: Any, where: str) -> None:
    """One snapshot: `host_driver.snapshots.publisher.snapshot` has the fields."""
    _require(isinstance(found, dict), where or "it", found, "an object")
    time = found.get("time")
    is_time = type(time) in (int, float) and abs(time) < _MOST_SECONDS  # no NaN
    _require(is_time, f"{where}time", time, "seconds since 1970")
    _check_count(found, "cycles", where)
    for name in found.keys() - _NO_COUNTS:
        _check_count(found, name, where)
    counted = found.get("counters")
    _require(isinstance(counted, bool), f"{where}counters", counted, "true, false")
    total, stopped, qps = (found.get(name, {}) for name in ("total", "stopped", "qps"))
    _require(isinstance(stopped, dict), f"{where}stopped", stopped, "an object")
    for name in stopped:
        _require(name in Cause.__members__, f"{where}stopped", name, "names of causes")
        _check_count(stopped, name, f"{where}stopped.")
    _require(isinstance(qps, list), f"{where}qps", qps, "a list")
    _check_counters(total, f"{where}total.", counted)
    for qp in qps:
        _check_counters(qp, f"{where}qps.", counted)
        _check_count(qp, "qp", f"{where}qps.")
        for name, allowed in (("state", QPState.__members__), ("cause", Cause.__members__)):
            value = qp.get(name)
            ok = isinstance(value, str) and value in allowed
            _require(ok, f"{where}qps.{name}", value, "a name of the register description")


def _check_counters(found: Any, where: str, counted: bool) -> None:
    """All counters, or none at all if the device has none."""
    _require(isinstance(found, dict), where, found, "an object")
    for name in _COUNTERS:
        if counted:
            _check_count(found, name, where)
        else:
            _require(name not in found, where + name, found.get(name), "nothing without counters")
