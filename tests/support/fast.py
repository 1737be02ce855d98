"""Pytest plugin: `--fast` runs some of all tests: enough to look at before a commit.

Of a file that starts a simulator it runs the first test, so that has to be one that simulates, and
of the cocotb tests in the file the first one.
"""

from pathlib import Path

import pytest

from tests.support.checks import checks_of

WHOLE = (
    "tests/bench",
    "tests/cli/test_engine_commands",
    "tests/examples",
    "tests/hw",
    "tests/integration",
    "tests/linux",
    "tests/robustness",
    "tests/sim/malformer",
    "tests/sim/soak_tcp",
    "tests/tcp/test_engine",
    "tests/tcp/test_receive_path",
    "tests/tcp/test_receive_side",
    "tests/tcp/test_transmit_path",
    "tests/test_nic",
    "tests/tools",
)
"""How paths begin whose tests build, run or synthesize whole devices, have much of the TCP engine,
whose blocks have tests of their own, or need root. None is fast."""

FAST_INSIDE = ("tests/hw/interface", "tests/hw/test_one_description.py")
"""Paths below these folders whose tests do none of that."""

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
