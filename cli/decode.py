"""What `stagecoach decode` does: a capture file in words or as JSON, in a pager if wanted."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from rich.console import Console

DEFAULT_PAGER = "less"
# As git has it: keep colours, do not wrap lines or clear the screen, end if one screen is enough.
_LESS_OPTIONS = "FRSX"


class _Console(Console):
    """Leaves it to its user what the end of a pager means."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def decode(file: Path, as_json: bool, pager: bool | None) -> int:
    """Prints every startup frame and FPDU of a capture file; returns the exit status.

    ``pager`` ``None`` uses one when standard output is a terminal. Raises ``CaptureError`` for a
    file that is no capture, after the last packet for one that is cut, and for one without MPA.
    """
    from stagecoach.sim.capture.decode import decode_file
    from stagecoach.sim.capture.decode_json import as_json as item_as_json
    from stagecoach.sim.capture.decode_text import ascii_only, lines
    from stagecoach.sim.capture.file import CaptureError

    decoded = decode_file(file)
    wanted = sys.stdout.isatty() if pager is None else pager
    with _output(wanted and bool(decoded.items)) as output:
        if as_json:
            for item in decoded.items:
                print(json.dumps(item_as_json(item)), file=output)
        elif decoded.items:
            colours = sys.stdout.isatty()
            console = _Console(file=output, force_terminal=colours or None, highlight=False)
            for line in lines(decoded):
                shown = ascii_only(line) if console.options.ascii_only else line
                console.print(shown, soft_wrap=True)
    if decoded.damage is not None:
        raise CaptureError(decoded.damage)
    if not decoded.items:
        others = f"; {decoded.others} TCP connections do not start with it"
        raise CaptureError(f"{file} has no MPA Request Frame{others if decoded.others else ''}")
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
    try:
        process = subprocess.Popen(arguments, stdin=subprocess.PIPE, env=environment, text=True)
    except OSError:
        # Without a pager everything is printed.
        yield sys.stdout
        return
    assert process.stdin is not None
    try:
        with suppress(BrokenPipeError):
            yield process.stdin
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()
        _wait(process)


def _wait(process: subprocess.Popen[str]) -> None:
    """Waits until the pager is left; interrupts are for the pager."""
    while True:
        try:
            process.wait()
            return
        except KeyboardInterrupt:
            continue
