"""Whether the simulator has become slower: an earlier commit is measured in the same minutes."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 5
"""Each measures both: what else the machine does in a round slows both down."""

KEY = "sim_cycles_per_second_ratio_to_before"

MEASURE = """import json
from bench.speed import measure_compiled
if __name__ == "__main__":
    print("\\n" + json.dumps(measure_compiled()))
"""
"""Run in the tree of a commit, as a file, since it starts a process of its own."""


class BeforeError(RuntimeError):
    """An earlier commit cannot be measured; the message is one line."""


def measure_before(commit: str, begin: Callable[[str], None]) -> dict[str, float | str]:
    """Returns cycles per second of the compiled device here and at `commit`, and the ratio `KEY`.

    The ratio is the median of those of the rounds. `begin` is told what is measured. Raises
    `BeforeError`.
    """
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "main"
        _check_out(commit, tree)
        script = Path(folder) / "measure.py"
        script.write_text(MEASURE)
        pairs = []
        for number in range(ROUNDS):
            for where in (tree, ROOT):
                begin(f"{commit if where == tree else 'here'}, {number + 1} of {ROUNDS}")
                pairs.append(_cycles_per_second(where, script))
    earlier, now = pairs[::2], pairs[1::2]
    ratios = [one / other for one, other in zip(now, earlier, strict=True)]
    return {
        "before": commit,
        "sim_cycles_per_second": round(statistics.median(now)),
        "sim_cycles_per_second_before": round(statistics.median(earlier)),
        KEY: round(statistics.median(ratios), 3),
    }


def _check_out(commit: str, tree: Path) -> None:
    tree.mkdir()
    archive = subprocess.run(
        ["git", "archive", "--end-of-options", commit], cwd=ROOT, capture_output=True, check=False
    )
    if archive.returncode:
        reason = archive.stderr.decode(errors="replace").strip().splitlines()
        raise BeforeError(f"no commit {commit!r}: {reason[-1] if reason else 'git failed'}")
    subprocess.run(["tar", "-x"], cwd=tree, input=archive.stdout, check=True)


def _cycles_per_second(tree: Path, script: Path) -> float:
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(tree / "src"), str(tree)]))
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        reason = lines[-1] if lines else f"exit status {done.returncode}"
        raise BeforeError(f"the simulator in {tree.name} was not measured: {reason}")
    return float(json.loads(done.stdout.splitlines()[-1])["sim_cycles_per_second"])
