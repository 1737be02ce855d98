"""What the runs of all scripts and their rows in excused.toml say together."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tools.packetdrill.scripts import Excuse, Outcome
from tools.packetdrill.trace import Trace

PASSED, EXCUSED, FAILED = "passed", "excused", "failed"


class Runner(Protocol):
    """Runs a script: its name and its text."""

    def __call__(self, name: str, text: str) -> Outcome: ...


@dataclass(frozen=True)
class Verdict:
    """One script. ``why`` is the reason of an excuse, or what went wrong.

    ``trace`` is what the script accepted. ``changed`` says that it passed once what it is excused
    for was taken out; then the trace is that of this run.
    """

    name: str
    verdict: str
    why: str
    trace: Trace
    changed: bool = False


def judge(
    scripts: Mapping[str, Path], excuses: Mapping[str, Excuse], run: Runner
) -> Iterator[Verdict]:
    """Run all scripts; a row that none of them needs fails like a script."""
    for name, path in scripts.items():
        text = path.read_text()
        yield _judge_one(name, text, excuses.get(name), run)
    for name in excuses.keys() - scripts.keys():
        why = "it has a row in excused.toml, and there is no such script"
        yield Verdict(name, FAILED, why, Trace(name))


def _judge_one(name: str, text: str, excuse: Excuse | None, run: Runner) -> Verdict:
    outcome = run(name, text)
    if outcome.passed and excuse:
        return Verdict(name, FAILED, "it passes, and has a row in excused.toml", outcome.trace)
    if outcome.passed:
        return Verdict(name, PASSED, "", outcome.trace)
    if not excuse:
        return Verdict(name, FAILED, outcome.message or "it ended silently", outcome.trace)
    if outcome.line != excuse.line:
        why = f"it ends at line {outcome.line} (excused: line {excuse.line}): {outcome.message}"
        return Verdict(name, FAILED, why, outcome.trace)
    if excuse.message not in outcome.message:
        why = f"its row says {excuse.message!r}: {outcome.message}"
        return Verdict(name, FAILED, why, outcome.trace)
    if not excuse.changes:
        return Verdict(name, EXCUSED, excuse.reason, outcome.trace)
    changed = run(name, excuse.change(text))
    if (None if changed.passed else changed.line) != excuse.then:
        why = f"changed as its row says: {changed.message or 'it passes'}"
        return Verdict(name, FAILED, why, changed.trace)
    return Verdict(name, EXCUSED, excuse.reason, changed.trace, changed.passed)
