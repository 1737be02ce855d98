"""Proves the properties of `hw/formal/properties` about blocks of the device: `make formal`.

Prints a table and, for a property that does not hold, the values that break it; writes
`build/formal.json`. What passed before is not proved again while block and property are the same:
the user's cache has it (`hw/cache.py`). Logs, traces and scripts of the last attempts are in
`build/formal`. The exit status is 1 if anything was not proved.
With `--mutants` every property is attempted on each of its mutants instead, and has to fail.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import track
from rich.table import Table

from stagecoach.hw.formal.properties import all_properties
from stagecoach.hw.formal.run import TIMEOUT_SECONDS, Killed, Result, break_all, prove_all
from stagecoach.hw.options import positive

REPORT = Path("build") / "formal.json"
MUTANTS_REPORT = Path("build") / "formal_mutants.json"

Item = TypeVar("Item")


def show(results: list[Result], console: Console) -> None:
    """Print the table, and a counterexample for what failed."""
    table = Table(title="Proofs, for all inputs")
    table.add_column("block", overflow="fold")
    table.add_column("property", overflow="fold")
    table.add_column("result")
    table.add_column("seconds", justify="right")
    for each in results:
        result = each.result if isinstance(each.result, str) else f"{each.result} cycles"
        table.add_row(each.block, each.name, result, f"{each.seconds:.1f}")
    console.print(table, markup=False)
    for each in results:
        if not each.passed:
            console.print(f"{each.block}: {each.name}: {each.reason}", style="red", markup=False)
            console.print(f"  log: {each.log}", markup=False)
            for name, value in each.counterexample.items():
                console.print(f"  {name:<24}{value:#x}", highlight=False, markup=False)


def write_report(results: list[Result]) -> None:
    """Write build/formal.json."""
    proved = sum(each.result == "proved" for each in results)
    bounded = sum(isinstance(each.result, int) for each in results)
    report = {
        "properties_total": len(results),
        "properties_proved": proved,
        "properties_bounded": bounded,
        "covers_total": sum(each.covers_total for each in results),
        "covers_met": sum(each.covers_met for each in results),
        "blocks": [
            {
                "block": each.block,
                "property": each.name,
                "result": each.result,
                "seconds": round(each.seconds, 2),
            }
            for each in results
        ],
    }
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1) + "\n")


def show_mutants(mutants: list[Killed], console: Console) -> None:
    """Print what became of the mutants, and write it to a file."""
    table = Table(title="Properties of broken blocks")
    for column in ("property", "mutation", "what it shows"):
        table.add_column(column, overflow="fold")
    for each in mutants:
        failed = [
            name.removeprefix("assert_")
            for name in each.counterexample
            if name.startswith("assert_")
        ]
        reason = each.reason if each.killed else f"SURVIVES: {each.reason}"
        if failed:
            reason += f": {', '.join(failed)}"
        table.add_row(f"{each.block}: {each.name}", each.mutation, reason)
    console.print(table, markup=False)
    report = {
        "mutants": len(mutants),
        "killed": sum(each.killed for each in mutants),
        "properties": [asdict(each) for each in mutants],
    }
    MUTANTS_REPORT.parent.mkdir(parents=True, exist_ok=True)
    MUTANTS_REPORT.write_text(json.dumps(report, indent=1) + "\n")


def _progress(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    console = Console(stderr=True)
    return iter(track(items, what, total=total, console=console, disable=not console.is_terminal))


def main() -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m stagecoach.hw.formal", description=__doc__)
    parser.add_argument("--jobs", type=positive, default=2, help="proofs at a time (default 2)")
    parser.add_argument("--only", default="", help="properties with this in `block: property`")
    parser.add_argument("--mutants", action="store_true", help="break the blocks instead")
    parser.add_argument(
        "--timeout", type=positive, default=TIMEOUT_SECONDS, help="s of a run of sby (%(default)s)"
    )
    arguments = parser.parse_args()
    properties = {
        module: [each for each in those if arguments.only in each.key]
        for module, those in all_properties().items()
    }
    chosen = [each for those in properties.values() for each in those]
    if not chosen:
        parser.error(f"--only {arguments.only!r}; no property has this in its name")
    order = {each.key: number for number, each in enumerate(chosen)}

    def place(each: Result | Killed) -> int:
        return order[f"{each.block}: {each.name}"]

    if arguments.mutants:
        count = sum(len(each.mutations) for each in chosen)
        running = break_all(properties, arguments.jobs, arguments.timeout)
        mutants = sorted(_progress(running, count, "mutants"), key=place)
        show_mutants(mutants, Console())
        return 0 if all(each.killed for each in mutants) else 1
    running_proofs = prove_all(properties, arguments.jobs, arguments.timeout)
    results = sorted(_progress(running_proofs, len(chosen), "proofs"), key=place)
    show(results, Console())
    if not arguments.only:
        write_report(results)
    return 0 if all(each.passed for each in results) else 1


if __name__ == "__main__":
    sys.exit(main())
