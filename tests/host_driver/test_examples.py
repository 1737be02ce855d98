"""The examples in the docstrings of the driver say what happens."""

import doctest
import importlib
import io
import pkgutil
from pathlib import Path

import pytest

from stagecoach import host_driver
from stagecoach.host_driver import MR

FINDER = doctest.DocTestFinder(exclude_empty=True)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

EXAMPLES = [
    example
    for module in pkgutil.walk_packages(host_driver.__path__, f"{host_driver.__name__}.")
    for example in FINDER.find(importlib.import_module(module.name))
    if example.examples
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name.split(".", 2)[2])
def test_it_says_what_happens(example, verbs):
    example.globs.update(
        {name: getattr(host_driver, name) for name in host_driver.__all__},
        context=verbs.context,
        pd=verbs.pd,
        cq=verbs.cq,
        region=MR(verbs.pd, 4096),
        device=type(verbs.device)(),
    )
    output = io.StringIO()
    result = doctest.DocTestRunner(optionflags=FLAGS).run(example, out=output.write)
    assert result.failed == 0, output.getvalue()


def test_there_are_examples():
    assert len(EXAMPLES) > 12


def test_no_other_package_has_examples_that_nobody_runs():
    root = Path(__file__).parents[2]
    others = ("bench", "cli", "gateware", "hw", "sim", "tools", "ulp")
    sources = [path for folder in others for path in (root / folder).rglob("*.py")]
    assert len(sources) > 500
    assert [path for path in sources if "\n    >>> " in path.read_text()] == []
