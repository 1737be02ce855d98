"""Changes the gateware at random single points and runs the nearest tests: `make mutate`.

Writes build/mutants.json as it goes, and goes on from there: a change that was killed is not judged
again while the gateware is as it was, one that survived is when a test has changed since. The exit
status is 1 if a survivor is not explained.
"""

import argparse
import hashlib
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from stagecoach.hw.files import BadResults, read_results, write_results
from stagecoach.hw.options import positive
from tools.mutate.explained import BadExplanations, Explanation, read_explanations
from tools.mutate.judge import (
    KILLED,
    NOT_BUILT,
    SAME,
    SURVIVED,
    Copy,
    PlainFailure,
    Result,
    RunFailure,
)
from tools.mutate.netlist import YosysError
from tools.mutate.points import Change, draw

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "mutate"
RESULTS = ROOT / "build" / "mutants.json"
_EXIT_INTERRUPTED = 130


def _digest(folders: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".rdl", ".cpp", ".h", ".sv", ".v"):
                digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()[:20]


class Book:
    """What is known of the changes of one seed, in `build/mutants.json`.

    Each change has an entry in the order in which they were drawn. Those that are no mutants are
    kept, too, so that nothing is done twice.
    """

    def __init__(self, seed: int, wanted: int) -> None:
        self._seed, self._wanted = seed, wanted
        self._gateware = _digest(["gateware", "hw/interface"])
        self._all = _digest(["gateware", "hw", "sim", "host_driver", "tests"])
        self._explained = read_explanations()
        found = read_results(RESULTS)
        known = found.get("drawn", []) if found.get("seed") == seed else []
        # By the text of the change, which the draw repeats.
        self._known: dict[str, dict[str, Any]] = {
            entry["name"]: entry for entry in known if entry["gateware"] == self._gateware
        }
        self._drawn: dict[int, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def known(self, number: int, change: Change) -> bool:
        """Whether this change need not be judged again."""
        entry = self._known.get(change.name)
        if entry is None or (entry["verdict"] == SURVIVED and entry["all"] != self._all):
            return False
        with self._lock:
            self._drawn[number] = entry
        return True

    def add(self, number: int, change: Change, result: Result) -> None:
        """Takes down what came of the change that was drawn as `number`."""
        entry = {
            "name": change.name,
            "file": change.file,
            "line": change.line,
            "change": f"{change.before} -> {change.after}",
            "gateware": self._gateware,
            "all": self._all,
            **asdict(result),
        }
        with self._lock:
            self._drawn[number] = entry
            self.write()

    @property
    def mutants(self) -> list[dict[str, Any]]:
        """The entries that count: the first ones in the order of the draw, no more than wanted."""
        ordered = [self._drawn[number] for number in sorted(self._drawn)]
        return [e for e in ordered if e["verdict"] in (KILLED, SURVIVED)][: self._wanted]

    def explanation(self, entry: dict[str, Any]) -> Explanation | None:
        return self._explained.get((entry["file"], entry["change"]))

    def summary(self) -> dict[str, Any]:
        """What `build/mutants.json` begins with."""
        mutants = self.mutants
        survivors = [entry for entry in mutants if entry["verdict"] == SURVIVED]
        explained = {id(entry): self.explanation(entry) for entry in survivors}
        killed = len(mutants) - len(survivors)
        drawn = [entry["verdict"] for entry in self._drawn.values()]
        return {
            "seed": self._seed,
            "mutants": len(mutants),
            "killed": killed,
            "killed_percent": round(100 * killed / max(1, len(mutants)), 1),
            "equivalent": sum(e is not None and e.equivalent for e in explained.values()),
            "survivors": [
                {
                    **{key: entry[key] for key in ("file", "line", "change", "tests", "skipped")},
                    "equivalent": e.equivalent if (e := explained[id(entry)]) else None,
                    "reason": e.reason if e else None,
                }
                for entry in survivors
            ],
            "not_counted_not_built": drawn.count(NOT_BUILT),
            "not_counted_same_netlist": drawn.count(SAME),
        }

    def write(self) -> None:
        """Writes all that is known, in one step."""
        drawn = [self._drawn[number] for number in sorted(self._drawn)]
        names = {entry["name"] for entry in drawn}
        later = [entry for name, entry in self._known.items() if name not in names]
        write_results(RESULTS, {**self.summary(), "drawn": [*drawn, *later]})


def run(book: Book, changes: Iterator[Change], wanted: int, jobs: int, minutes: float) -> None:
    """Judges changes until `wanted` of them count. Raises `PlainFailure`, KeyboardInterrupt."""
    copies = [Copy(ROOT, BUILD / f"copy_{n}", BUILD / "plain.json", minutes) for n in range(jobs)]
    free: SimpleQueue[int] = SimpleQueue()
    for number in range(jobs):
        free.put(number)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with (
        Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bar,
        ThreadPoolExecutor(jobs) as pool,
    ):
        total = bar.add_task("mutants", total=wanted)
        tasks = [bar.add_task("", total=None, visible=False) for _ in copies]

        def judge(number: int, change: Change) -> tuple[int, Change, Result]:
            mine = free.get()
            where = f"{change.file}:{change.line}"

            def say(what: str) -> None:
                bar.update(tasks[mine], description=f"{where}: {what}", visible=True)

            try:
                return number, change, copies[mine].judge(change, say)
            finally:
                bar.update(tasks[mine], visible=False)
                free.put(mine)

        def done(future: "Future[tuple[int, Change, Result]]") -> None:
            number, change, result = future.result()
            book.add(number, change, result)
            bar.update(total, completed=len(book.mutants))
            why = result.by or result.reason
            line = f"{result.verdict} ({result.seconds:.0f} s): {change.name}"
            bar.console.print(f"{line} [{why}]" if why else line, **PLAIN)

        running: set[Future[tuple[int, Change, Result]]] = set()
        try:
            for number, change in enumerate(changes):
                if len(book.mutants) >= wanted:
                    break
                if book.known(number, change):
                    bar.update(total, completed=len(book.mutants))
                    continue
                running.add(pool.submit(judge, number, change))
                if len(running) == jobs:
                    finished, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in finished:
                        done(future)
            # One that was drawn earlier may still count instead of a later one.
            for future in running:
                done(future)
        except BaseException:
            for copy in copies:
                copy.stop()
            raise


PLAIN: dict[str, Any] = {"markup": False, "highlight": False, "soft_wrap": True}


def show(book: Book, console: Console) -> bool:
    """Prints what came of it; returns whether each survivor is explained."""
    summary = book.summary()
    console.print(
        f"{summary['killed']} of {summary['mutants']} mutants killed "
        f"({summary['killed_percent']} %), {summary['equivalent']} of the others equivalent. "
        f"Not counted: {summary['not_counted_not_built']} not built, "
        f"{summary['not_counted_same_netlist']} with the same netlist.",
        **PLAIN,
    )
    open_ones = False
    for survivor in summary["survivors"]:
        open_ones |= survivor["reason"] is None
        reason = survivor["reason"] or "not explained"
        console.print(
            f"survived: {survivor['file']}:{survivor['line']}: {survivor['change']}\n    {reason}",
            **PLAIN,
        )
    return not open_ones


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="make mutate", description=__doc__)
    parser.add_argument("--mutants", type=positive, default=60, help="that count (default 60)")
    parser.add_argument("--seed", type=positive, default=1, help="of the draw (default 1)")
    parser.add_argument("--jobs", type=positive, default=1, help="mutants at a time (default 1)")
    parser.add_argument(
        "--minutes", type=positive, default=30, help="of tests for each mutant (default 30)"
    )
    options = parser.parse_args(arguments)
    console = Console()
    for number in (signal.SIGINT, signal.SIGTERM):  # a background job ignores SIGINT
        signal.signal(number, signal.default_int_handler)
    try:
        book = Book(options.seed, options.mutants)
        changes = draw(ROOT, options.seed)
        run(book, changes, options.mutants, options.jobs, options.minutes)
    except (BadResults, BadExplanations, PlainFailure, RunFailure, YosysError) as error:
        print(f"mutate: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        console.print(f"interrupted; {RESULTS.relative_to(ROOT)} has what is known", **PLAIN)
        return _EXIT_INTERRUPTED
    book.write()
    return 0 if show(book, console) else 1


if __name__ == "__main__":
    sys.exit(main())
