"""Tells on standard error of a build that nobody follows."""

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from stagecoach.hw import cache
from stagecoach.hw.cached_verilog import Progress

LINE_SECONDS = 10.0
"""Where lines cannot be replaced, counts of compiled files are told no sooner after the last."""

DEVICE = "the simulated device"
DEVICE_TAKES = "1 to 3 minutes"

_COUNT = re.compile(r"\d+ of \d+")


class BuildReport:
    """A `progress` of `build_device`: prints that a build began, its steps, and what it took.

    On a terminal the steps replace each other in one line, elsewhere each has a line; files that
    were compiled are then counted once in `LINE_SECONDS`. Without a step it prints nothing.
    `takes`: how long a build takes.
    """

    def __init__(self, out: TextIO, what: str = DEVICE, takes: str = DEVICE_TAKES):
        self._out = out
        self._what = what
        self._takes = takes
        self._replaces = out.isatty()
        self._begin = self._told = 0.0
        self._began = False

    def __call__(self, step: str) -> None:
        """Tells of a step that begins."""
        now = time.monotonic()
        if not self._began:
            self._began, self._begin = True, now
            how = f"takes {self._takes}, once; kept in {_place()}"
            self._say(f"stagecoach: building {self._what}: {how}\n")
        elif not self._replaces and _COUNT.search(step) and now - self._told < LINE_SECONDS:
            return
        self._told = now
        line = f"stagecoach: {now - self._begin:3.0f} s: {step}"
        self._say(f"\r{line}\x1b[K" if self._replaces else f"{line}\n")

    def end(self) -> None:
        """Tells that the device is there, if a build began."""
        if self._began:
            taken = time.monotonic() - self._begin
            start = "\r\x1b[K" if self._replaces else ""
            self._say(f"{start}stagecoach: {self._what} is built: {taken:.0f} s\n")

    def fail(self) -> None:
        """Leaves the line to the error that is told next."""
        if self._began and self._replaces:
            self._say("\r\x1b[K")

    def _say(self, text: str) -> None:
        # A program whose standard error is closed is built for, too.
        with suppress(OSError, ValueError):
            self._out.write(text)
            self._out.flush()


def _place() -> str:
    """The folder of the cache, below the user's home if it is there."""
    folder, home = cache.root(), Path.home()
    return f"~/{folder.relative_to(home)}" if folder.is_relative_to(home) else os.fspath(folder)


@contextmanager
def told(
    progress: Progress | None, what: str = DEVICE, takes: str = DEVICE_TAKES
) -> Iterator[Progress | None]:
    """The caller's `progress`, or one that reports on standard error if the caller has none."""
    if progress is not None or sys.stderr is None:
        yield progress
        return
    report = BuildReport(sys.stderr, what, takes)
    try:
        yield report
    except BaseException:
        report.fail()
        raise
    report.end()
