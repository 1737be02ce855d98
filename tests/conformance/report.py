"""The conformance list as JSON for programs and as a page for people."""

import html
import json
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from enum import Enum
from pathlib import Path
from string import Template
from typing import Any

from tests.conformance.requirements import COUNTED_LEVELS, FOLDER, OUTSIDE, Requirements

COUNTS = ("total", "tested", "passed", "reviewed", "not_followed")

PREFIXES = {
    ("", "MUST"): "must",
    ("", "SHOULD"): "should",
    ("tcp", "MUST"): "tcp_must",
    ("tcp", "SHOULD"): "tcp_shld",
}
"""How the counts of a group and level of rows begin in `conformance.json`."""

ENGINE_PREFIXES = {"MUST": "tcp_engine_must", "SHOULD": "tcp_engine_shld"}
"""The same of rows of TCP/IP, by tests on the engine in gateware and on its blocks alone. What the
driver does, such as opening, ARP and ICMP, is tested elsewhere.
"""


class Outcome(Enum):
    """What became of a test, from the best to hide to the worst."""

    NOT_RUN = "not run"
    PASSED = "passed"
    SKIPPED = "skipped"
    FAILED = "failed"


class Result(Enum):
    """What is known of a row."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    NOT_RUN = "not run"
    REVIEWED = "reviewed"
    NOT_FOLLOWED = "not followed"
    NO_TEST = "no test"
    OPTIONAL = "optional"  # a MAY row without a test
    OUTSIDE = "outside"


def result_of_tests(outcomes: Sequence[Outcome]) -> Result:
    """One for all tests of a row: each of them claims that it would fail if the row were broken."""
    if Outcome.FAILED in outcomes:
        return Result.FAILED
    if Outcome.NOT_RUN in outcomes:
        return Result.NOT_RUN
    return Result.PASSED if Outcome.PASSED in outcomes else Result.SKIPPED


def conformance_list(
    requirements: Requirements,
    names: Mapping[str, Sequence[str]],
    outcomes: Mapping[str, Outcome],
    on_engine: Set[str] = frozenset(),
) -> dict[str, Any]:
    """The content of `conformance.json`.

    Parameters
    ----------
    names: the ids that each test names. outcomes: of the tests that were run. on_engine: tests on
    the TCP engine in gateware.
    """
    tests: dict[str, dict[str, Outcome]] = {id: {} for id in requirements.rows}
    for test, ids in sorted(names.items()):
        for id in ids:
            tests[id][test] = outcomes.get(test, Outcome.NOT_RUN)

    rows = []
    for row in requirements.rows.values():
        of_row = tests[row.id]
        if of_row:
            result = result_of_tests(list(of_row.values()))
        elif row.outside:
            result = Result.OUTSIDE
        elif row.id in requirements.reviews:
            followed = requirements.reviews[row.id].followed
            result = Result.REVIEWED if followed else Result.NOT_FOLLOWED
        else:
            result = Result.NO_TEST if row.level in COUNTED_LEVELS else Result.OPTIONAL
        rows.append(
            {
                "id": row.id,
                "spec": row.spec,
                "section": row.section,
                "level": row.level,
                "component": row.component,
                "text": row.text,
                "group": row.group,
                "counted": row.counted,
                "outside": row.outside,
                "result": result.value,
                "tests": {test: outcome.value for test, outcome in of_row.items()},
                "on_engine": sorted(on_engine & of_row.keys()),
            }
        )

    counted = [row for row in rows if row["counted"]]
    found: dict[str, Any] = {}
    for (group, level), prefix in PREFIXES.items():
        of_level = [row for row in counted if (row["group"], row["level"]) == (group, level)]
        found |= {f"{prefix}_{name}": count for name, count in _counts(of_level).items()}
        found[f"{prefix}_without_test"] = _ids(of_level, Result.NO_TEST)
        found[f"{prefix}_not_passed"] = [
            row["id"] for row in of_level if row["tests"] and row["result"] != Result.PASSED.value
        ]
    for level, prefix in ENGINE_PREFIXES.items():
        of_level = [row for row in counted if (row["group"], row["level"]) == ("tcp", level)]
        results = [_engine_result(row) for row in of_level]
        found[f"{prefix}_total"] = len(of_level)
        found[f"{prefix}_tested"] = sum(result is not None for result in results)
        found[f"{prefix}_passed"] = results.count(Result.PASSED)
    for group, key in (("", "components"), ("tcp", "tcp_components")):
        of_group = [row for row in counted if row["group"] == group]
        found[key] = {
            component: {
                level.lower(): _counts(
                    [r for r in of_group if (r["component"], r["level"]) == (component, level)]
                )
                for level in COUNTED_LEVELS
            }
            for component in sorted({row["component"] for row in of_group})
        }
    found["outside"] = dict(Counter(row["outside"] for row in rows if row["outside"]))
    found["rows"] = rows
    return found


def _engine_result(row: Mapping[str, Any]) -> Result | None:
    """By the tests on the engine, `None` if there is none."""
    outcomes = [Outcome(row["tests"][test]) for test in row["on_engine"]]
    return result_of_tests(outcomes) if outcomes else None


def _counts(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return {
        "total": len(rows),
        "tested": sum(bool(row["tests"]) for row in rows),
        "passed": sum(row["result"] == Result.PASSED.value for row in rows),
        "reviewed": len(_ids(rows, Result.REVIEWED)),
        "not_followed": len(_ids(rows, Result.NOT_FOLLOWED)),
    }


def _ids(rows: Sequence[Mapping[str, Any]], result: Result) -> list[str]:
    return [row["id"] for row in rows if row["result"] == result.value]


def write(found: Mapping[str, Any], requirements: Requirements, folder: Path) -> None:
    """Writes `conformance.json` and `conformance.html` to a folder."""
    folder.mkdir(exist_ok=True)
    (folder / "conformance.json").write_text(json.dumps(found, indent=1) + "\n")
    (folder / "conformance.html").write_text(page(found, requirements))


def page(found: Mapping[str, Any], requirements: Requirements) -> str:
    """The page: counts by component, then one line per row."""
    template = Template((FOLDER / "page.html").read_text())
    return template.substitute(
        counts="\n".join(_count_lines(found)),
        outside="; ".join(
            f"{count} of {_text(name)} ({_text(OUTSIDE[name])})"
            for name, count in sorted(found["outside"].items())
        ),
        levels=_options([*COUNTED_LEVELS, "MAY"]),
        components=_options(sorted({row["component"] for row in found["rows"]})),
        results=_options([result.value for result in Result]),
        rows="\n".join(_row_line(row, requirements) for row in found["rows"]),
    )


def _text(value: object) -> str:
    return html.escape(str(value))


def _options(values: Sequence[str]) -> str:
    return "".join(f"<option>{_text(value)}</option>" for value in values)


def _count_lines(found: Mapping[str, Any]) -> list[str]:
    lines = []
    for group, key, prefix in (("", "components", ""), ("tcp", "tcp_components", "TCP/IP: ")):
        everything = {
            level.lower(): {name: found[f"{PREFIXES[group, level]}_{name}"] for name in COUNTS}
            for level in COUNTED_LEVELS
        }
        for component, levels in [*found[key].items(), ("all", everything)]:
            cells = [f"<th>{_text(prefix + component)}</th>"]
            for level in COUNTED_LEVELS:
                counts = levels[level.lower()]
                shown = ("tested", "reviewed", "not_followed")
                missing = counts["total"] - sum(counts[name] for name in shown)
                numbers = [*(counts[name] for name in COUNTS), missing]
                cells += [f"<td>{number or ''}</td>" for number in numbers]
            of_all = ' class="all"' if component == "all" else ""
            lines.append(f"<tr{of_all}>{''.join(cells)}</tr>")
    return lines


def _row_line(row: Mapping[str, Any], requirements: Requirements) -> str:
    text = _text(row["text"])
    if correction := requirements.rows[row["id"]].correction:
        text += f'<div class="note">corrected: {_text(correction)}</div>'
    section = f"{_text(row['spec'])} {_text(row['section'])}"
    return (
        f'<tr data-level="{row["level"]}" data-component="{_text(row["component"])}" '
        f'data-result="{row["result"]}"><td id="{_text(row["id"])}">{_text(row["id"])}</td>'
        f"<td>{row['level']}</td><td>{text}</td><td>{section}</td>"
        f"<td>{_shown_by(row, requirements)}</td>"
        f'<td class="result">{row["result"]}</td></tr>'
    )


def _shown_by(row: Mapping[str, Any], requirements: Requirements) -> str:
    """The tests of a row, those of one function together; or the review."""
    review = requirements.reviews.get(row["id"])
    if review is not None:
        where = "".join(f"<code>{_text(place)}</code> " for place in review.where)
        return f"{_text(review.reason)} {where}"
    functions: dict[str, Counter[str]] = {}
    for test, outcome in row["tests"].items():
        functions.setdefault(test.partition("[")[0], Counter())[outcome] += 1
    lines = []
    for function, outcomes in functions.items():
        file, _, name = function.partition("::")
        told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        bad = "" if set(outcomes) == {Outcome.PASSED.value} else ' class="bad"'
        lines.append(f"<div{bad}><code>{_text(name)}</code> <i>{_text(file)}</i>: {told}</div>")
    return "".join(lines)
