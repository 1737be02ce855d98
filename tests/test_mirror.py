"""Each block of the gateware is tested by the file that is named after its own."""

import ast
from pathlib import Path

import pytest

from stagecoach import gateware
from tests.support.blocks import component_classes

ROOT = Path(__file__).parents[1]

ELSEWHERE = {
    # The whole device: most programs of tests/integration and tests/robustness run on it.
    "rnic": "tests/integration/test_pair.py",
}
"""Modules of blocks that are tested by a file of another name by intention."""

MODULES = sorted({kind.__module__ for kind in component_classes()})


def imports(path: Path) -> set[str]:
    """Modules that a file imports from."""
    tree = ast.parse(path.read_text())
    return {each.module for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)} - {None}


def mirror(module: str) -> Path:
    """Where the test of a block is, whose module has that name below `gateware`."""
    *folders, name = module.split(".")
    return ROOT.joinpath("tests", *folders, f"test_{name}.py")


@pytest.mark.parametrize("module", MODULES)
def test_a_block_has_a_test_of_its_own(module):
    name = module.removeprefix(f"{gateware.__name__}.")
    if name in ELSEWHERE:
        assert not mirror(name).exists(), "no exception any more"
        assert (ROOT / ELSEWHERE[name]).exists()
        return
    assert mirror(name).exists(), f"{name} has no {mirror(name).relative_to(ROOT)}"
    # By itself, or by a bench of its folder.
    used = imports(mirror(name)) | {".".join(["tests", *name.split(".")[:-1], "conftest"])}
    for bench in [ROOT.joinpath(*each.split(".")).with_suffix(".py") for each in used]:
        if bench.is_file():
            used |= imports(bench)
    assert module in used


def test_exceptions_are_blocks():
    assert {f"{gateware.__name__}.{name}" for name in ELSEWHERE} <= set(MODULES)
