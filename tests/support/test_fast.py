"""What `--fast` leaves out: what says so, and no whole device without saying so."""

import ast
from pathlib import Path

import pytest

from stagecoach.hw.timing import DESIGNS
from tests.support.fast import is_fast

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("outer", "inner", "file", "fast"),
    [
        ("", "", "", True),
        ("FAST = False", "", "", False),
        ("FAST = False", "FAST = True", "", True),
        ("FAST = False", "", "FAST = True  # a reason", True),
        ("", "FAST = True", "FAST = False  # a reason", False),
        ("", "", "    FAST = False", True),
    ],
)
def test_the_nearest_word_holds(tmp_path, outer, inner, file, fast):
    folder = tmp_path / "outer" / "inner"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text(f'"""Text."""\n\n{outer}\n')
    (folder / "__init__.py").write_text(f'"""Text."""\n\n{inner}\n')
    test = folder / "test_it.py"
    test.write_text(f"import pytest\n\n{file}\n")
    assert is_fast(test) is fast


def test_fast_files_have_no_whole_device():
    """The designs that `make timing` measures."""
    whole = {design.__name__ for design in DESIGNS.values() if isinstance(design, type)}
    found = {
        file.relative_to(TESTS).as_posix()
        for file in filter(is_fast, TESTS.rglob("test_*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("stagecoach.gateware")
        if whole & {alias.name for alias in node.names}
    }
    assert not found, "say `FAST = False`"
