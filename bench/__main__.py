"""Runs the benchmarks, writes `build/bench.json` and docs/performance.md: `make bench`."""

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from bench.before import BeforeError, measure_before
from bench.curves import FAMILIES
from bench.floors import FLOORS, SHORT_KEYS, read_floors, shortened
from bench.measure import FAILURES, measure, measure_curves, select, with_ratios
from bench.performance import write_document
from bench.required import REQUIRED
from bench.table import complain, show
from stagecoach.hw.files import BadResults, read_results, write_results
from stagecoach.hw.options import positive

RESULT = Path("build/bench.json")
PARTIAL = RESULT.with_suffix(".partial")
"""Figures of a run that has not come to its end; those of the last one stay as they are."""

CURVES = Path("build/performance.json")
BEFORE = Path("build/bench_before.json")


def last_results() -> tuple[dict[str, float], dict[str, dict[str, dict[str, int]]]]:
    """Figures and curves of the last whole run. `BadResults` if one is missing."""
    figures, curves = read_results(RESULT), read_results(CURVES)
    points = {curve.key: curve.points for family in FAMILIES for curve in family.curves}
    absent = [key for key in REQUIRED if key not in figures] + [
        f"{key} at {point.x}"
        for key, of_curve in points.items()
        for point in of_curve
        if str(point.x) not in curves.get(key, {})
    ]
    if absent:
        raise BadResults(f"{absent[0]} was not measured: run `make bench` first")
    return figures, curves


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--only", nargs="+", metavar="KEY", default=[], help="measure these figures, write nothing"
    )
    choice.add_argument(
        "--again",
        nargs="+",
        metavar="KEY",
        default=[],
        help="measure these figures and their ratios anew, in place of those of the last whole "
        "run, which has to be of the same gateware: for what is measured in seconds, on a machine "
        "that had other work",
    )
    choice.add_argument(
        "--short",
        action="store_true",
        help="measure all cycles of one device in shorter runs, write nothing; fail below a floor",
    )
    choice.add_argument(
        "--document",
        action="store_true",
        help="write docs/performance.md from what the last whole run left in build",
    )
    choice.add_argument(
        "--before",
        metavar="COMMIT",
        help="compare the speed of the simulator with that of an earlier commit, by turns, and "
        f"write {BEFORE}",
    )
    parser.add_argument(
        "--jobs",
        type=positive,
        default=1,
        metavar="N",
        help="cases that are simulated at once: they count cycles; default: %(default)s",
    )
    return parser.parse_args()


def _progress() -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True))


def _compare(commit: str) -> int:
    try:
        with _progress() as progress:
            task = progress.add_task("", total=None)
            found = measure_before(commit, lambda what: progress.update(task, description=what))
    except BeforeError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    write_results(BEFORE, found)
    for key, value in found.items():
        print(f"{key}: {value}")
    return 0


def main() -> int:
    """Runs the command and returns its exit status: 1 if a required figure or floor is missed."""
    options = _options()
    if options.document:
        try:
            write_document(*last_results())
        except BadResults as error:
            print(f"bench: {error}", file=sys.stderr)
            return 2
        return 0
    if options.before is not None:
        return _compare(options.before)
    try:
        keys = list(SHORT_KEYS) if options.short else select(options.only or options.again)
        if options.again:
            keys = with_ratios(keys)
        last = last_results()[0] if options.again else {}
        floors = read_floors(FLOORS.read_text()) if options.short else REQUIRED
    except (BadResults, ValueError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    whole = not (options.only or options.again or options.short)
    with _progress() as progress:
        task = progress.add_task("", total=None)

        def begin(what: str) -> None:
            progress.update(task, description=what)

        def save(figures: dict[str, float]) -> None:
            if whole:
                write_results(PARTIAL, figures)

        shape = shortened if options.short else None
        figures, failed = measure(keys, begin, save, shape, options.jobs)
        if whole:
            PARTIAL.rename(RESULT)
            CURVES.unlink(missing_ok=True)  # of another run: they do not belong to these figures
            try:
                write_results(CURVES, measure_curves(begin, options.jobs))
            except FAILURES as error:
                failed["curves"] = str(error)
        if options.again:
            write_results(RESULT, last | figures)
        if not failed and (whole or options.again):
            write_document(*last_results())
    show(figures, floors)
    return 1 if complain(figures, floors, failed) else 0


if __name__ == "__main__":
    sys.exit(main())
