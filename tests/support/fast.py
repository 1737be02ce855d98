"""Pytest plugin: `--fast` runs some of all tests: enough to look at before a commit.

Of a file that starts a simulator it runs the first test, so that has to be one that simulates, and
of the cocotb tests in the file the first one.

It runs nothing of a file that says `FAST = False`, or that is in a folder whose `__init__.py` says
so. Such tests build, run or synthesize whole devices, have much of the TCP engine, whose blocks
have tests of their own, or need root. `FAST = True` takes a file or a folder out of them again.
"""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.checks import checks_of

_SAYS = re.compile(r"^FAST = (True|False)\b", re.MULTILINE)

_chosen: dict[str, str] = {}


def chosen_check(module: str) -> str | None:
    """The one cocotb test of a module that is run with `--fast`, by its name; `None`: all are."""
    return _chosen.get(module)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast",
        action="store_true",
        help="run one case of each test that is neither slow nor of a whole device; of tests that "
        "start a simulator, the first one of each file",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Does not even import what is not fast."""
    if not config.option.fast:
        return None
    if collection_path.is_dir():
        # Nor the conftest.py of a folder in which nothing is fast.
        files = list(collection_path.rglob("test_*.py"))
        return True if files and not any(map(is_fast, files)) else None
    return None if collection_path.suffix != ".py" or is_fast(collection_path) else True


def is_fast(test: Path) -> bool:
    """What a test file says, or else the nearest folder that says it; all others are fast.

    The text is read, because an import takes as long as the tests may.
    """
    found = _SAYS.search(test.read_text())
    return found[1] == "True" if found else _is_fast_folder(test.parent)


@cache
def _is_fast_folder(folder: Path) -> bool:
    package = folder / "__init__.py"
    if not package.exists():
        return True
    found = _SAYS.search(package.read_text())
    return found[1] == "True" if found else _is_fast_folder(folder.parent)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.option.fast:
        return
    chosen: dict[str, pytest.Item] = {}
    for item in items:
        if item.get_closest_marker("slow") is None:
            chosen.setdefault(_alike(item), item)
    left_out = [item for item in items if chosen.get(_alike(item)) is not item]
    items[:] = chosen.values()
    for item in filter(_simulates, items):
        # A test that asks for the verdict of one, or else the first one of the file.
        asked = getattr(item, "callspec", None) and item.callspec.params.get("check")
        checks = [name for name, _ in checks_of(vars(item.module))]
        if checks:
            _chosen[item.module.__name__] = asked if asked in checks else checks[0]
    config.hook.pytest_deselected(items=left_out)


def _alike(item: pytest.Item) -> str:
    """The same for tests of which one is enough."""
    return item.nodeid.partition("::" if _simulates(item) else "[")[0]


def _simulates(item: pytest.Item) -> bool:
    assert isinstance(item, pytest.Function)
    return "cocotb" in vars(item.module)
