"""Shows what devices do: those of a program that it runs, or of all that publish to a folder."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from stagecoach.cli.plain_text import printable
from stagecoach.cli.top.nfs_clients import ServerView, read_server, server_view
from stagecoach.cli.top.rates import DeviceView, view
from stagecoach.cli.top.screen import screen
from stagecoach.host_driver.errors import StagecoachError
from stagecoach.host_driver.locate import DEVICE_VARIABLE
from stagecoach.host_driver.snapshots.file import read_snapshot
from stagecoach.host_driver.snapshots.folder import (
    FOLDER_VARIABLE,
    PRIVATE,
    FolderError,
    files,
    lives,
    named_folder,
    private_folder,
    process_of,
    server_files,
)
from stagecoach.host_driver.snapshots.publisher import INTERVAL_VARIABLE

ENDED_SECONDS = 5.0
"""How long a program that is interrupted may take to end."""


class TopError(StagecoachError):
    """The program cannot be run, or there is nothing to look at; the message says why."""


class Devices:
    """The devices that publish to a folder.

    Parameters
    ----------
    closed: whether those count that are closed when they are seen first.

    Attributes
    ----------
    views: the last of each device, by the name of its file. servers: that of each NFS server.
    unread: what is wrong with files that were not read, by their names.
    """

    def __init__(self, folder: Path, closed: bool = True):
        self._folder = folder
        self._closed = closed
        self.views: dict[str, DeviceView] = {}
        self.servers: dict[str, ServerView] = {}
        self.unread: dict[str, str] = {}

    def look(self) -> list[DeviceView | ServerView]:
        """Those of which there is something new, in the order of their files."""
        fresh: list[DeviceView | ServerView] = [*self._look_at_servers()]
        for path in files(self._folder):
            name = path.name
            try:
                after = read_snapshot(path)
            except FolderError as error:
                self._note_unread(path, error)
                continue
            self.unread.pop(name, None)
            # A program that was killed has left its devices open.
            after["open"] = after["open"] and lives(process_of(path))
            if name not in self.views and not (self._closed or after["open"]):
                continue
            before = self.views[name].last if name in self.views else after["opened"]
            if after == before:
                continue
            self.views[name] = view(before, after)
            fresh.append(self.views[name])
        return fresh

    def _note_unread(self, path: Path, error: FolderError) -> None:
        """Notes why a file is not shown, unless it is not to be shown: its program has ended."""
        if self._closed or lives(process_of(path)):
            self.unread[path.name] = f"{path} is not shown: {error}"
        else:
            self.unread.pop(path.name, None)

    def _look_at_servers(self) -> Iterator[ServerView]:
        paths = list(server_files(self._folder))
        for name in self.servers.keys() - {path.name for path in paths}:
            del self.servers[name]  # it has ended
        for path in paths:
            name = path.name
            try:
                after = read_server(path)
            except FolderError as error:
                self._note_unread(path, error)
                continue
            self.unread.pop(name, None)
            before = self.servers[name].last if name in self.servers else None
            if not lives(process_of(path)):
                self.servers.pop(name, None)
            elif after != before:
                self.servers[name] = server_view(before, after)
                yield self.servers[name]

    def whole(self) -> list[DeviceView]:
        """Each device from its opening to its last snapshot."""
        return [view(one.last["opened"], one.last) for one in self.views.values()]


def _print_json(views: Sequence[DeviceView | ServerView]) -> None:
    for one in views:
        print(json.dumps(one.as_json()), flush=True)


def _tell_unread(devices: Devices, told: set[str]) -> None:
    """Says on standard error, once, which files are not shown."""
    for why in devices.unread.values():
        if why not in told:
            told.add(why)
            print(printable(why), file=sys.stderr)


def _show_whole(devices: Devices, as_json: bool) -> None:
    if as_json:
        _print_json([*devices.whole(), *devices.servers.values()])
        _tell_unread(devices, set())
    else:
        shown = screen(devices.whole(), devices.unread.values(), devices.servers.values())
        Console().print(shown)


@contextmanager
def _shown(as_json: bool) -> Iterator[Callable[[Devices], Any]]:
    """What to call after each interval: it shows what is new."""
    if as_json:
        told: set[str] = set()

        def print_new(devices: Devices) -> None:
            _print_json(devices.look())
            _tell_unread(devices, told)

        yield print_new
        return
    with Live(screen([]), console=Console(), auto_refresh=False) as live:

        def update(devices: Devices) -> None:
            devices.look()
            shown = screen(
                devices.views.values(), devices.unread.values(), devices.servers.values()
            )
            live.update(shown, refresh=True)

        yield update


def _end(process: subprocess.Popen[bytes], terminate: bool) -> None:
    """Waits for a program to end: one that got the interrupt of the terminal, too, or is told."""
    if terminate:
        process.terminate()
    try:
        process.wait(ENDED_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill() if terminate else process.terminate()
        process.wait()


def _watch(
    process: subprocess.Popen[bytes], devices: Devices, once: bool, as_json: bool, interval: float
) -> int:
    """Shows the devices until the program has ended; returns its exit status."""
    if once:
        status = process.wait()
        devices.look()
        return status
    with _shown(as_json) as show:
        while True:
            try:
                status = process.wait(interval)
            except subprocess.TimeoutExpired:
                show(devices)
            else:
                show(devices)
                return status


def watch(*, once: bool, as_json: bool, interval: float) -> int:
    """Shows the devices of all programs that publish to the environment's folder.

    That is the user's own one if it names none. Until it is interrupted, or, with `once`, as they
    are now.
    """
    folder = named_folder() or private_folder()
    if not os.path.isdir(folder):
        raise TopError(
            f"{FOLDER_VARIABLE} is {str(folder)!r}; allowed without COMMAND: {PRIVATE}, or a "
            "folder, and programs that have the same in their environment"
        )
    devices = Devices(folder, closed=False)
    if once:
        devices.look()
        _show_whole(devices, as_json)
        return 0
    try:
        with _shown(as_json) as show:
            while True:
                show(devices)
                time.sleep(interval)
    except KeyboardInterrupt:
        return 0


def top(
    command: Sequence[str], *, once: bool, as_json: bool, interval: float, device: str = ""
) -> int:
    """Runs `command` and shows its devices until it ends; returns its exit status.

    With `once`, only at its end, with the rates of its whole life. `device`: the one that commands
    of `stagecoach` take if they are not told of another one. What the command prints is printed on
    standard error when it has ended. It is ended if nobody reads what is shown.
    """
    with tempfile.TemporaryDirectory(prefix="stagecoach-top-") as name:
        folder = Path(name)
        environment = {**os.environ, FOLDER_VARIABLE: name, INTERVAL_VARIABLE: str(interval)}
        if device:
            environment[DEVICE_VARIABLE] = device
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
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or str(error)
                raise TopError(
                    f"cannot run {command[0]!r}: {why}; allowed: a program and its options"
                ) from None
            began = time.monotonic()
            try:
                status = _watch(process, devices, once, as_json, interval)
            except BaseException as error:
                _end(process, terminate=not isinstance(error, KeyboardInterrupt))
                raise
        if once:
            _show_whole(devices, as_json)
        sys.stdout.flush()
        sys.stderr.write(output.read_text(errors="replace"))
        if not devices.views:
            seconds = time.monotonic() - began
            print(f"{command[0]} opened no device in {seconds:.1f} s", file=sys.stderr)
        return status
