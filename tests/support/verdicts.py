"""One simulation with many cocotb tests, and a pytest test for each of them.

A block is simulated once with all its checks; a red test is one check, with the rows of the
requirement list that this check looks at, and no others. In the file of a block:

    @shows("MPA-4.1-03")
    @cocotb.test(timeout_time=1, timeout_unit="ms")
    async def check_words_arrive_in_order(dut):
        ...

    @pytest.fixture(scope="module", params=PATTERNS)
    def verdicts(request, tmp_path_factory):
        return simulate(tmp_path_factory, Thing(), __name__, request.param)

    @each_check(globals())
    def test_thing(check, verdicts):
        verdicts.require(check)

`each_check` stands after the checks, since it looks for them.
"""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from stagecoach.hw.files import locked, write_whole
from tests.support.checks import checks_of
from tests.support.runner import CocotbFailure, run_cocotb

CheckType = TypeVar("CheckType")


@dataclass(frozen=True)
class Verdicts:
    """What became of the checks of one simulation.

    Attributes
    ----------
    failures: reason by name of the check. ending: why the simulation has no verdicts, or empty.
    """

    failures: Mapping[str, str]
    ending: str

    def require(self, check: str) -> None:
        """Raises `CocotbFailure` if this check failed, or if the simulation has no verdicts."""
        __tracebackhide__ = True
        if self.ending:
            raise CocotbFailure(self.ending)
        if check in self.failures:
            raise CocotbFailure(f"{check}: {self.failures[check]}")


PATTERNS = ("always", "random", "bursty")
"""Of back-pressure, one simulation for each."""


def simulate(
    factory: pytest.TempPathFactory,
    component: Any,
    test_module: str,
    pattern: str,
    patterns: Sequence[str] = PATTERNS,
    **options: Any,
) -> Verdicts:
    """Run the cocotb tests of a module with parameter PATTERN, once for all workers.

    A worker that finds another one at it makes a simulation for another of `patterns` meanwhile.
    `options` are those of `run_cocotb`.
    """
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # one for all workers
    folder = base / f"verdicts-{test_module}"
    for each in (pattern, *patterns):
        path = folder / f"{each}.json"
        # Only one that nobody is at, but in the end the one that is asked for.
        with locked(path, wait=False) as mine:
            if mine and not path.exists():
                _run(path, component, test_module, {"PATTERN": each}, options)
        if (folder / f"{pattern}.json").exists():
            break
    path = folder / f"{pattern}.json"
    with locked(path):
        if not path.exists():
            _run(path, component, test_module, {"PATTERN": pattern}, options)
    return Verdicts(**json.loads(path.read_text()))


def _run(
    path: Path, component: Any, test_module: str, parameters: dict[str, str], options: Any
) -> None:
    failures: dict[str, str] = {}
    ending = ""
    name = f"{test_module}-{path.stem}"
    try:
        run_cocotb(component, test_module, name=name, parameters=parameters, **options)
    except CocotbFailure as failure:
        failures = failure.checks
        ending = "" if failures else str(failure)
    write_whole(path, json.dumps({"failures": failures, "ending": ending}))


def shows(*ids: str) -> Callable[[CheckType], CheckType]:
    """A cocotb test would fail if these rows of the requirement list were broken."""

    def mark(check: CheckType) -> CheckType:
        check.shows = (*ids, *getattr(check, "shows", ()))  # type: ignore[attr-defined]
        return check

    return mark


def each_check(namespace: Mapping[str, Any], but: str | None = None) -> pytest.MarkDecorator:
    """A parameter `check` for each cocotb test of a module, marked with the rows that it shows.

    Parameters
    ----------
    namespace: the module's. but: a regular expression for names of checks to leave out.

    Values of `cocotb.parametrize` may have an attribute `shows` for rows of their own.
    """
    return pytest.mark.parametrize(
        "check",
        [
            pytest.param(name, marks=pytest.mark.requirement(*ids) if ids else ())
            for name, ids in checks_of(namespace)
            if but is None or not re.search(but, name)
        ],
    )
