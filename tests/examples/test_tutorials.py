"""The code of the tutorials runs block after block, and prints what stands after it.

A page about what takes minutes to build includes the source of an example, which has a test.
"""

import contextlib
import io
import re
from pathlib import Path

import pytest

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
PAGES = sorted(TUTORIALS.glob("*.md"))
INCLUDED = re.compile(r"^```\{literalinclude\} (\S+)$", re.MULTILINE)
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(text: str) -> list[tuple[str, int, str]]:
    """Kind, line and content of the code blocks of a page, and of what they print."""
    return [(each[1], text.count("\n", 0, each.start(2)), each[2]) for each in BLOCK.finditer(text)]


@pytest.mark.usefixtures("compiled_device")
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if not INCLUDED.search(page.read_text())],
    ids=lambda page: page.stem,
)
def test_every_block_runs_and_prints_what_stands_after_it(page):
    names: dict[str, object] = {}
    printed = ""
    for kind, line, content in blocks(page.read_text()):
        if kind == "text":
            assert printed == content, f"{page.name}, line {line}"
            printed = ""
            continue
        assert printed == "", f"{page.name}, line {line}: the page does not show what came before"
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile("\n" * line + content, str(page), "exec"), names)
        printed = output.getvalue()
    assert names, "no code"
    assert printed == ""


def test_what_a_page_includes_is_an_example_with_a_test():
    included = [(page, path) for page in PAGES for path in INCLUDED.findall(page.read_text())]
    assert {page.stem for page, _ in included} == {"cocotb", "verilog"}
    for page, path in included:
        file = (page.parent / path).resolve()
        assert file.exists(), f"{page.name} includes {path}"
        assert (Path(__file__).parent / f"test_{file.parent.name}.py").exists(), path
