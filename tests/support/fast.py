"""Pytest plugin: `--fast` runs some of all tests: enough to look at before a commit."""

import pytest

WHOLE = (
    "tests/bench",
    "tests/examples",
    "tests/formal",
    "tests/hw",
    "tests/integration",
    "tests/malformer",
    "tests/robustness",
    "tests/tools",
)
"""Folders whose tests build, run or synthesize whole devices: none of them is fast."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast",
        action="store_true",
        help="run the first case of each test that is neither slow nor of a whole device",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.option.fast:
        return
    chosen: dict[str, pytest.Item] = {}
    for item in items:
        name, _, _ = item.nodeid.partition("[")
        if item.get_closest_marker("slow") is None and not name.startswith(WHOLE):
            chosen.setdefault(name, item)
    left_out = [item for item in items if chosen.get(item.nodeid.partition("[")[0]) is not item]
    items[:] = chosen.values()
    config.hook.pytest_deselected(items=left_out)
