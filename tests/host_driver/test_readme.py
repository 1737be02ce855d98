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


def test_it_is_read_in_one_sitting():
    assert len(README.splitlines()) <= 120


PAGES = ["README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))]


@pytest.mark.parametrize("page", PAGES)
def test_everything_that_a_page_links_to_is_there(page):
    text = (ROOT / page).read_text()
    for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if not link.startswith("http"):
            assert ((ROOT / page).parent / link).exists(), link


def test_every_page_of_the_documentation_is_linked_to():
    linked = {
        (ROOT / page).parent.joinpath(link).resolve()
        for page in ["README.md", "CONTRIBUTING.md", *PAGES]
        for link in re.findall(r"\]\(([^)#\s]+)", (ROOT / page).read_text())
    }
    assert {page for page in PAGES if (ROOT / page).resolve() not in linked} <= {"README.md"}


@pytest.mark.parametrize("page", PAGES)
def test_every_make_target_that_a_page_names_is_there(page):
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"(?:`|^ {4})make ([a-z]+)", (ROOT / page).read_text(), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_figure_is_what_its_script_draws():
    script = ROOT / "docs" / "figures" / "architecture.py"
    code = f"import runpy; print(runpy.run_path({str(script)!r})['draw'](), end='')"
    drawn = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert script.with_suffix(".svg").read_text() == drawn.stdout
