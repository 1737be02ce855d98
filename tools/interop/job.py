"""A command that runs, in the guest or here: its lines, its end, and waiting for either."""

import time
from collections.abc import Callable
from threading import Condition

PATIENCE = 300.0
"""Seconds after which something that was waited for will not come any more, on a busy machine."""


class JobError(Exception):
    """A command failed, or did not do in time what it was to do; the message is one line."""


class Job:
    """What a command has printed so far, and how it ended. Threads feed it and wait for it.

    Parameters
    ----------
    name: of the command, for messages. stop: ends the command if it still runs.

    Attributes
    ----------
    lines: printed so far. status: exit status, `None` while it runs.
    """

    def __init__(self, name: str, stop: Callable[[], None] = lambda: None):
        self.name = name
        self.stop = stop
        self.lines: list[str] = []
        self.status: int | None = None
        self._changed = Condition()

    def feed(self, line: str) -> None:
        """A line has been printed."""
        with self._changed:
            self.lines.append(line)
            self._changed.notify_all()

    def end(self, status: int) -> None:
        """The command has ended."""
        with self._changed:
            self.status = status
            self._changed.notify_all()

    def wait_for(self, text: str, seconds: float = PATIENCE, *, count: int = 1) -> str:
        """The line that is the `count`th with a text in it.

        Raises `JobError` if the command ends without it.
        """
        self._wait(lambda: len(self._with(text)) >= count, f"to print {text!r}", seconds)
        found = self._with(text)
        if len(found) < count:
            raise JobError(f"{self.name} ended without {text!r}: {self.told()}")
        return found[count - 1]

    def finish(self, seconds: float = PATIENCE) -> list[str]:
        """All lines, when it has ended with status 0. Raises `JobError`."""
        self._wait(lambda: False, "to end", seconds)
        if self.status:
            raise JobError(f"{self.name} ended with status {self.status}: {self.told()}")
        return self.lines

    def told(self) -> str:
        """The last lines, as one."""
        return " / ".join(line.strip() for line in self.lines[-3:] if line.strip()) or "no output"

    def _with(self, text: str) -> list[str]:
        return [line for line in self.lines if text in line]

    def _wait(self, done: Callable[[], bool], what: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        with self._changed:
            while self.status is None and not done():
                left = end - time.monotonic()
                if left <= 0:
                    raise JobError(
                        f"{self.name}: waited {seconds:g} s for it {what}: {self.told()}"
                    )
                self._changed.wait(left)
