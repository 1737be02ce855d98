"""Two simulated devices for all tests of a file: that of the command, and that of its peer."""

from collections.abc import Iterator

import pytest

from stagecoach.host_driver import Context
from stagecoach.sim.transport import SimulatedDevice
from tests.ulp.perftest.rig import Devices


@pytest.fixture(scope="module")
def devices(compiled_device: None) -> Iterator[Devices]:
    with Context(SimulatedDevice()) as ours, Context(SimulatedDevice()) as theirs:
        yield Devices(ours, theirs)
