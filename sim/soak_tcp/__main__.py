"""`make soak-tcp`: as many segments of engine against engine as are asked for, on all cores.

Writes build/soak_tcp.json.
"""

import argparse
import concurrent.futures
import functools
import multiprocessing
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from stagecoach.hw.files import write_results
from stagecoach.hw.options import positive
from stagecoach.sim.build import build_nic
from stagecoach.sim.soak_tcp.chunk import CONFIG, run_watched
from stagecoach.sim.soak_tcp.report import Report

CHUNK_SEGMENTS = 5000
LEVEL = "-O1"
"""The NIC is built soon rather than fast: drivers take most of the time."""

RESULTS = Path("build") / "soak_tcp.json"


def chunk_sizes(segments: int) -> list[int]:
    """How many segments each chunk has."""
    whole, rest = divmod(segments, CHUNK_SEGMENTS)
    return [CHUNK_SEGMENTS] * whole + ([rest] if rest else [])


def soak(segments: int, seed: int, jobs: int) -> Report:
    """Runs chunks of together so many segments, with its progress on standard error."""
    report = Report()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    run = functools.partial(run_watched, library=build_nic(CONFIG, level=LEVEL))
    # A process that has threads must not be forked.
    context = multiprocessing.get_context("spawn")
    with (
        Progress(*columns, console=Console(stderr=True)) as bar,
        concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool,
    ):
        task = bar.add_task("segments", total=segments)
        chunks = {
            pool.submit(run, seed, chunk, size): chunk
            for chunk, size in enumerate(chunk_sizes(segments))
        }
        for done in concurrent.futures.as_completed(chunks):
            try:
                part = done.result()
            except concurrent.futures.process.BrokenProcessPool as error:
                # None of the other chunks is run.
                report.failures.append(f"SEED={seed}, chunk {chunks[done]}, or another: {error}")
                bar.console.print(report.failures[-1], highlight=False, soft_wrap=True)
                break
            report.add(part)
            bar.update(task, completed=report.total)
            if not bar.console.is_terminal:
                bar.console.print(f"{report.total:,} of {segments:,} segments", highlight=False)
            for failure in part.failures:
                bar.console.print(failure, markup=False, highlight=False, soft_wrap=True)
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="make soak-tcp", description=__doc__)
    parser.add_argument("--segments", type=positive, default=1_000_000)
    parser.add_argument("--seed", type=positive, default=None)
    parser.add_argument("--jobs", type=positive, default=2, help="processes")
    options = parser.parse_args(arguments)
    seed = options.seed or secrets.randbelow(1 << 31) + 1
    console = Console()
    console.print(f"SEED={seed} SEGMENTS={options.segments}", highlight=False)
    begun = time.monotonic()
    report = soak(options.segments, seed, options.jobs)
    write_results(RESULTS, report.results(seed, time.monotonic() - begun))
    console.print(report.tables())
    console.print(str(RESULTS), highlight=False)
    if report.failures:
        console.print(
            f"Again: make soak-tcp SEGMENTS={options.segments} SEED={seed}", highlight=False
        )
    return int(bool(report.failures))


if __name__ == "__main__":
    sys.exit(main())
