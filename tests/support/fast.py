"""Pytest plugin: `--fast` runs some of all tests: enough to look at before a commit.

Of a file that starts a simulator it runs the first test, so that has to be one that simulates.
"""

from pathlib import Path

import pytest

WHOLE = (
    "tests/bench",
    "tests/examples",
    "tests/hw",
    "tests/integration",
    "tests/linux",
    "tests/robustness",
    "tests/sim/malformer",
    "tests/tools",
)
"""Folders whose tests build, run or synthesize whole devices, or need root. None is fast."""

FAST_INSIDE = ("tests/hw/interface", "tests/hw/test_one_description.py")
"""Paths below these folders whose tests do none of that."""

chosen_checks: dict[str, str] = {}
"""With `--fast`: the one cocotb test that is asked for of each module whose tests share a run."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast",
        action="store_true",
        help="run one case of each test that is neither slow nor of a whole device; of tests that "
        "start a simulator, the first one of each file",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Does not even import what is not fast: that takes as long as the tests may."""
    if not config.option.fast:
        return None
    path = collection_path.as_posix().removeprefix(f"{config.rootpath.as_posix()}/")
    fast = path.startswith(FAST_INSIDE) or any(inside.startswith(path) for inside in FAST_INSIDE)
    return True if path.startswith(WHOLE) and not fast else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.option.fast:
        return
    chosen: dict[str, pytest.Item] = {}
    for item in items:
        if item.get_closest_marker("slow") is None:
            chosen.setdefault(_alike(item), item)
    left_out = [item for item in items if chosen.get(_alike(item)) is not item]
    items[:] = chosen.values()
    for item in items:
        check = getattr(item, "callspec", None) and item.callspec.params.get("check")
        if isinstance(check, str):
            chosen_checks[item.module.__name__] = check
    config.hook.pytest_deselected(items=left_out)


def _alike(item: pytest.Item) -> str:
    """The same for tests of which one is enough."""
    assert isinstance(item, pytest.Function)
    simulates = "cocotb" in vars(item.module)
    return item.nodeid.partition("::" if simulates else "[")[0]
