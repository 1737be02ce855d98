"""Runs cases, and says of each what came of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from tools.interop.errors import InteropError
from tools.interop.faults import known_fault
from tools.interop.guest import Guest
from tools.interop.job import JobError
from tools.interop.lab import Lab
from tools.interop.plan import Case

PASSED, FAILED, PEER_FAULT, NOT_RUN = "passed", "failed", "peer fault", "not run"
RETRIES = 3
"""In a run, after faults of the peer."""


@dataclass(frozen=True)
class Row:
    """What came of a case. why: it failed. capture: of a case that failed."""

    case: Case
    result: str
    seconds: float = 0.0
    why: str = ""
    capture: Path | None = None


Boot = Callable[[Path | None], Guest]
Report = Callable[[Row], None]


class Judge:
    """Runs cases in one guest after the other: a new one is booted when one has gone.

    Parameters
    ----------
    boot: a guest, which may join a port of the hub of another one. folder: in which commands run.
    kept: folder for captures of cases that fail.
    """

    def __init__(self, boot: Boot, folder: Path, kept: Path):
        self._boot = boot
        self._folder = folder
        self._kept = kept
        self._retries = 0
        self._guest: Guest | None = None

    def run(self, cases: Sequence[Case], report: Report) -> None:
        """Runs all cases; `report` is called with each row.

        A case that fails by a known fault of the peer has a row that says so, and another one for
        each time that it is run again. Raises `InteropError` if there can be no guest.
        """
        try:
            for number, case in enumerate(cases, 1):
                while True:
                    row = self._once(case, number)
                    report(row)
                    if row.result != PEER_FAULT:
                        break
                    self._retries += 1
        finally:
            self._lose()

    def _once(self, case: Case, number: int) -> Row:
        guest = self._guest = self._guest or self._boot(None)
        lab = Lab(guest, case.way, self._folder, self._boot, seed=number)
        capture = self._kept / f"{number:03}.pcap"
        begun = monotonic()
        why = ""
        try:
            with guest.captured(lab.network, capture):
                case.do(lab)
            case.check(capture)
        except (JobError, InteropError, OSError) as error:
            why = " ".join(str(error).split())
        seconds = monotonic() - begun
        if not why:
            capture.unlink(missing_ok=True)
            return Row(case, PASSED, seconds)
        self._lose()
        fault = known_fault(capture) if self._retries < RETRIES and capture.exists() else None
        if fault is None:
            return Row(case, FAILED, seconds, why, capture)
        return Row(case, PEER_FAULT, seconds, fault, capture)

    def _lose(self) -> None:
        """Ends the guest: after a failure nobody knows what still runs there."""
        if self._guest is not None:
            self._guest.close()
            self._guest = None
