"""What `stagecoach decode` does: a capture file in words or as JSON, in a pager if wanted."""

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO

from rich.console import Console

from stagecoach.cli.decode.selection import Selection

DEFAULT_PAGER = "less"
# As git has it: keep colours, do not wrap lines or clear the screen, end if one screen is enough.
_LESS_OPTIONS = "FRSX"


_EVERYTHING = Selection()


class _Console(Console):
    """Leaves it to its user what the end of a pager means."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def decode(
    file: Path, as_json: bool, pager: bool | None, selection: Selection = _EVERYTHING
) -> int:
    """Prints startup frames and FPDUs of a capture file, then how many; returns the exit status.

    ``pager`` ``None`` uses one when standard output is a terminal. Raises ``CaptureError`` for a
    file that is no capture, after the last packet for one that is cut, for one without MPA, and
    for a connection that was asked for and is not there.
    """
    from stagecoach.sim.capture.decode import decode_file
    from stagecoach.sim.capture.decode_json import as_json as item_as_json
    from stagecoach.sim.capture.decode_text import ascii_only, lines, summary
    from stagecoach.sim.capture.file import CaptureError

    decoded = decode_file(file)
    shown_items = selection.of(decoded.items)
    wanted = sys.stdout.isatty() if pager is None else pager
    with _output(wanted and bool(decoded.items)) as output:
        if as_json:
            for item in shown_items:
                print(json.dumps(item_as_json(item)), file=output)
        elif decoded.items:
            colours = sys.stdout.isatty()
            console = _Console(file=output, force_terminal=colours or None, highlight=False)
            last = summary(decoded.items, shown_items)
            for line in (*lines(replace(decoded, items=shown_items)), last):
                shown = ascii_only(line) if console.options.ascii_only else line
                console.print(shown, soft_wrap=True)
    if decoded.damage is not None:
        raise CaptureError(decoded.damage)
    if not decoded.items:
        others = f"; {decoded.others} TCP connections do not start with it"
        raise CaptureError(f"{file} has no MPA Request Frame{others if decoded.others else ''}")
    if missing := selection.missing(decoded.items):
        last_one = max(item.place.connection for item in decoded.items)
        raise CaptureError(f"{file} has no connection {missing[0]}; allowed: 1 to {last_one}")
    return 0


@contextmanager
def _output(pager: bool) -> Iterator[IO[str]]:
    """Standard output, or the pager's input.

    The pager is that of STAGECOACH_PAGER or PAGER, else less; empty or `cat` means none. One
    that is left before the end is no error.
    """
    command = os.environ.get("STAGECOACH_PAGER", os.environ.get("PAGER", DEFAULT_PAGER))
    try:
        arguments = shlex.split(command)
    except ValueError:  # a quotation without an end
        arguments = []
    if not pager or arguments in ([], ["cat"]):
        yield sys.stdout
        return
    environment = {"LESS": _LESS_OPTIONS} | os.environ
    with _interrupts_ignored() as ignore:
        yield from _to_pager(arguments, environment, ignore)


def _to_pager(
    arguments: list[str], environment: dict[str, str], ignore: Callable[[], None]
) -> Iterator[IO[str]]:
    try:
        process = subprocess.Popen(arguments, stdin=subprocess.PIPE, env=environment, text=True)
    except OSError:
        # Without a pager everything is printed.
        yield sys.stdout
        return
    ignore()  # the pager does not: it was begun before
    assert process.stdin is not None
    try:
        with suppress(BrokenPipeError):
            yield process.stdin
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()


@contextmanager
def _interrupts_ignored() -> Iterator[Callable[[], None]]:
    """What has interrupts ignored, until this ends: they are for the pager.

    `less` stops what it is at, and goes on when the user says so; all that it shows has to come.
    """
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()

    def ignore() -> None:
        if is_main:  # no other thread may say so, nor is interrupted
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    try:
        yield ignore
    finally:
        if is_main:
            signal.signal(signal.SIGINT, before)
