"""What the tests of perftest have: settings, and an end of ours in a thread."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Thread
from typing import Any, Self

from stagecoach.host_driver import Context
from stagecoach.ulp.perftest import ends
from stagecoach.ulp.perftest.ends import Met, Settings
from stagecoach.ulp.perftest.results import Result
from stagecoach.ulp.perftest.tools import TOOLS

SECONDS = 30.0
"""Longer than anything takes that goes well."""


@dataclass
class Devices:
    """Two open devices."""

    ours: Context
    theirs: Context

    def check_clean(self) -> None:
        """No memory is registered, and no QP and CQ is left."""
        for context in (self.ours, self.theirs):
            assert (context.mrs, context.qps, context.cqs) == ({}, {}, {})


def settings(tool: str, **options: Any) -> Settings:
    """Those of a test; the defaults of the tool where nothing is said."""
    made = TOOLS[tool]
    given = {
        "size": made.size,
        "iters": 5,
        "tx_depth": made.tx_depth,
        "timeout": SECONDS,
        "port": 0,
        "source_ip": "127.0.0.1",
        **options,
    }
    return Settings(tool=made, **given)


class Serving:
    """A server of ours in a thread; leaving the block waits for its end.

    Attributes
    ----------
    port: where it listens. met, result, error: what became of it. ended_at: monotonic time.
    """

    def __init__(self, context: Context, options: Settings):
        self._context = context
        self._options = options
        self._ports: list[int] = []
        self.met: list[Met] = []
        self.result: Result | None = None
        self.error: Exception | None = None
        self.ended_at = 0.0
        self._thread = Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.result = ends.serve(
                self._context, self._options, self.met.append, self._ports.append
            )
        except Exception as error:
            self.error = error
        finally:
            self.ended_at = time.monotonic()

    @property
    def port(self) -> int:
        end = time.monotonic() + SECONDS
        while not self._ports:
            assert self.error is None and time.monotonic() < end
            time.sleep(0.005)
        return self._ports[0]

    def __enter__(self) -> "Serving":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()


class Scripted:
    """A peer's steps in a thread; leaving the block waits for its end, and raises its error.

    An error of the block is its context then: what the peer did wrong comes first.
    """

    def __init__(self, steps: Callable[[], None]):
        self._steps = steps
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run)

    def _run(self) -> None:
        try:
            self._steps()
        except BaseException as error:
            self._error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # A step that waits in vain says so before.
        self._thread.join(2 * SECONDS)
        if self._error is not None:
            raise self._error
        assert not self._thread.is_alive()
