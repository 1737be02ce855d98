"""All tests of this folder open the compiled device; one for all of a file that have no other."""

from collections.abc import Iterator

import pytest

from stagecoach.host_driver import Context
from stagecoach.sim.disturbed import DisturbedDevice


@pytest.fixture(autouse=True, scope="session")
def _uses_the_device(compiled_device: None) -> None:
    """See tests/conftest.py."""


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    with Context(DisturbedDevice()) as opened:
        yield opened
