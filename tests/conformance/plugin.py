"""Pytest plugin: which tests name which rows of the requirement list, and what became of them.

A test names the rows that it would fail for: `@pytest.mark.requirement("MPA-4.1-03", ...)`. Ids
that do not exist are errors in every run, and a red test says what its rows demand.
`--conformance` runs exactly the tests that name a row and writes the report; `--conformance-report`
writes it for whatever else is run.
"""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import report
from tests.conformance.report import Outcome
from tests.conformance.requirements import Requirements

MARKER = "requirement"
NAMES = "conformance_names"
"""Where a worker of pytest-xdist leaves what its tests name."""

ENGINE = "conformance_engine"
"""The same of which tests are on the TCP engine in gateware."""

ENGINE_FOLDERS = ("tests/tcp/", "tests/ip/", "tests/ethernet/")
ENGINE_FIXTURE = "compiled_nic"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance", "conformance list")
    group.addoption(
        "--conformance",
        action="store_true",
        help="run exactly the tests that name a requirement, and write the report",
    )
    group.addoption(
        "--conformance-strict",
        action="store_true",
        help="as --conformance; MUST and SHOULD rows without a test or a review are an error, "
        "except those of TCP/IP",
    )
    group.addoption(
        "--conformance-report",
        action="store_true",
        help="write build/conformance.json and .html for the tests that are run",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Conformance(config), "conformance-list")


def named_by(item: pytest.Item) -> list[str]:
    """The rows that a test names, in order, each once."""
    ids = [id for marker in item.iter_markers(MARKER) for id in marker.args]
    return list(dict.fromkeys(ids))


def is_on_engine(item: pytest.Item) -> bool:
    """Whether a test is on the TCP engine in gateware, or on a part of it.

    Tests of its blocks are in folders of their own; others ask for the compiled NIC.
    """
    fixtures = getattr(item, "fixturenames", ())
    return item.nodeid.startswith(ENGINE_FOLDERS) or ENGINE_FIXTURE in fixtures


class Conformance:
    """What this process knows: names where tests are collected, outcomes where they are reported.

    That is the same process unless pytest-xdist spreads the tests over workers.
    """

    def __init__(self, config: pytest.Config):
        self._config = config
        self._requirements = Requirements()
        option = config.option
        self._strict = bool(option.conformance_strict)
        self._select = bool(option.conformance) or self._strict
        self._report = self._select or bool(option.conformance_report)
        self._names: dict[str, list[str]] = {}  # test to rows
        self._on_engine: set[str] = set()
        self._outcomes: dict[str, Outcome] = {}
        self._list: dict[str, Any] | None = None

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        collected = yield
        items = [it for it in collected.result or () if isinstance(it, pytest.Item)]
        if faults := [fault for item in items for fault in self._faults(item)]:
            # Reported as an error of the file, which is what workers can report, too.
            collected.outcome, collected.longrepr = "failed", "\n".join(faults)
        return collected

    def _faults(self, item: pytest.Item) -> list[str]:
        faults = self._requirements.faults(named_by(item))
        if not all(marker.args for marker in item.iter_markers(MARKER)):
            faults.append("a requirement marker without an id")
        return [f"{item.nodeid}: {fault}" for fault in faults]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        made = yield
        if made.failed and (named := named_by(item)):
            rows = [self._requirements.rows[id] for id in named]
            text = "\n".join(f"{row.id} ({row.level}): {row.text}" for row in rows)
            made.sections.append(("What it looks at", text))
        return made

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        self._names = {item.nodeid: named for item in items if (named := named_by(item))}
        self._on_engine = {item.nodeid for item in items if is_on_engine(item)}
        if self._select:
            others = [item for item in items if item.nodeid not in self._names]
            config.hook.pytest_deselected(items=others)
            items[:] = [item for item in items if item.nodeid in self._names]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # An expected failure is a failure: what the row demands does not hold.
        expected = report.skipped and hasattr(report, "wasxfail")
        outcome = Outcome.FAILED if expected else Outcome(report.outcome)
        if outcome is Outcome.PASSED and report.when != "call":
            return
        before = self._outcomes.get(report.nodeid, Outcome.NOT_RUN)
        self._outcomes[report.nodeid] = max(before, outcome, key=list(Outcome).index)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        output = getattr(node, "workeroutput", {})
        self._names |= output.get(NAMES, {})
        self._on_engine |= set(output.get(ENGINE, ()))

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        # After pytest-xdist, which waits for its workers in this hook, before the summary.
        yield
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[NAMES] = self._names
            self._config.workeroutput[ENGINE] = sorted(self._on_engine & self._names.keys())
        elif self._report and not self._config.option.collectonly:
            self._list = report.conformance_list(
                self._requirements, self._names, self._outcomes, self._on_engine
            )
            folder = Path(self._config.rootpath) / "build"
            report.write(self._list, self._requirements, folder)
            if self._strict and self._missing() and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _missing(self) -> int:
        assert self._list is not None
        return len(self._list["must_without_test"]) + len(self._list["should_without_test"])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._list is None:
            return
        terminalreporter.section("conformance list")
        for (group, level), prefix in report.PREFIXES.items():
            count = {key: self._list[f"{prefix}_{key}"] for key in report.COUNTS}
            terminalreporter.write_line(
                f"{group.upper():3} {level:6} {count['total']:4} rows: {count['tested']} tested, "
                f"{count['passed']} passed, {count['reviewed']} reviewed, "
                f"{count['not_followed']} not followed, "
                f"{len(self._list[f'{prefix}_without_test'])} without a test"
            )
        for level, prefix in report.ENGINE_PREFIXES.items():
            total, tested, passed = (
                self._list[f"{prefix}_{key}"] for key in ("total", "tested", "passed")
            )
            terminalreporter.write_line(
                f"TCP {level:6} {total:4} rows: {tested} tested, {passed} passed on the engine"
            )
        terminalreporter.write_line("build/conformance.html, build/conformance.json")
        if self._strict and self._missing():
            terminalreporter.write_line(
                f"{self._missing()} rows without a test: an error, as asked for", red=True
            )
