"""What the README shows works as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
EXAMPLE = re.search(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_example_is_short():
    assert EXAMPLE is not None
    assert len(EXAMPLE[1].splitlines()) < 30


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_example_runs():
    assert EXAMPLE is not None
    run = subprocess.run(
        [sys.executable, "-c", EXAMPLE[1]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == "['SUCCESS', 'SUCCESS'] SUCCESS True\n"


def test_everything_it_links_to_is_there():
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert len(links) > 8
    for link in links:
        assert (ROOT / link).exists(), link


def test_every_make_target_it_names_is_there():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"(?:`|^ {4})make ([a-z]+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_figure_is_what_its_script_draws():
    script = ROOT / "docs" / "figures" / "architecture.py"
    code = f"import runpy; print(runpy.run_path({str(script)!r})['draw'](), end='')"
    drawn = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert script.with_suffix(".svg").read_text() == drawn.stdout
