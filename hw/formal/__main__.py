"""Proves what is written in SystemVerilog in this folder about blocks of the device: `make formal`.

Prints a table and, for a property that does not hold, the values that break it. Logs, traces and
scripts are in `build/formal`. The exit status is 1 if anything was not proved.
"""

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from gateware.rdmap.atomic_arithmetic import LATENCY, AtomicArithmetic
from hw.formal.prove import Outcome, Proof, ProofError, prove

BUILD = Path("build") / "formal"


def _arithmetic(name: str, check: str, mode: str = "prove") -> Proof:
    return Proof(
        name=name,
        sources=("atomic_arithmetic.sv", "rfc7306_atomics.sv"),
        check=check,
        mode=mode,
        depth=LATENCY + 2,
        values=(
            *("operation", "original", "data", "mask", "compare", "compare_mask"),
            *("result", "expected", "writes"),
        ),
    )


PROOFS: tuple[tuple[type[Any], Proof], ...] = (
    (AtomicArithmetic, _arithmetic("FetchAdd is RFC 7306, 5.1.1", "CHECK_FETCH_ADD")),
    (AtomicArithmetic, _arithmetic("Swap is the draft's 5.1.2", "CHECK_SWAP")),
    (AtomicArithmetic, _arithmetic("CmpSwap is RFC 7306, 5.1.2", "CHECK_CMP_SWAP")),
    (AtomicArithmetic, _arithmetic("other AOpCodes change nothing", "CHECK_OTHER")),
    (AtomicArithmetic, _arithmetic("a mismatch is not written", "CHECK_WRITES")),
    (AtomicArithmetic, _arithmetic("every case is reached", "CHECK_REACHED", mode="cover")),
)


def show(outcomes: list[Outcome], console: Console) -> None:
    """Print the table, and a counterexample for what failed."""
    table = Table(title="Proofs, for all inputs")
    table.add_column("property")
    table.add_column("result")
    table.add_column("seconds", justify="right")
    table.add_column("log", overflow="fold")
    for outcome in outcomes:
        table.add_row(
            outcome.proof.name,
            "holds" if outcome.passed else outcome.status,
            f"{outcome.seconds:.1f}",
            str(outcome.log.relative_to(Path.cwd())),
        )
    console.print(table)
    for outcome in outcomes:
        if outcome.counterexample:
            console.print(f"{outcome.proof.name}: does not hold for", highlight=False)
            for name, value in outcome.counterexample.items():
                console.print(f"  {name:<14}{value:#x}", highlight=False)


def main() -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m hw.formal", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="proofs at a time (default 2)")
    arguments = parser.parse_args()
    if arguments.jobs < 1:
        parser.error(f"--jobs {arguments.jobs}; allowed: 1 or more")

    def attempt(numbered: tuple[int, tuple[type[Any], Proof]]) -> Outcome:
        number, (component, proof) = numbered
        return prove(proof, component(), BUILD / f"{number}_{proof.check.lower()}")

    try:
        with ThreadPoolExecutor(arguments.jobs) as pool:
            outcomes = list(pool.map(attempt, enumerate(PROOFS, 1)))
    except ProofError as error:
        print(f"formal: {error}", file=sys.stderr)
        return 1
    show(outcomes, Console())
    return 0 if all(outcome.passed for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
