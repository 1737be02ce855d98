"""Runs the device and the commands against Linux in a virtual machine: `make interop`.

Writes build/interop.json. The exit status is 1 if a case that is planned failed or did not run, and
2 if there is no guest.
"""

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from stagecoach.hw.cache import CacheError
from stagecoach.hw.files import BadResults, read_results, write_results, write_whole
from stagecoach.sim.build import BuildError, build_device, build_nic
from stagecoach.sim.build_report import told
from tools.interop.errors import InteropError
from tools.interop.guest import QEMU, Guest
from tools.interop.image import Image, image
from tools.interop.judge import PASSED, RETRIES, Boot, Judge, Row
from tools.interop.lab import GATEWARE
from tools.interop.messages import PORT as MESSAGES_PORT
from tools.interop.nfs import MOUNT_PORT, SERVER_PORT
from tools.interop.packages import run
from tools.interop.perftest import PORT as PERFTEST_PORT
from tools.interop.plan import Case, plan, selected
from tools.interop.report import Run, other_run, page
from tools.interop.rping import PORT as RPING_PORT

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "build" / "interop.json"
PAGE = ROOT / "docs" / "interop.md"
_PORTS = (RPING_PORT, MESSAGES_PORT, PERFTEST_PORT, SERVER_PORT, MOUNT_PORT)
"""Of servers in the guest."""
_KEPT = ROOT / "build" / "interop"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tools.interop", description=__doc__)
    parser.add_argument("--all", action="store_true", help="the full matrix")
    parser.add_argument("--case", default="", help="only cases with this text; writes nothing")
    parser.add_argument("--list", action="store_true", help="list the cases, run none")
    parser.add_argument("--document", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    options = parser.parse_args(arguments)
    cases = selected(plan(full=options.all), options.case)
    if not cases:
        parser.error(f"no case has {options.case!r} in its name; --list shows them")
    if options.list:
        print("\n".join(case.label for case in cases))
        return 0
    # A shell that starts this in the background has it ignore Ctrl-C, which is how commands of
    # `stagecoach` are ended: they would, too, and each would be killed after a while.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if options.document:
            return _document()
        other = other_run(read_results(RESULTS), options.all)
        found, versions = _prepare(cases)
    except (InteropError, CacheError, BadResults, BuildError) as error:
        print(f"interop: {error}", file=sys.stderr)
        return 2
    today = f"{datetime.now(UTC):%d %B %Y}".lstrip("0")
    ran = Run(cases, today, _commit(), versions, options.all, other=other)
    _run(ran, found, None if options.case else RESULTS)
    for row in ran.failures:
        print(f"{row.result.upper()} {row.case.label}: {row.why}")
    summary = ran.as_json()
    print(
        "interop: {cases_planned} cases: {cases_passed} passed, {cases_failed} failed, "
        "{cases_not_run} did not run; {peer_faults} faults of the peer; {run_seconds} s".format_map(
            summary
        )
    )
    if ran.stopped:
        print(f"interop: {ran.stopped}", file=sys.stderr)
        return 2
    return int(bool(ran.failures))


def _prepare(cases: Sequence[Case]) -> tuple[Image, dict[str, str]]:
    """The image, and the versions of the peer. Devices are built: no case has to wait for that."""
    printed = run(QEMU, "--version")
    found = image(lambda step: print(f"interop: {step}", file=sys.stderr, flush=True))
    with told(None) as report:
        build_device(progress=report)
        if any(case.way.transport == GATEWARE for case in cases):
            build_nic(progress=report)
    return found, found.versions | {"qemu": printed.split()[3]}


def _run(ran: Run, found: Image, results: Path | None) -> None:
    """Runs all cases."""
    shutil.rmtree(_KEPT, ignore_errors=True)
    _KEPT.mkdir(parents=True)

    def keep() -> None:
        if results is not None:
            write_results(results, ran.as_json())

    keep()
    begun = time.monotonic()
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("boot", total=len(ran.cases))

        def report(row: Row) -> None:
            ran.rows.append(row)
            ran.seconds = time.monotonic() - begun
            keep()
            if row.result != PASSED or not console.is_terminal:
                bar.console.print(
                    f"{row.result:>10} {row.seconds:5.1f} s  {row.case.label}", soft_wrap=True
                )
            bar.update(
                task,
                completed=len({row.case.label for row in ran.rows}),
                description=row.case.label,
            )

        # The paths of sockets are short: they are not in build.
        with tempfile.TemporaryDirectory(prefix="interop-") as folder:
            judge = Judge(_booter(found, Path(folder)), Path(folder), _KEPT)
            try:
                judge.run(ran.cases, report)
            except InteropError as error:
                ran.stopped = str(error)
                keep()


def _booter(found: Image, folder: Path) -> Boot:
    def boot(joins: Path | None) -> Guest:
        place = Path(tempfile.mkdtemp(dir=folder))
        return Guest.boot(found, place, _PORTS, joins)

    return boot


def _document() -> int:
    results = read_results(RESULTS)
    if not results.get("cases_passed"):
        raise InteropError(f"{RESULTS} has no case that passed: run `make interop` first")
    write_whole(PAGE, page(results, RETRIES))
    return 0


def _commit() -> str:
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    )
    return found.stdout.strip() or "no commit"


if __name__ == "__main__":
    sys.exit(main())
