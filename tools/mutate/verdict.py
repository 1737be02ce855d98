"""The plugin that tells, from inside pytest, whether a test failed by a check.

Writes JSON to the file that STAGECOACH_VERDICT names: `failed`, the first test that failed, None
if none did; `kind`, `check`, `build` or `timeout`; `reason`, its last line; `seconds` by test.
"""

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "STAGECOACH_VERDICT"

BUILD_ERRORS = ("BuildError", "RuntimeError: building ", "did not converge", "YosysError")
"""What the text of an error has in it when a design could not be built or settled."""

ELABORATION = ("gateware/", "amaranth/")
"""Where a design is made; paths from the root of the project, or from where packages are."""


class Verdict:
    """Collects what happens to the tests of one run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, Any] = {"failed": None, "kind": "", "reason": "", "seconds": {}}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, Any, None]:
        """Remembers how long it took and what kind of failure it was."""
        outcome = yield
        seconds = self._found["seconds"]
        seconds[item.nodeid] = seconds.get(item.nodeid, 0.0) + call.duration
        report = outcome.get_result()
        if report.failed and call.excinfo is not None:
            root = item.config.rootpath
            trace = [_place(Path(entry.path), root) for entry in call.excinfo.traceback]
            self._fail(item.nodeid, kind(call.excinfo.exconly(), trace), call.excinfo.exconly())

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A test file that cannot be imported checks nothing."""
        if report.failed:
            self._fail(report.nodeid, "build", report.longreprtext)

    def pytest_sessionfinish(self) -> None:
        """Writes what was found."""
        self._path.write_text(json.dumps(self._found))

    def _fail(self, test: str, kind: str, reason: str) -> None:
        if self._found["failed"] is None:
            lines = [line.strip() for line in reason.splitlines() if line.strip()]
            # cocotb's failures name their test in the second line.
            self._found |= {"failed": test, "kind": kind, "reason": " ".join(lines[:2])[:400]}


def _place(path: Path, root: Path) -> str:
    """A path from the root of the project, or from the folder of packages that it is in."""
    _, packages, place = path.as_posix().rpartition("/site-packages/")
    if not packages and path.is_relative_to(root):
        return path.relative_to(root).as_posix()
    return place


def kind(text: str, trace: list[str]) -> str:
    """What kind of failure an error is, by its text and the files that it went through.

    An assertion that failed in a test is a check, even if a simulator of Amaranth called it.
    """
    if any(error in text for error in BUILD_ERRORS):
        return "build"
    if text.startswith("Failed: Timeout"):
        return "timeout"
    makes = [file.startswith(ELABORATION) for file in trace]
    asserts = text.startswith("AssertionError") and not makes[-1]
    return "build" if any(makes) and not asserts else "check"


def pytest_configure(config: pytest.Config) -> None:
    """Takes part if the environment says where to write."""
    if VARIABLE in os.environ:
        config.pluginmanager.register(Verdict(Path(os.environ[VARIABLE])))
