"""The example of a counter and a lock: no increment of two processes is lost."""

import importlib.util
import resource
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "examples" / "atomic_counter" / "atomic_counter.py"
MANY_INCREMENTS = 100_000  # about a minute of processor time
LOCKED = 500


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("atomic_counter", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--increments", "3"], "increments is 3; allowed: 4 to 16777216"),
        (["--increments", "x"], "argument --increments: invalid int value: 'x'"),
        (["--locked", "1"], "locked is 1; allowed: 2 to 998, 2 less than increments"),
        (["--locked", "999"], "locked is 999; allowed: 2 to 998, 2 less than increments"),
        (["--clients", "3"], "unrecognized arguments: --clients 3"),
    ],
)
def test_bad_options_are_one_line_and_status_2(example, arguments, message, capsys):
    with pytest.raises(SystemExit) as caught:
        example.main(arguments)
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and err.endswith("\n")
    assert message in err


def judged(example: ModuleType, words: list[int], originals: list[int]) -> bool:
    """The verdict on 3 increments of the counter and 3 of the number."""
    return example.verdict(
        example.Job(3, 3), np.array(words, np.uint64), np.array(originals, np.uint64)
    )


BOTH = 2 + (1 << 32)


def test_the_verdict_tells_what_is_lost(example, capsys):
    assert judged(example, [0, BOTH, BOTH], [0, 1, 2])
    assert "WRONG" not in capsys.readouterr().out
    for words, originals, line in (
        ([2, BOTH, BOTH], [0, 1, 2], "lock: 2, free is 0: WRONG"),
        ([0, 1 + (1 << 32), BOTH], [0, 1, 2], "counter: 1 + 1, asked for 2 + 1: WRONG"),
        ([0, BOTH, 2], [0, 1, 2], "number: 2 + 0, asked for 2 + 1: WRONG"),
        ([0, BOTH, BOTH], [0, 1, 1], "FetchAdd returned 2 different values in 3 operations: WRONG"),
    ):
        assert not judged(example, words, originals)
        out = capsys.readouterr().out
        assert line in out.splitlines() and out.count("WRONG") == 1


def cpu_seconds() -> float:
    """Of all processes that were waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.requirement("EXT-5-02", "EXT-5.3-01", "EXT7306-5-01", "EXT7306-5.3-01")
@pytest.mark.usefixtures("compiled_device")
@pytest.mark.parametrize(
    "increments", [10_000, pytest.param(MANY_INCREMENTS, marks=pytest.mark.long)]
)
def test_two_processes_lose_no_increment(increments):
    before = cpu_seconds()
    run = subprocess.run(
        [sys.executable, PROGRAM, "--increments", str(increments), "--locked", str(LOCKED)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    print(f"{increments} increments: {cpu_seconds() - before:.1f} s of CPU")
    assert (run.returncode, run.stderr) == (0, ""), run.stdout + run.stderr
    share = (increments - LOCKED) // 2
    assert run.stdout.splitlines() == [
        "lock: 0, free is 0: right",
        f"counter: {share} + {share}, asked for {share} + {share}: right",
        f"number: {LOCKED // 2} + {LOCKED // 2}, asked for {LOCKED // 2} + {LOCKED // 2}: right",
        f"FetchAdd returned {2 * share} different values in {2 * share} operations: right",
    ]
