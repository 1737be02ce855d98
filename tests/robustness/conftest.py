"""One disturbed device for all tests of a file that have no other one."""

from collections.abc import Iterator

import pytest

from stagecoach.host_driver import Context
from stagecoach.sim.disturbed import DisturbedDevice


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    with Context(DisturbedDevice()) as opened:
        yield opened
