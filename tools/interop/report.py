"""build/interop.json and docs/interop.md: what ran, and what came of it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.interop.judge import FAILED, NOT_RUN, PASSED, PEER_FAULT, Row
from tools.interop.plan import Case

PEER = "Linux with siw"


@dataclass
class Run:
    """A run: its planned cases, and the rows so far.

    commit: of this repository. stopped: why there was no guest for what did not run.
    other: what `summary` has of the last run of the other kind, full or usual; `None` if there was
    none.
    """

    cases: Sequence[Case]
    date: str
    commit: str
    versions: Mapping[str, str]
    full: bool
    rows: list[Row] = field(default_factory=list)
    seconds: float = 0.0
    stopped: str = ""
    other: Mapping[str, Any] | None = None

    def all_rows(self) -> list[Row]:
        """Those of cases that ran, then one for each that did not."""
        ran = {row.case.label for row in self.rows}
        return [*self.rows, *(Row(case, NOT_RUN) for case in self.cases if case.label not in ran)]

    @property
    def failures(self) -> list[Row]:
        """Cases that failed or did not run."""
        return [row for row in self.all_rows() if row.result in (FAILED, NOT_RUN)]

    def as_json(self) -> dict[str, Any]:
        """What build/interop.json has."""
        return {
            **self.summary(),
            "stopped": self.stopped,
            "other_run": self.other,
            "cases": [self._row(row) for row in self.all_rows()],
        }

    def summary(self) -> dict[str, Any]:
        """What it has of the run as a whole."""
        count = Counter(row.result for row in self.all_rows())
        return {
            "date": self.date,
            "commit": self.commit,
            "full_matrix": self.full,
            "run_seconds": round(self.seconds),
            "cases_planned": len(self.cases),
            "cases_passed": count[PASSED],
            "cases_failed": count[FAILED],
            "cases_not_run": count[NOT_RUN],
            "peer_faults": count[PEER_FAULT],
        }

    def _row(self, row: Row) -> dict[str, Any]:
        return {
            "peer": PEER,
            "versions": dict(self.versions),
            "case": f"{row.case.subject}: {row.case.name}",
            "transport": row.case.way.transport,
            "loss": row.case.way.loss,
            "result": row.result,
            "why": row.why,
            "seconds": round(row.seconds, 1),
        }


def other_run(results: Mapping[str, Any], full: bool) -> Mapping[str, Any] | None:
    """The last run of the other kind than `full`, of what build/interop.json had before."""
    if results and results["full_matrix"] != full:
        of_cases = ("cases", "stopped", "other_run")
        return {name: value for name, value in results.items() if name not in of_cases}
    found: Mapping[str, Any] | None = results.get("other_run")
    return found


_PAGE = Path(__file__).with_name("page.txt")


def page(results: Mapping[str, Any], retries: int) -> str:
    """docs/interop.md, of what build/interop.json has."""
    versions = results["cases"][0]["versions"]
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    run = f"{_line(results)} The peer: {PEER}; {listed}."
    if (other := results.get("other_run")) is not None:
        run += f"\n\n{_line(other)}"
    faults = "".join(
        f"* {row['case']} ({_way(row)}): {row['result']}: {row['why']}\n"
        for row in results["cases"]
        if row["result"] in (FAILED, PEER_FAULT)
    )
    if results["stopped"]:
        faults += f"* There was no guest for the rest: {results['stopped']}\n"
    return _PAGE.read_text().format(
        run=run,
        table="\n".join(_table(results["cases"])),
        faults=f"\n{faults}" if faults else "",
        retries=retries,
    )


def _line(summary: Mapping[str, Any]) -> str:
    """A run, and how long it took."""
    kind = "`make interop ALL=1`" if summary["full_matrix"] else "`make interop`"
    return (
        f"{kind}, {summary['date']}, {summary['commit']}: {summary['cases_planned']} cases, "
        f"{summary['cases_passed']} passed, {summary['cases_failed']} failed, "
        f"{summary['cases_not_run']} did not run, {summary['peer_faults']} faults of the peer; "
        f"{summary['run_seconds'] / 60:.0f} minutes."
    )


def _way(row: Mapping[str, Any]) -> str:
    loss = f", {row['loss']:.1%} loss" if row["loss"] else ""
    return f"{row['transport']}{loss}"


def _table(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each case, a column for each way."""
    by_case: dict[str, dict[str, str]] = {}
    ways: dict[str, None] = {}
    for row in rows:
        ways[_way(row)] = None
        # The last row of a case is what came of it.
        by_case.setdefault(row["case"], {})[_way(row)] = row["result"]
    yield f"| case | {' | '.join(ways)} |"
    yield "|---" * (1 + len(ways)) + "|"
    for case, results in by_case.items():
        yield f"| {case} | {' | '.join(results.get(way, '') for way in ways)} |"
