"""What README and pages show works as it stands there, and leads where it says."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import stagecoach

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
EXAMPLE = re.search(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_example_is_short():
    assert EXAMPLE is not None
    assert len(EXAMPLE[1].splitlines()) < 30


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("compiled_device")  # else standard error says that it is built
def test_the_example_runs():
    assert EXAMPLE is not None
    run = subprocess.run(
        [sys.executable, "-c", EXAMPLE[1]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == "['SUCCESS', 'SUCCESS'] SUCCESS True\n"


def test_it_is_read_in_one_sitting():
    assert len(README.splitlines()) <= 120


PAGES = sorted(
    str(page.relative_to(ROOT))
    for pattern in ("*.md", "docs/**/*.md", "examples/*/README.md")
    for page in ROOT.glob(pattern)
)


@pytest.mark.parametrize("page", PAGES)
def test_everything_that_a_page_links_to_is_there(page):
    text = (ROOT / page).read_text()
    for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if not link.startswith("http"):
            assert ((ROOT / page).parent / link).exists(), link


def test_every_page_of_the_documentation_is_linked_to():
    linked = {
        (ROOT / page).parent.joinpath(link).resolve()
        for page in PAGES
        for link in re.findall(r"\]\(([^)#\s]+)", (ROOT / page).read_text())
    }
    linked |= {place / "README.md" for place in linked if place.is_dir()}
    assert {page for page in PAGES if (ROOT / page).resolve() not in linked} <= {"README.md"}


def test_every_public_name_is_in_the_reference():
    pages = "\n".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.rst"))
    documented = re.findall(
        r"^\.\. auto(?!module)\w+:: (?:stagecoach\.)?(\w+)$", pages, re.MULTILINE
    )
    assert sorted(documented) == sorted(stagecoach.__all__)


@pytest.mark.parametrize("page", PAGES)
def test_every_make_target_that_a_page_names_is_there(page):
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"(?:`|^ {4})make ([a-z]+)", (ROOT / page).read_text(), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def glossary() -> list[tuple[str, list[str]]]:
    """The project's own words, and the files in which each is said to occur."""
    text = (ROOT / "docs" / "glossary.md").read_text().split("## iWARP")[0]
    rows = re.findall(r"^\| ([a-z].*?) \| .* \| (.*) \|$", text, re.MULTILINE)
    return [(word, re.findall(r"`([^`]+)`", where)) for word, where in rows[1:]]


def test_words_of_the_glossary_occur_where_it_says():
    words = dict(glossary())
    wanted = [
        "visit",
        "kick",
        "lane",
        "fence",
        "mark",
        "gate",
        "drain",
        "piece",
        "record",
        "pair",
        "stage",
    ]
    assert set(wanted) <= words.keys()
    for word, places in words.items():
        stem = word.split(" (")[0].removesuffix("e").replace(" ", r"\s+")
        for place in places:
            found = [path for path in (ROOT / "gateware" / place, ROOT / place) if path.exists()]
            assert found, place
            files = [found[0]] if found[0].is_file() else found[0].glob("*.py")
            text = "\n".join(file.read_text() for file in files)
            assert re.search(rf"\b{stem}", text, re.IGNORECASE), (word, place)


def test_terms_of_the_glossary_are_in_order():
    words = [word for word, _ in glossary()]
    assert words == sorted(words)


FOR_PROGRAMS = [
    *sorted(ROOT.glob("src/stagecoach/pyverbs/*.py")),
    *sorted(ROOT.glob("sim/cosim/*.py")),
    ROOT / "sim" / "transport.py",
]


@pytest.mark.parametrize("file", FOR_PROGRAMS, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_the_reference_speaks_of_bytes(file):
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, documented):
            assert not re.search(r"\boctets?\b", ast.get_docstring(node) or "", re.IGNORECASE)


def test_every_reason_to_refuse_a_frame_is_on_the_page_of_the_network():
    text = (ROOT / "docs/network.md").read_text()
    sources = sorted((ROOT / "host_driver/network").glob("*.py"))
    names = {
        name
        for source in sources
        for line in re.findall(r"Refused\(([^\n]*)\)", source.read_text())
        for name in re.findall(r'"(\w+)"', line)
    }
    assert len(names) > 25
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []
