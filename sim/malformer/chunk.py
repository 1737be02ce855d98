"""A chunk: so many mutated FPDUs of one seed, in one device; what soaking is divided into."""

import random
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from stagecoach.sim.malformer.bench import Bench
from stagecoach.sim.malformer.capture import write_capture
from stagecoach.sim.malformer.case import Case, make_case
from stagecoach.sim.malformer.compare import Observed, differences
from stagecoach.sim.malformer.layout import LANES
from stagecoach.sim.malformer.report import Report
from stagecoach.sim.malformer.rows import observed_row
from stagecoach.sim.malformer.shrink import shrink

CAPTURES = Path("build") / "malformer"
NUMBERS_PER_CHUNK = 1_000_000
BYSTANDER_PERIOD = 200
MOST_FAILURES = 3
"""Failures after which a chunk ends: what comes then is seldom new."""


def chunk_cases(seed: int, chunk: int, fpdus: int) -> Iterator[Case]:
    """Cases until so many of their mutated FPDUs are looked at."""
    number, mutated = chunk * NUMBERS_PER_CHUNK, 0
    while mutated < fpdus:
        case = make_case(seed, number)
        mutated += len(case.mutated())
        number += 1
        yield case


def _open(seed: int, chunk: int, library: Path | None, lanes: Iterable[int]) -> Bench:
    """The bench of a chunk.

    Every second one has a host memory that shows writes as late as it may; on two of four its
    ports pause at random.
    """
    return Bench(
        seed,
        lanes=lanes,
        library=library,
        late_writes=chunk % 2 == 1,
        pauses=random.Random(f"pauses {seed} {chunk}") if chunk % 4 >= 2 else None,
    )


def run_chunk(seed: int, chunk: int, fpdus: int, library: Path | None = None) -> Report:
    """Runs a chunk; what is not as predicted is in the report's `failures`."""
    report = Report()
    failed: list[Case] = []
    with _open(seed, chunk, library, range(LANES)) as bench:
        for case, observed in bench.run(chunk_cases(seed, chunk, fpdus)):
            report.cases += 1
            mutated = case.mutated()
            report.mutated += len(mutated)
            for fpdu in mutated:
                report.mutations.update(fpdu.mutations)
            report.rows[observed_row(case, observed)] += 1
            found = differences(case, observed)
            if found:
                failed.append(case)
                report.failures.append("\n".join([describe(case), *found]))
            if len(failed) >= MOST_FAILURES:
                break
            if report.cases % BYSTANDER_PERIOD == 0:
                bench.bystander.check()
        if not failed:
            bench.bystander.check()
        statistics = bench.device.statistics()
        report.cycles = statistics["cycles"]
        report.failures += statistics["faults"]
        for name in ("read_errors", "write_errors"):
            if statistics[name]:
                # All that the device may reach is mapped.
                report.failures.append(f"{name}: {statistics[name]}")
    if failed:
        report.failures.append(reproduce(failed[0], library))
    return report


def describe(case: Case) -> str:
    """Which case it is."""
    names = [name for fpdu in case.seen() for name in fpdu.mutations]
    return f"seed {case.seed}, case {case.number}: {', '.join(names) or 'no mutation'}"


class _Again:
    """Runs single cases of one lane.

    After a case that does not end the device is another one.
    """

    def __init__(self, library: Path | None):
        self._library = library
        self._bench: Bench | None = None

    def run(self, case: Case) -> Observed:
        """What the device does with a case of the same lane."""
        if self._bench is None:
            chunk = case.number // NUMBERS_PER_CHUNK
            self._bench = _open(case.seed, chunk, self._library, [case.lane])
        ((_, observed),) = self._bench.run([case])
        if observed.late:
            self.close()
        return observed

    def close(self) -> None:
        """Ends the device."""
        bench, self._bench = self._bench, None
        if bench is not None:
            bench.close()


def reproduce(case: Case, library: Path | None = None) -> str:
    """The smallest case that fails alone, with its capture, in words."""
    with closing(_Again(library)) as again:
        if not differences(case, again.run(case)):
            return f"{describe(case)} fails only among others"
        smallest = shrink(case, lambda smaller: bool(differences(smaller, again.run(smaller))))
        again.close()
        observed = again.run(smallest)
    path = CAPTURES / f"{case.seed}-{case.number}.pcapng"
    write_capture(path, smallest, observed)
    return "\n".join(
        [
            f"The smallest that fails in the same place, {path}:",
            repr(smallest),
            *differences(smallest, observed),
        ]
    )
