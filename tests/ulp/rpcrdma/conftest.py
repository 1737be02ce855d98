"""Two simulated devices for all tests of a file."""

from collections.abc import Iterator

import pytest

from stagecoach.host_driver import Context
from stagecoach.sim.transport import SimulatedDevice
from tests.ulp.rpcrdma.rig import Devices


@pytest.fixture(scope="module")
def devices() -> Iterator[Devices]:
    with Context(SimulatedDevice()) as client, Context(SimulatedDevice()) as server:
        yield Devices(client, server)
