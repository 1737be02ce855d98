"""docs/errors.md has every exception, completion status and cause of an event, and nothing else."""

import inspect
import re
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from types import ModuleType

import pytest

from stagecoach import host_driver
from stagecoach.cli.demo import end as demo
from stagecoach.cli.perf import end as perf
from stagecoach.cli.perf import settings as perf_settings
from stagecoach.cli.top import command as top
from stagecoach.host_driver import Cause, WCStatus, errors, extras, mpa_errors
from stagecoach.host_driver.board_memory import errors as board_memory
from stagecoach.host_driver.network import errors as network
from stagecoach.host_driver.transport import base
from stagecoach.hw import cache
from stagecoach.hw.interface.causes import CODES
from stagecoach.sim import verilator
from stagecoach.sim.capture import file as capture_file
from stagecoach.sim.model.errors import ErrorCode
from stagecoach.sim.model.terminate import NEVER_SENT
from stagecoach.sim.wire import errors as wire
from stagecoach.ulp.memory_server import errors as memory_server
from stagecoach.ulp.nfs import mount, status
from stagecoach.ulp.nfs.server import handle_key
from stagecoach.ulp.oncrpc import errors as oncrpc
from stagecoach.ulp.perftest import errors as perftest
from stagecoach.ulp.rpcrdma import errors as rpcrdma
from stagecoach.ulp.rping import link as rping

TEXT = (Path(__file__).parents[1] / "docs" / "errors.md").read_text()
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))


def rows(section: str) -> list[list[str]]:
    """Cells of the table of a section, without its head."""
    lines = [line for line in SECTIONS[section].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def names(section: str) -> list[str]:
    return [row[0].strip("`") for row in rows(section)]


API = (errors, mpa_errors, extras, base, network, board_memory)
COMMANDS = (
    *(demo, perf, perf_settings, rping, verilator, cache, capture_file, mount, status, top),
    handle_key,
    wire,
    perftest,
    memory_server,
)
RPC = (oncrpc, rpcrdma)


def exceptions(modules: Iterable[ModuleType]) -> set[type[Exception]]:
    return {
        thing
        for module in modules
        for _, thing in inspect.getmembers(module, inspect.isclass)
        if issubclass(thing, Exception) and thing.__module__ == module.__name__
        if not thing.__name__.startswith("_")
    }


def test_every_exception_has_its_row_and_nothing_else_has():
    found = exceptions((*API, *RPC, *COMMANDS))
    assert sorted(names("Exceptions")) == sorted({each.__name__ for each in found})
    outside = {row[0].strip("`") for row in rows("Exceptions") if re.search("; an? `", row[1])}
    assert outside == {
        each.__name__ for each in found if not issubclass(each, host_driver.StagecoachError)
    }


def test_every_exception_can_be_imported_from_the_package():
    for each in exceptions(API) - {base.StreamClosed, base.TransportTimeout}:
        assert getattr(host_driver, each.__name__) is each
        assert issubclass(each, host_driver.StagecoachError)


@pytest.mark.parametrize(
    ("section", "members"), [("Statuses of completions", WCStatus), ("Asynchronous events", Cause)]
)
def test_every_member_has_its_row_and_nothing_else_has(section: str, members: type[Enum]):
    assert names(section) == [each.name for each in members]


def test_every_cause_has_the_code_of_its_terminate():
    for name, told, *_ in rows("Asynchronous events"):
        code, _ = CODES[Cause[name.strip("`")]]
        expected = ""
        if code is not None and ErrorCode(*code) not in NEVER_SENT:
            expected = f"{code.layer}/{code.error_type}/{code.error_code:02X}"
        assert told == expected, name


def test_every_error_says_what_to_do():
    no_errors = {"NONE", "STOPPED_BY_DRIVER", "SUCCESS"}
    for section in ("Exceptions", "Statuses of completions", "Asynchronous events"):
        for name, *meaning, advice in rows(section):
            assert all(meaning[-1:]), name
            assert advice or name.strip("`") in no_errors, name
