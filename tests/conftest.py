"""What holds for all tests: the conformance list knows which rows they name; one device for all."""

import contextlib

import pytest
from hypothesis import settings

from stagecoach.hw.cache import CacheError
from stagecoach.sim.board import build_board
from stagecoach.sim.build import BuildError, build_device
from stagecoach.sim.nic_board import build_nic_board
from tests.support.compiled_nic import nic_library

pytest_plugins = ["tests.conformance.plugin", "tests.support.fast"]

# How long an example takes says nothing on a machine that does other things, too.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture(scope="session")
def compiled_device() -> None:
    """For tests that open the compiled device: it is there before the first test begins."""


@pytest.fixture(scope="session")
def compiled_board() -> None:
    """For tests that open the compiled board: it is there before the first test begins."""


@pytest.fixture(scope="session")
def compiled_nic_board() -> None:
    """For tests that open the compiled board with a NIC: it is there before the first test."""


@pytest.fixture(scope="session")
def compiled_nic() -> None:
    """For tests that open `tests.support.compiled_nic`: it is there before the first test."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Builds what tests open before the first one: no timeout of a test is meant for that."""
    if session.config.option.collectonly:
        return
    used = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    builds = (
        (compiled_device, build_device),
        (compiled_board, build_board),
        (compiled_nic_board, build_nic_board),
        (compiled_nic, nic_library),
    )
    for fixture, build in builds:
        if fixture.__name__ in used:
            with contextlib.suppress(BuildError, CacheError):  # the tests say so
                build()
