"""Runs the benchmarks and writes `build/bench.json`: `make bench`."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench import speed
from bench.catalogue import FIGURES, RATIOS
from bench.required import REQUIRED
from bench.run import run_case
from sim.cosim.runner import CocotbFailure

RESULT = Path("build/bench.json")
KEYS = (*FIGURES, *RATIOS, *speed.KEYS)


def select(names: Sequence[str]) -> list[str]:
    """The keys to be measured, in the order of the table; all without a name.

    `ValueError` names one that there is not.
    """
    for name in names:
        if name not in KEYS:
            raise ValueError(f"no figure {name!r}; allowed: {', '.join(KEYS)}")
    return [key for key in KEYS if not names or key in names]


def measure(
    keys: Sequence[str], begin: Callable[[str, dict[str, float]], None]
) -> tuple[dict[str, float], dict[str, str]]:
    """Figures by key, and why some could not be measured.

    `begin` is called before each one, with its key and the figures so far.
    """
    figures: dict[str, float] = {}
    failed: dict[str, str] = {}
    for key in keys:
        begin(key, figures)
        try:
            if key in FIGURES:
                figures[key] = _case_figure(key)
            elif key in RATIOS:
                over, under = RATIOS[key]
                figures[key] = round(_case_figure(over) / _case_figure(under), 3)
            elif key not in figures:
                figures |= _speed_figures(key, figures)
                if key not in figures:
                    failed[key] = "not measured: there is no iverilog"
        except CocotbFailure as error:
            failed[key] = str(error)
    return {key: figures[key] for key in keys if key in figures}, failed


def _case_figure(key: str) -> float:
    figure = FIGURES[key]
    return figure.value(run_case(figure.case))


def _speed_figures(key: str, known: dict[str, float]) -> dict[str, float]:
    if key in speed.COMPILED_KEYS:
        return speed.measure_compiled()
    if key in speed.ICARUS_KEYS:
        return speed.measure_icarus()
    figures: dict[str, float] = {}
    if "sim_cycles_per_second" not in known:
        figures |= speed.measure_compiled()
    if "sim_icarus_cycles_per_second" not in known:
        figures |= speed.measure_icarus()
    both = known | figures
    if "sim_icarus_cycles_per_second" in both:
        figures[speed.RATIO_KEY] = round(
            both["sim_cycles_per_second"] / both["sim_icarus_cycles_per_second"], 1
        )
    return figures


def write(figures: dict[str, float]) -> None:
    """Writes what is measured so far: a run takes minutes."""
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(figures, indent=2) + "\n")


def show(figures: dict[str, float]) -> None:
    """Prints the table of figures."""
    table = Table(title="One device: read latency 250 cycles, write response 50")
    for column in ("figure", "value", "required", "limit", ""):
        table.add_column(column, justify="left" if column == "figure" else "right")
    for key, value in figures.items():
        requirement = REQUIRED.get(key)
        if requirement is None:
            table.add_row(key, f"{value:,}")
        else:
            verdict = "met" if requirement.met(value) else "missed"
            table.add_row(key, f"{value:,}", str(requirement), requirement.limit, verdict)
    Console(width=120).print(table)


def main() -> int:
    """Runs the command and returns its exit status: 1 if a required figure is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", metavar="KEY", default=[], help="measure these figures, write nothing"
    )
    arguments = parser.parse_args()
    try:
        keys = select(arguments.only)
    except ValueError as error:
        parser.exit(2, f"bench: {error}\n")
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=None)

        def begin(key: str, figures: dict[str, float]) -> None:
            progress.update(task, description=key)
            if not arguments.only:
                write(figures)

        figures, failed = measure(keys, begin)
    if not arguments.only:
        write(figures)
    show(figures)
    missed = [key for key in figures if key in REQUIRED and not REQUIRED[key].met(figures[key])]
    for key in missed:
        print(f"bench: {key} is {figures[key]:g}; required: {REQUIRED[key]}", file=sys.stderr)
    for key, reason in failed.items():
        print(f"bench: {key}: {reason}", file=sys.stderr)
    return 1 if missed or failed else 0


if __name__ == "__main__":
    sys.exit(main())
