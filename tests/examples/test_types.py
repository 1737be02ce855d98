"""Programs of the examples and of the pages pass `mypy --strict`, as those of a user have to."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.examples.test_tutorials import blocks

ROOT = Path(__file__).parents[2]

FRAGMENTS = {"docs/nfs.md", "docs/rpcrdma.md"}
"""Pages with lines of a coroutine that is not shown."""

QPS = """
from stagecoach import Context, QPState


def running(context: Context) -> list[int]:
    return [number for number, qp in context.qps.items() if qp.state == QPState.RTS]
"""
"""What a program does with the QPs of a context."""


def programs(folder: Path) -> list[Path]:
    """The code of each page, in the lines that it has there."""
    made = [folder / "qps.py"]
    made[0].write_text(QPS)
    for page in sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]):
        name = str(page.relative_to(ROOT))
        lines = [""] * 1000
        for kind, first, content in blocks(page.read_text()):
            if kind == "python":
                lines[first : first + content.count("\n")] = content.splitlines()
        if any(lines) and name not in FRAGMENTS:
            made.append(folder / (re.sub(r"\W", "_", name) + ".py"))
            made[-1].write_text("\n".join(lines))
    return made


def test_every_program_is_typed(tmp_path):
    pages = programs(tmp_path)
    assert len(pages) > 10
    examples = sorted((ROOT / "examples").rglob("*.py"))
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--explicit-package-bases"),
            # Without the settings of this repository. The package itself is checked by `make lint`.
            *("--config-file=", "--ignore-missing-imports", "--follow-imports", "silent"),
            "--no-error-summary",
            *("--cache-dir", str(ROOT / "build" / "mypy_programs")),
            *map(str, pages + examples),
        ],
        cwd=ROOT,
        env=os.environ | {"MYPYPATH": f"{ROOT / 'src'}:{tmp_path}"},
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, (ran.stdout + ran.stderr).splitlines()) == (0, [])
