"""The code of the tutorials runs block after block, and prints what stands after it."""

import contextlib
import io
import re
from pathlib import Path

import pytest

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(text: str) -> list[tuple[str, int, str]]:
    """Kind, line and content of the code blocks of a page, and of what they print."""
    return [(each[1], text.count("\n", 0, each.start(2)), each[2]) for each in BLOCK.finditer(text)]


@pytest.mark.usefixtures("compiled_device")
@pytest.mark.parametrize("page", sorted(TUTORIALS.glob("*.md")), ids=lambda page: page.stem)
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
