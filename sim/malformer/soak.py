"""`make soak`: as many mutated FPDUs as are asked for, on all cores, or on the workers of Dask."""

import argparse
import io
import json
import os
import secrets
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from stagecoach.hw.cached_verilog import PACKAGES
from stagecoach.hw.options import positive
from stagecoach.sim.build import build_device
from stagecoach.sim.malformer.chunk import run_chunk
from stagecoach.sim.malformer.report import Report

CHUNK_FPDUS = 2500
LINE_CHUNKS = 4
"""After so many chunks comes a line where there is no terminal for a bar."""

CHUNKS_FILE = PACKAGES / "tests" / "sim" / "malformer" / "soak_chunks.py"
PLAN_VARIABLE = "STAGECOACH_SOAK"
"""Environment variable that tells the tests of the chunks the seed and the sizes."""

_EXIT_FAILED = 1

Done = Callable[[Report], None]


def chunk_sizes(fpdus: int) -> list[int]:
    """How many mutated FPDUs each chunk has."""
    whole, rest = divmod(fpdus, CHUNK_FPDUS)
    return [CHUNK_FPDUS] * whole + ([rest] if rest else [])


def encode_plan(seed: int, sizes: Sequence[int]) -> str:
    """What `PLAN_VARIABLE` holds."""
    return json.dumps({"seed": seed, "sizes": list(sizes)})


def decode_plan(text: str) -> tuple[int, list[int]]:
    """The seed and the sizes."""
    plan = json.loads(text)
    return plan["seed"], plan["sizes"]


class _Collector:
    """A plugin of pytest that takes the reports of the chunks as they come from the workers."""

    def __init__(self, done: Done):
        self._done = done

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Of each phase of each test."""
        found = dict(report.user_properties).get("malformer") if report.when == "call" else None
        if found is not None:
            self._done(Report.from_dict(json.loads(found)))
        elif report.failed:
            self._done(Report(failures=[f"{report.nodeid}\n{report.longreprtext}"]))


def soak_here(seed: int, sizes: Sequence[int], jobs: str, done: Done) -> None:
    """Runs the chunks on the cores of this machine with pytest-xdist."""
    import pytest

    if not CHUNKS_FILE.exists():
        failure = f"{CHUNKS_FILE} is missing: `make soak` needs the project's repository"
        done(Report(failures=[failure]))
        return
    build_device()
    os.environ[PLAN_VARIABLE] = encode_plan(seed, sizes)
    arguments = ["-n", jobs, "-s", "--dist", "worksteal", "-p", "no:cacheprovider"]
    said = io.StringIO()
    with redirect_stdout(said):
        status = pytest.main([*arguments, str(CHUNKS_FILE)], plugins=[_Collector(done)])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        done(Report(failures=[f"pytest ended with {status!r}:\n{said.getvalue()}"]))


def soak_with_dask(seed: int, sizes: Sequence[int], address: str, done: Done) -> None:
    """Runs the chunks on the workers of a Dask scheduler; they need this project installed."""
    try:
        from distributed import Client, as_completed  # type: ignore[import-not-found]
    except ImportError:
        raise SystemExit(
            "DASK needs the package distributed; install the group soak of pyproject.toml: "
            "pip install -e '.[soak]'"
        ) from None
    with Client(address) as client:
        jobs = [
            client.submit(run_chunk, seed, chunk, size, pure=False)
            for chunk, size in enumerate(sizes)
        ]
        for job in as_completed(jobs):
            if job.status == "finished":
                done(job.result())
            else:
                done(Report(failures=[f"{job.key}: {job.exception()!r}"]))


def soak(fpdus: int, seed: int, *, jobs: str = "2", dask: str = "") -> Report:
    """Runs chunks of together so many mutated FPDUs, with its progress on standard error."""
    sizes = chunk_sizes(fpdus)
    report = Report()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("mutated FPDUs", total=fpdus)
        chunks = 0

        def done(part: Report) -> None:
            nonlocal chunks
            chunks += 1
            report.add(part)
            bar.update(task, advance=part.mutated)
            if not bar.console.is_terminal and chunks % LINE_CHUNKS == 0:
                bar.console.print(f"{report.mutated:,} of {fpdus:,} mutated FPDUs", highlight=False)
            for failure in part.failures:
                bar.console.print(failure, markup=False, highlight=False, soft_wrap=True)

        if dask:
            soak_with_dask(seed, sizes, dask, done)
        else:
            soak_here(seed, sizes, jobs, done)
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--fpdus", type=positive, default=1_000_000)
    parser.add_argument("--seed", type=positive, default=None)
    parser.add_argument("--jobs", default="2", help="processes on this machine, or auto")
    parser.add_argument("--dask", default="", help="address of a scheduler: tcp://host:port")
    options = parser.parse_args(arguments)
    seed = options.seed or secrets.randbelow(1 << 31) + 1
    console = Console()
    console.print(f"SEED={seed} FPDUS={options.fpdus}", highlight=False)
    report = soak(options.fpdus, seed, jobs=options.jobs, dask=options.dask)
    console.print(report.tables())
    if report.failures:
        console.print(f"Again: make soak FPDUS={options.fpdus} SEED={seed}", highlight=False)
    return _EXIT_FAILED if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
