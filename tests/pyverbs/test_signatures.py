"""Names and signatures are those of pyverbs 44, or docs/pyverbs.md says what they are not."""

import errno
import inspect
import re
import tomllib
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from stagecoach.pyverbs import cm_enums, enums
from stagecoach.pyverbs.pyverbs_error import PyverbsRDMAError

ROOT = Path(__file__).parents[2]
LIST = tomllib.loads((ROOT / "tests" / "data" / "pyverbs_44.toml").read_text())
PAGE = (ROOT / "docs" / "pyverbs.md").read_text()
NOT_CLASSES = ("modules", "enums", "cm_enums")
CONSTANTS = {**vars(enums), **vars(cm_enums)}
MISSING = object()


def section(heading: str) -> str:
    """The part of the page under a heading."""
    return PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]


def keys(heading: str) -> set[str]:
    """The names in the first column of the table there."""
    cells = re.findall(r"^\| (.*?) \|", section(heading), re.MULTILINE)
    return {name for cell in cells[1:] for name in re.findall(r"`([^`]+)`", cell)}


def listed() -> dict[str, str | None]:
    """`module.Class.member` of all that pyverbs has, to the parameters of what can be called."""
    found: dict[str, str | None] = dict.fromkeys(LIST["modules"]["absent"])
    for module, entries in LIST.items():
        if module in NOT_CLASSES:
            continue
        for name in (*entries["classes"], *entries["functions"]):
            found[f"{module}.{name}"] = None
        for name, each in entries.items():
            if isinstance(each, list):
                continue
            found[f"{module}.{name}"] = each.get("parameters")
            found |= {f"{module}.{name}.{attribute}": None for attribute in each["attributes"]}
            found |= {f"{module}.{name}.{key}": text for key, text in each["methods"].items()}
    return found


def ours(key: str) -> Any:
    """What stands here under a name, or `MISSING`."""
    module, *path = key.split(".")
    if find_spec(f"stagecoach.pyverbs.{module}") is None:
        return MISSING
    found: Any = import_module(f"stagecoach.pyverbs.{module}")
    for name in path:
        owner, found = found, getattr(found, name, MISSING)
        if found is MISSING and inspect.isclass(owner) and _objects_have(owner, name):
            return None
    return found


@cache
def _objects_have(owner: type, name: str) -> bool:
    """Whether objects have an attribute that the class has not."""
    if is_dataclass(owner):
        return name in {each.name for each in fields(owner)}
    return bool(re.search(rf"\bself\.{name}\b[^=\n(]* = ", inspect.getsource(owner)))


def parameters(of: Any, *, skip_self: bool) -> list[tuple[str, Any, Any]]:
    """Name, kind and default of each parameter."""
    found = list(inspect.signature(of).parameters.values())[skip_self:]
    return [(each.name, each.kind, each.default) for each in found]


def is_refused(found: Any) -> bool:
    """Whether it can be called, and raises."""
    if inspect.isclass(found):
        return (found.__doc__ or "").startswith("Not supported: ")
    return inspect.isfunction(found) and inspect.get_annotations(found).get("return") is NoReturn


@pytest.mark.parametrize("key", [key for key, text in listed().items() if text is not None])
def test_parameters_and_defaults_are_those_of_pyverbs(key):
    found = ours(key)
    expected = eval(f"lambda {listed()[key]}: None", CONSTANTS)
    assert parameters(found, skip_self=not inspect.isclass(found)) == parameters(
        expected, skip_self=False
    )


def test_the_page_lists_what_is_missing():
    assert {key for key in listed() if ours(key) is MISSING} == keys("What is missing")


def test_the_page_lists_what_is_refused():
    assert {key for key in listed() if is_refused(ours(key))} == keys("What is refused")


def test_the_page_tells_differences_of_what_there_is():
    known = {*listed(), "enums", "cm_enums"}
    assert keys("What differs") <= known - keys("What is missing") - keys("What is refused")


@pytest.mark.parametrize("key", sorted(keys("What is refused")))
def test_what_is_refused_says_so(key):
    found = ours(key)
    nothing = SimpleNamespace()
    arguments = (
        [] if inspect.isclass(found) else [nothing] * len(parameters(found, skip_self=False))
    )
    with pytest.raises(PyverbsRDMAError, match=r" is not supported: \w+") as caught:
        found(*arguments)
    assert caught.value.error_code == errno.EOPNOTSUPP


@pytest.mark.parametrize("module", [enums, cm_enums], ids=["enums", "cm_enums"])
def test_constants_have_the_values_of_pyverbs(module):
    found = {name: value for name, value in vars(module).items() if name[0] in "IR"}
    assert found == LIST[module.__name__.rpartition(".")[2]]
