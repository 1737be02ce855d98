"""Tells other processes what a device does, as files of JSON in a folder.

A device belongs to the process that opened it: a simulated one lives in its memory, a board
hangs on its serial port. So the process itself reads the counters and writes them where others
look: to the folder that the environment names in `FOLDER_VARIABLE`, readable by its own user only.
Without that variable nothing is read and nothing written.
"""

import contextlib
import itertools
import json
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stagecoach.host_driver.counters import (
    QPCounters,
    query_dropped_events,
    query_lost,
    query_qp,
    query_state,
    query_stops,
)
from stagecoach.host_driver.enums import QPState
from stagecoach.host_driver.snapshots.folder import (
    FOLDER_VARIABLE,
    PRIVATE,
    FolderError,
    file_of,
    named_folder,
    remove_dead,
    write_file,
)
from stagecoach.host_driver.snapshots.network import network_snapshot
from stagecoach.hw.interface.causes import Cause

if TYPE_CHECKING:
    from stagecoach.host_driver.context import Context

INTERVAL_VARIABLE = "STAGECOACH_TOP_INTERVAL"
DEFAULT_INTERVAL = 1.0

CLOSE_SECONDS = 5.0
"""How long the end waits for a look that is under way."""

_LOG = logging.getLogger(__name__)

_numbers = itertools.count()


def snapshot(
    context: "Context", numbers: set[int], causes: Iterable[Cause] = Cause
) -> dict[str, Any]:
    """The state of a device: those QPs of `numbers` that are in use or were, and their sums.

    How many stopped for `causes` and for those of these QPs. Without the counters if the device has
    none.
    """
    if not context.attr.counters:
        return _without_counters(context, numbers)
    qps = []
    total = QPCounters()
    asked = set(causes)
    with context.lock:
        cycles, now = context.cycles, time.time()
        for number in sorted(numbers):
            status = query_qp(context, number)
            counters = status.counters
            total += counters
            asked.add(status.cause)
            if status.state is not QPState.RESET or counters != QPCounters():
                qps.append(_names(number, status.state, status.cause) | asdict(counters))
        stops = query_stops(context, sorted(asked))
        lost, dropped = query_lost(context), query_dropped_events(context)
    return {
        "time": now,
        "cycles": cycles,
        "counters": True,
        "total": asdict(total),
        "dropped_fpdus": stops.pop(Cause.NONE, 0),
        "stopped": {cause.name: count for cause, count in stops.items()},
        "events_not_counted": lost,
        "events_lost": dropped,
        "qps": qps,
    }


def _names(number: int, state: QPState, cause: Cause) -> dict[str, Any]:
    return {"qp": number, "state": state.name, "cause": cause.name}


def _without_counters(context: "Context", numbers: set[int]) -> dict[str, Any]:
    with context.lock:
        cycles, now = context.cycles, time.time()
        states = {number: query_state(context, number) for number in sorted(numbers)}
        dropped = query_dropped_events(context)
    qps = [
        _names(number, *found)
        for number, found in states.items()
        if found != (QPState.RESET, Cause.NONE)
    ]
    rest = {"counters": False, "total": {}, "events_lost": dropped, "qps": qps}
    return {"time": now, "cycles": cycles, **rest}


def parse_interval(text: str) -> float:
    """Seconds between two looks. Raises `ValueError`."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.05 <= seconds <= 3600:
        raise ValueError(f"{text!r} seconds; allowed: 0.05 to 3600")
    return seconds


class Publisher:
    """Writes a `snapshot` of an open device every `interval` seconds, and one when it closes.

    The first one stays in the file, as `opened`.

    Attributes
    ----------
    path: the file. It is replaced as a whole. If that fails later, it is logged once, and tried
        again at the next look.

    Raises `FolderError` if nothing can be written to the folder.
    """

    def __init__(self, context: "Context", folder: Path, interval: float):
        self._context = weakref.ref(context)
        self._interval = interval
        self._used: set[int] = set()  # QPs that were used before
        self._causes = {Cause.NONE}  # those for which QPs have stopped
        number = next(_numbers)
        self.path = file_of(folder, os.getpid(), number)
        self._about: dict[str, Any] = {
            "device": f"{os.getpid()}.{number}",
            "kind": context.transport.info.get("kind", ""),
            "program": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        }
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="counters", daemon=True)
        self._publish(is_open=True)
        self._thread.start()

    def _publish(self, is_open: bool) -> None:
        if (context := self._context()) is None:  # it was dropped
            return
        # Over a link each register takes its time, so only those are read that may have changed.
        numbers, causes = self._used | context.used_qps, list(self._causes)
        is_first = "opened" not in self._about
        if is_first and (context.fpdus_sent or context.fpdus_received):  # by an earlier user
            numbers = set(range(context.attr.max_qp))
        if not is_open or (numbers and is_first):
            causes = list(Cause)  # a QP may have stopped and gone between two looks
        now = snapshot(context, numbers, causes)
        self._causes.update(Cause[name] for name in now.get("stopped", {}))
        if is_first:
            self._used = {qp["qp"] for qp in now["qps"]}
            self._about["opened"] = now
        network = network_snapshot(context.transport)
        whole = {**self._about, "open": is_open, **now, "network": network}
        write_file(self.path, json.dumps(whole))

    def _run(self) -> None:
        told = False
        while not self._closing.wait(self._interval) and self._context() is not None:
            try:
                self._publish(is_open=True)
                told = False
            except FolderError as error:
                # Without the folder nobody looks any more.
                if not told and self.path.parent.is_dir():
                    _LOG.warning("stagecoach top does not see what this device does: %s", error)
                    told = True
            except Exception as error:  # a device that fails tells its program
                _LOG.debug("no more is published of device %s: %r", self._about["device"], error)
                return

    def close(self) -> None:
        """Ends; the last snapshot says that the device is closed. Call it without the lock."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._thread.join(CLOSE_SECONDS)
        with contextlib.suppress(Exception):
            self._publish(is_open=False)


def publish(context: "Context") -> Publisher | None:
    """Publishes a device if the environment names a folder.

    A folder that is not there any more is that of a `stagecoach top` that has ended. A program does
    not fail because it cannot be looked at: what is wrong with folder or interval is logged.
    """
    try:
        folder = named_folder()
        if folder is None or not os.path.isdir(folder):
            return None
        interval = parse_interval(os.environ.get(INTERVAL_VARIABLE, "") or str(DEFAULT_INTERVAL))
        if os.environ.get(FOLDER_VARIABLE) == PRIVATE:
            remove_dead(folder)
        return Publisher(context, folder, interval)
    except FolderError as error:
        _LOG.warning("stagecoach top does not see this device: %s", error)
    except ValueError as error:
        _LOG.warning("stagecoach top does not see this device: %s is %s", INTERVAL_VARIABLE, error)
    return None
