"""Runs a program and shows what its devices do."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.live import Live

from host_driver.errors import StagecoachError
from host_driver.top.publisher import FOLDER_VARIABLE, INTERVAL_VARIABLE
from host_driver.top.rates import DeviceView, view
from host_driver.top.screen import screen

ENDED_SECONDS = 5.0
"""How long a program that is interrupted may take to end."""


class TopError(StagecoachError):
    """The program cannot be run; the message says why."""


class Devices:
    """The devices that publish to a folder.

    Attributes
    ----------
    views: the last of each device, by its name.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self.views: dict[str, DeviceView] = {}

    def look(self) -> list[DeviceView]:
        """Those of which there is something new, in the order of their files."""
        fresh = []
        for path in sorted(self._folder.glob("*.json")):
            after = json.loads(path.read_text())
            name = after["device"]
            before = self.views[name].last if name in self.views else after["opened"]
            if after == before:
                continue
            self.views[name] = view(before, after)
            fresh.append(self.views[name])
        return fresh

    def whole(self) -> list[DeviceView]:
        """Each device from its opening to its last snapshot."""
        return [view(one.last["opened"], one.last) for one in self.views.values()]


def _print_json(views: Sequence[DeviceView]) -> None:
    for one in views:
        print(json.dumps(one.as_json()), flush=True)


def _end(process: subprocess.Popen[bytes]) -> int:
    """Waits for a program that got the interrupt of the terminal, too."""
    try:
        return process.wait(ENDED_SECONDS)
    except subprocess.TimeoutExpired:
        process.terminate()
        return process.wait()


def _watch(
    process: subprocess.Popen[bytes], devices: Devices, once: bool, as_json: bool, interval: float
) -> int:
    """Shows the devices until the program has ended; returns its exit status."""
    live = None
    if not once and not as_json:
        live = Live(screen([]), console=Console(), auto_refresh=False)
        live.start()
    try:
        status = None
        while status is None:
            try:
                status = process.wait(interval)
            except subprocess.TimeoutExpired:
                status = None
            fresh = devices.look()
            if as_json and not once:
                _print_json(fresh)
            if live is not None:
                live.update(screen(devices.views.values()), refresh=True)
        return status
    finally:
        if live is not None:
            live.stop()


def top(command: Sequence[str], *, once: bool, as_json: bool, interval: float) -> int:
    """Runs `command` and shows its devices until it ends; returns its exit status.

    With `once`, only at its end, with the rates of its whole life. What the command prints is
    printed on standard error when it has ended.
    """
    with tempfile.TemporaryDirectory(prefix="stagecoach-top-") as name:
        folder = Path(name)
        environment = {**os.environ, FOLDER_VARIABLE: name, INTERVAL_VARIABLE: str(interval)}
        output = folder / "output"
        devices = Devices(folder)
        with output.open("wb") as file:
            try:
                process = subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                )
            except OSError as error:
                raise TopError(
                    f"cannot run {command[0]}: {error.strerror}; allowed: a program and its options"
                ) from None
            began = time.monotonic()
            try:
                status = _watch(process, devices, once, as_json, interval)
            except KeyboardInterrupt:
                _end(process)
                raise
            finally:
                process.poll()
        if once and as_json:
            _print_json(devices.whole())
        elif once:
            Console().print(screen(devices.whole()))
        sys.stdout.flush()
        sys.stderr.write(output.read_text(errors="replace"))
        if not devices.views:
            words = "opened no device, or one without counters"
            print(f"{command[0]} {words} in {time.monotonic() - began:.1f} s", file=sys.stderr)
        return status
