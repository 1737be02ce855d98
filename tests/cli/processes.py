"""Commands in processes of their own, which are killed with the test that started them."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 120


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A `stagecoach` that has ended."""
    command = [sys.executable, "-m", "stagecoach.cli", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


class Process:
    """A `stagecoach` in a process of its own."""

    def __init__(self, *arguments: str):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stagecoach.cli", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A shell may have told its background jobs to ignore it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def await_port(self, stream: str, words: str) -> int:
        """Reads a stream, "stdout" or "stderr", up to a line with some words and a number."""
        for line in getattr(self.process, stream):
            if found := re.search(rf"{words} (\d+)", line):
                return int(found[1])
        raise AssertionError("it does not listen")

    def end(self) -> tuple[int, str, str]:
        """Waits for its end: status, and what it wrote that nobody has read."""
        out, err = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, out, err

    def kill(self) -> None:
        """Ends it at once; does nothing where it has ended."""
        self.process.kill()
        self.process.communicate()


class Processes:
    """Those of a test."""

    def __init__(self) -> None:
        self._started: list[Process] = []

    def start(self, *arguments: str) -> Process:
        """Starts one, with the arguments of `stagecoach`."""
        self._started.append(Process(*arguments))
        return self._started[-1]

    def kill(self) -> None:
        """Ends all of them."""
        for each in self._started:
            each.process.kill()
        for each in self._started:
            each.kill()


@pytest.fixture
def processes() -> Iterator[Processes]:
    """Starts commands, which are killed at the end of the test whatever happens."""
    started = Processes()
    try:
        yield started
    finally:
        started.kill()
