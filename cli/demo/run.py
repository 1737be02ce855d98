"""Starts the two processes of the demonstration, follows them, and ends both whatever happens."""

import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from stagecoach.cli.demo import ends
from stagecoach.cli.demo.end import DemoError
from stagecoach.cli.demo.ends import Job, Measurement, Report

GRACE_SECONDS = 10.0
"""How long the other process may take to end by itself after one has failed or finished."""

Progress = Callable[[str, int], None]


@dataclass(frozen=True)
class Result:
    """What the demonstration found; both ends have the same digest."""

    measurements: list[Measurement]
    digest: str
    capture_complete: bool


class _End:
    """One process and what it has reported."""

    def __init__(self, name: str, body: Any, job: Job, port: int = 0):
        self.name = name
        self.error: str | None = None
        self.port: int | None = None
        self.last: Report | None = None
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe(duplex=False)
        self.process: SpawnProcess = context.Process(
            target=ends.run_end, args=(body, job, port, theirs), name=name, daemon=True
        )
        self.process.start()
        # Only the child has the other side: its end is seen as the end of the pipe.
        theirs.close()
        self.open = True

    def take(self, progress: Progress) -> None:
        """Takes one report, or the end of the pipe."""
        try:
            report: Report = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.open = False
            if self.last is None and self.error is None:
                self.process.join(GRACE_SECONDS)
                self.error = f"the process ended with exit status {self.process.exitcode}"
            return
        if report.error is not None:
            # Of several errors the first is the reason of the others.
            self.error = self.error or report.error
        elif report.port is not None:
            self.port = report.port
        elif report.progress is not None:
            progress(*report.progress)
        else:
            self.last = report

    def end(self) -> None:
        """Ends the process, gently if it lets itself be."""
        self.process.join(GRACE_SECONDS)
        for force in (self.process.terminate, self.process.kill):
            if self.process.is_alive():
                force()
                self.process.join(GRACE_SECONDS)
        self.pipe.close()


class Demo:
    """The running demonstration.

    Parameters
    ----------
    job: what to do.
    progress: called with an operation and its bytes so far.

    Attributes
    ----------
    processes: those that were started: sink, then source.
    """

    def __init__(self, job: Job, progress: Progress):
        self._job = job
        self._progress = progress
        self._ends: list[_End] = []

    @property
    def processes(self) -> list[SpawnProcess]:
        """The processes started so far."""
        return [end.process for end in self._ends]

    def run(self) -> Result:
        """Runs both ends to their end. Raises `DemoError` with the first error of either."""
        try:
            sink = self._start("sink", ends.sink)
            while sink.port is None:
                self._follow()
            source = self._start("source", ends.source, sink.port)
            while sink.open or source.open:
                self._follow()
            if sink.last is None or source.last is None:
                raise DemoError("a process ended without a result")
            if sink.last.digest is None or sink.last.digest != source.last.digest:
                raise DemoError(
                    f"SHA-256 {source.last.digest} at the source, {sink.last.digest} at the sink"
                )
            last = source.last
            return Result(last.measurements, sink.last.digest, last.capture_complete)
        finally:
            for end in self._ends:
                end.end()

    def _start(self, name: str, body: Any, port: int = 0) -> _End:
        end = _End(name, body, self._job, port)
        self._ends.append(end)
        return end

    def _follow(self) -> None:
        """Waits for a report and takes it."""
        pipes: dict[Connection, _End] = {end.pipe: end for end in self._ends if end.open}
        for pipe in wait(list(pipes)):
            assert isinstance(pipe, Connection)
            end = pipes[pipe]
            end.take(self._progress)
            if end.error is not None:
                self._raise_first(end)

    def _raise_first(self, failed: _End) -> None:
        """Raises the error of an end, or of the other one if that is the reason.

        A lost connection at one end is what a failure of the other one looks like.
        """
        for other in self._ends:
            while other is not failed and other.open and other.pipe.poll(GRACE_SECONDS):
                other.take(self._progress)
        told = [end for end in self._ends if end.error is not None]
        told.sort(key=lambda end: "connection closed or lost" in (end.error or ""))
        raise DemoError(f"{told[0].name}: {told[0].error}")
