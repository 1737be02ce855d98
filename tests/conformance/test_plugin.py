"""The plugin that makes the conformance list: what it runs, what it refuses, what it writes."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]
MARKER = "requirement(*ids): rows"

# Rows of the list that are MUST, MUST, SHOULD, MAY and outside.
TESTS = """
    import pytest

    pytestmark = pytest.mark.requirement("MPA-3-01")

    def test_one(): pass

    @pytest.mark.requirement("MPA-3-02", "MPA-3-03", "MPA-3-01")
    @pytest.mark.parametrize("number", [1, pytest.param(
        2, marks=pytest.mark.requirement("MPA-3-07"))])
    def test_two(number): assert number == 1

    @pytest.mark.requirement("MPA-3-04")
    def test_skipped(): pytest.skip("not here")
"""
OTHERS = """
    def test_that_names_nothing(): raise SystemExit
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with tests and the plugin."""
    pytester.makeini(f"[pytest]\nmarkers = {MARKER}\npythonpath = {ROOT}\n")
    pytester.makeconftest("pytest_plugins = ['tests.conformance.plugin']")
    return pytester


def run(project: pytest.Pytester, *arguments: str, workers: int = 0) -> pytest.RunResult:
    """Runs the tests of the folder, in a process of their own only if they need workers."""
    if workers:
        return project.runpytest_subprocess(*arguments, f"-n{workers}")
    return project.runpytest_inprocess(*arguments)


def listed(project: pytest.Pytester) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.path / "build" / "conformance.json").read_text())
    return found


def rows(project: pytest.Pytester) -> dict[str, Any]:
    return {row["id"]: row for row in listed(project)["rows"]}


def test_a_red_test_says_what_its_rows_demand(project: pytest.Pytester):
    project.makepyfile(test_named=TESTS)
    ran = run(project)
    ran.assert_outcomes(passed=2, failed=1, skipped=1)
    ran.stdout.fnmatch_lines(["*What it looks at*", "MPA-3-02 (*): *", "MPA-3-07 (*): *"])
    ran.stdout.no_fnmatch_line("MPA-3-04 (*")


@pytest.mark.parametrize("workers", [0, 2])
def test_exactly_the_tests_that_name_a_row_are_run_once(project: pytest.Pytester, workers: int):
    project.makepyfile(test_named=TESTS, test_others=OTHERS)
    ran = run(project, "--conformance", workers=workers)
    ran.assert_outcomes(passed=2, failed=1, skipped=1, deselected=0 if workers else 1)
    assert ran.ret == pytest.ExitCode.TESTS_FAILED

    found = rows(project)
    one, first, second = (
        f"test_named.py::{name}" for name in ("test_one", "test_two[1]", "test_two[2]")
    )
    skipped = "test_named.py::test_skipped"
    assert found["MPA-3-01"]["tests"] == {
        one: "passed",
        first: "passed",
        second: "failed",
        skipped: "skipped",
    }
    assert found["MPA-3-01"]["result"] == "failed"
    assert found["MPA-3-02"]["tests"] == {first: "passed", second: "failed"}
    assert found["MPA-3-04"]["result"] == "skipped"
    assert found["MPA-3-05"] == found["MPA-3-05"] | {"tests": {}, "result": "no test"}
    assert found["MPA-3-07"]["tests"] == {second: "failed"}


def test_rows_are_counted_by_level(project: pytest.Pytester):
    project.makepyfile(
        """
        import pytest
        @pytest.mark.requirement("MPA-3-01", "MPA-3-03", "MPA-3-06", "EXT-5-01")
        def test_one(): pass
        @pytest.mark.requirement("MPA-3-02")
        def test_two(): assert False
        """
    )
    run(project, "--conformance")
    found = listed(project)
    counted = [row for row in found["rows"] if row["counted"] and not row["group"]]
    for level in ("MUST", "SHOULD"):
        ids = [row["id"] for row in counted if row["level"] == level]
        prefix = level.lower()
        assert found[f"{prefix}_total"] == len(ids)
        without = found[f"{prefix}_without_test"]
        shown = ("tested", "reviewed", "not_followed")
        assert len(without) == len(ids) - sum(found[f"{prefix}_{name}"] for name in shown)
        assert set(without) < set(ids)
    assert (found["must_tested"], found["must_passed"]) == (2, 1)
    assert (found["should_tested"], found["should_passed"]) == (1, 1)
    assert found["must_not_passed"] == ["MPA-3-02"]
    components = found["components"]
    assert "not-applicable" not in components
    assert sum(levels["must"]["total"] for levels in components.values()) == found["must_total"]
    assert components["mpa-tx"]["must"]["passed"] == 1
    assert components["atomic"]


def test_rows_of_tcp_are_counted_apart(project: pytest.Pytester):
    project.makepyfile(
        """
        import pytest
        @pytest.mark.requirement("TCP-MUST-2", "TCP-SHLD-2", "TCP-SHLD-4", "MPA-3-01")
        def test_one(): pass
        @pytest.mark.requirement("TCP-MUST-3")
        def test_two(): assert False
        """
    )
    run(project, "--conformance").stdout.fnmatch_lines(["TCP MUST *2 tested, 1 passed*"])
    found = listed(project)
    counted = [row for row in found["rows"] if row["counted"] and row["group"] == "tcp"]
    for level, prefix in (("MUST", "tcp_must"), ("SHOULD", "tcp_shld")):
        assert found[f"{prefix}_total"] == sum(row["level"] == level for row in counted)
    assert (found["tcp_must_tested"], found["tcp_must_passed"]) == (2, 1)
    # TCP-SHLD-4 is of a later stage.
    assert (found["tcp_shld_tested"], found["tcp_shld_passed"]) == (1, 1)
    assert (found["must_tested"], found["must_passed"]) == (1, 1)
    assert found["tcp_components"]["checksum"]["must"]["tested"] == 2
    assert "later" in found["outside"]


@pytest.mark.parametrize("workers", [0, 2])
def test_rows_of_tcp_that_a_test_on_the_engine_names_are_counted_again(
    project: pytest.Pytester, workers: int
):
    project.makepyfile(
        """
        import pytest
        @pytest.fixture
        def compiled_nic(): pass
        @pytest.mark.requirement("TCP-MUST-2", "TCP-MUST-3", "TCP-MUST-4", "MPA-3-01")
        def test_reference(): pass
        @pytest.mark.requirement("TCP-MUST-2", "TCP-SHLD-2", "MPA-3-02")
        def test_engine(compiled_nic): pass
        @pytest.mark.requirement("TCP-MUST-3")
        @pytest.mark.usefixtures("compiled_nic")
        def test_red(): assert False
        """
    )
    run(project, "--conformance", "-n", str(workers)).stdout.fnmatch_lines(
        ["TCP MUST *2 tested, 1 passed on the engine"]
    )
    found = listed(project)
    assert found["tcp_engine_must_total"] == found["tcp_must_total"]
    assert (found["tcp_engine_must_tested"], found["tcp_engine_must_passed"]) == (2, 1)
    assert (found["tcp_engine_shld_tested"], found["tcp_engine_shld_passed"]) == (1, 1)
    assert (found["tcp_must_tested"], found["tcp_must_passed"]) == (3, 2)


@pytest.mark.parametrize("workers", [0, 2])
def test_rows_without_a_test_are_an_error_only_if_that_is_asked_for(
    project: pytest.Pytester, workers: int
):
    project.makepyfile(
        "import pytest\n@pytest.mark.requirement('MPA-3-01')\ndef test_one(): pass\n"
    )
    passing = run(project, "--conformance", workers=workers)
    assert passing.ret == pytest.ExitCode.OK
    passing.stdout.fnmatch_lines(["*MUST*1 tested, 1 passed*without a test*"])
    strict = run(project, "--conformance-strict", workers=workers)
    assert strict.ret == pytest.ExitCode.TESTS_FAILED
    strict.stdout.fnmatch_lines(["*rows without a test: an error, as asked for*"])


UNKNOWN = ("'MPA-3-01', 'MPA-3-99'", "test_one: 'MPA-3-99' is no id of a row")


@pytest.mark.parametrize(
    ("ids", "message", "arguments", "workers"),
    [
        (*UNKNOWN, [], 0),
        (*UNKNOWN, ["--conformance"], 2),
        ("'MPA2-10-04'", "'MPA2-10-04' has a test now: it must not be in reviewed.toml", [], 0),
        (
            "'IPV4-3.2-02'",
            "'IPV4-3.2-02' has a test now: it must not be in not_followed.toml",
            [],
            0,
        ),
        ("", "test_one: a requirement marker without an id", [], 0),
    ],
    ids=["unknown", "unknown to workers", "reviewed", "not followed", "none"],
)
def test_a_wrong_marker_is_an_error_in_every_run(
    project: pytest.Pytester, ids: str, message: str, arguments: list[str], workers: int
):
    project.makepyfile(f"import pytest\n@pytest.mark.requirement({ids})\ndef test_one(): pass\n")
    ran = run(project, *arguments, workers=workers)
    assert ran.ret in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)
    assert message in ran.stdout.str()


def test_a_run_of_other_tests_writes_nothing_and_any_run_does_if_it_is_asked_for(
    project: pytest.Pytester,
):
    project.makepyfile(test_named=TESTS, test_others="def test_three(): pass")
    ran = run(project)
    ran.assert_outcomes(passed=3, failed=1, skipped=1)
    assert not (project.path / "build").exists()
    ran = run(project, "--conformance-report", "-k", "test_one or test_three")
    ran.assert_outcomes(passed=2, deselected=3)
    found = rows(project)
    # What was left out is not hidden.
    assert found["MPA-3-01"]["result"] == found["MPA-3-02"]["result"] == "not run"


def test_an_error_behind_a_test_and_an_expected_failure_count(project: pytest.Pytester):
    project.makepyfile(
        """
        import pytest
        @pytest.fixture
        def broken():
            yield
            assert False
        @pytest.mark.requirement("MPA-3-01")
        def test_one(broken): pass
        @pytest.mark.requirement("MPA-3-02")
        def test_two(no_such_fixture): pass
        @pytest.mark.requirement("MPA-3-03")
        @pytest.mark.xfail
        def test_three(): assert False
        """
    )
    run(project, "--conformance")
    found = rows(project)
    for id in ("MPA-3-01", "MPA-3-02", "MPA-3-03"):
        assert found[id]["result"] == "failed", id


def test_the_page_has_one_line_per_row(project: pytest.Pytester):
    project.makepyfile(test_named=TESTS)
    run(project, "--conformance")
    page = (project.path / "build" / "conformance.html").read_text()
    for row in listed(project)["rows"]:
        assert page.count(f'<td id="{row["id"]}">') == 1
    assert "$" not in page
    assert "nothing that this device or its driver does" in page
    assert "<code>test_two</code> <i>test_named.py</i>: 1 failed, 1 passed" in page
