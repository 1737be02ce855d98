"""Runs packetdrill's scripts against the reference TCP in simulated time: `make packetdrill`.

Writes build/packetdrill.json. The exit status is 1 if a script fails that excused.toml does not
excuse, or one that it excuses passes or fails elsewhere, or if a trace that is kept differs.
"""

import argparse
import functools
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from stagecoach.hw.files import write_results, write_whole
from tools.packetdrill.build import ROOT, BuildError, build, source
from tools.packetdrill.engine_world import EngineWorld, library
from tools.packetdrill.judge import EXCUSED, FAILED, PASSED, Runner, Verdict, judge
from tools.packetdrill.scripts import EXCUSED as EXCUSED_FILE
from tools.packetdrill.scripts import EXCUSED_ENGINE, Excuse, find, read_excuses, run
from tools.packetdrill.trace import read_traces

RESULTS = ROOT / "build" / "packetdrill.json"
TRACES = ROOT / "tests" / "data" / "tcp" / "packetdrill.txt"
_DEFAULT = ROOT.parent / "shared" / "third_party" / "packetdrill"
_HEADER = """\
# What the reference TCP did while scripts of packetdrill accepted it: `python -m tools.packetdrill
# --record` writes this file. The scripts themselves are not here.
#
# A line has the time in microseconds and what happens. The user: listen, open ("nodelay": without
# Nagle's algorithm), send COUNT, read COUNT, shut (no more to send), close (nothing more is read
# either), abort. The network: < a segment of the peer, > one of the reference, as FLAGS SEQ[+COUNT]
# [ack ACK] win WINDOW [mss MSS] [sackok] [wscale SHIFT] [sack L:R ...], with numbers relative to
# each initial one.

"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tools.packetdrill", description=__doc__)
    parser.add_argument(
        "place", nargs="?", help="packetdrill's folder, or an archive (path, https)"
    )
    parser.add_argument("--sha256", help="of the archive")
    parser.add_argument("--record", action="store_true", help="write the traces that are kept")
    options = parser.parse_args(arguments)
    if not options.place and not _DEFAULT.is_dir():
        print(
            f"packetdrill: 0 scripts ran: {_DEFAULT} is not there (PACKETDRILL=path names another)"
        )
        write_results(RESULTS, _summary([], 0.0))
        return 0
    try:
        folder = source(options.place or str(_DEFAULT), options.sha256)
        programs = build(folder)
        excuses = read_excuses(EXCUSED_FILE.read_text())
        engine_excuses = read_excuses(EXCUSED_ENGINE.read_text())
    except (BuildError, ValueError) as error:
        print(f"packetdrill: {error}", file=sys.stderr)
        return 2
    scripts = find(folder)
    verdicts, summary = _judged(scripts, excuses, functools.partial(run, *programs))
    nic = library()
    on_engine, of_engine = _judged(
        scripts,
        excuses | engine_excuses,
        functools.partial(run, *programs, make_world=lambda recorder: EngineWorld(recorder, nic)),
    )
    write_results(RESULTS, {**summary, "engine": of_engine})
    failed = [v for v in verdicts if v.verdict == FAILED]
    for verdict in failed:
        print(f"FAILED {verdict.name}: {verdict.why}")
    if options.record and not failed:
        write_whole(TRACES, _kept(verdicts))
    stale = _stale([v for v in verdicts if v.verdict != FAILED])
    for name in stale:
        print(f"FAILED {name}: its trace is not the one in {TRACES.relative_to(ROOT)} (--record)")
    failed_on_engine = [v for v in on_engine if v.verdict == FAILED]
    for verdict in failed_on_engine:
        print(f"FAILED on the engine: {verdict.name}: {verdict.why}")
    for name, counts in (("the reference TCP", summary), ("the engine", of_engine)):
        print(f"packetdrill on {name}: {_counts(counts)}")
    return int(bool(failed or stale or failed_on_engine))


def _judged(
    scripts: Mapping[str, Path], excuses: Mapping[str, Excuse], runner: Runner
) -> tuple[list[Verdict], dict[str, object]]:
    """The verdicts of all scripts, and their summary."""
    verdicts: list[Verdict] = []
    begun = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("packetdrill", total=len(scripts))
        for verdict in judge(scripts, excuses, runner):
            verdicts.append(verdict)
            bar.update(task, advance=1, description=verdict.name)
    return verdicts, _summary(verdicts, time.monotonic() - begun)


def _counts(summary: Mapping[str, object]) -> str:
    return (
        "{scripts_total} scripts ran: {scripts_passed} passed, {scripts_excused} "
        "excused, of which {scripts_excused_passed_changed} pass without what they are excused "
        "for, {scripts_failed} failed; {segments_accepted} segments accepted".format_map(summary)
    )


def _summary(verdicts: Sequence[Verdict], seconds: float) -> dict[str, object]:
    def count(verdict: str) -> int:
        return sum(v.verdict == verdict for v in verdicts)

    return {
        "scripts_total": len(verdicts),
        "scripts_passed": count(PASSED),
        "scripts_excused": count(EXCUSED),
        "scripts_excused_passed_changed": sum(v.changed for v in verdicts),
        "scripts_failed": count(FAILED),
        "segments_accepted": sum(v.trace.sent for v in verdicts),
        "run_seconds": round(seconds, 1),
        "scripts": [
            {
                "name": v.name,
                "verdict": v.verdict,
                "why": " ".join(v.why.split()),
                "segments_accepted": v.trace.sent,
                "passed_changed": v.changed,
            }
            for v in verdicts
        ],
    }


def _kept(verdicts: Sequence[Verdict]) -> str:
    return _HEADER + "\n".join(v.trace.write() for v in verdicts if v.trace.sent)


def _stale(verdicts: Sequence[Verdict]) -> list[str]:
    """Scripts whose trace is not kept as it is, and kept ones that no script has."""
    kept = {trace.name: trace for trace in read_traces(TRACES.read_text())}
    made = {v.name: v.trace for v in verdicts if v.trace.sent}
    return [name for name in sorted(kept | made) if kept.get(name) != made.get(name)]


if __name__ == "__main__":
    sys.exit(main())
