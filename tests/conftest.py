"""What holds for all tests: the conformance list knows which rows they name; one device for all."""

import contextlib

import pytest
from hypothesis import settings

from stagecoach.hw.cache import CacheError
from stagecoach.sim.board import build_board
from stagecoach.sim.build import BuildError, build_device

pytest_plugins = ["tests.conformance.plugin"]

# How long an example takes says nothing on a machine that does other things, too.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

USERS_OF_THE_DEVICE = (
    "tests/examples/test_atomic_counter.py::test_two_processes",
    "tests/bench/test_nfs.py",
    "tests/cli/test_main.py",
    "tests/cli/test_perf_devices.py",
    "tests/cli/test_rping.py",
    *(
        f"tests/ulp/rpcrdma/test_{name}.py"
        for name in (
            *("bad_clients", "bad_servers", "calls", "completions", "eligibility", "fatal_calls"),
            *("life", "oncrpc", "requester", "responder", "rfc5666", "wire"),
        )
    ),
    "tests/hostlink/test_board.py",
    "tests/integration/",
    "tests/malformer/",
    "tests/robustness/",
)

USERS_OF_THE_BOARD = ("tests/hostlink/test_board.py",)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Builds the compiled device before the first test: no timeout of a test is meant for that."""
    if session.config.option.collectonly:
        return
    if any(item.nodeid.startswith(USERS_OF_THE_DEVICE) for item in session.items):
        with contextlib.suppress(BuildError, CacheError):  # the tests say so
            build_device()
    if any(item.nodeid.startswith(USERS_OF_THE_BOARD) for item in session.items):
        with contextlib.suppress(BuildError, CacheError):
            build_board()
