"""Two simulated devices for all tests of a file."""

from collections.abc import Iterator

import pytest

from host_driver import Context
from host_driver.transport.simulation import SimulatedDevice
from tests.host_driver.rpcrdma.rig import Devices


@pytest.fixture(scope="module")
def devices() -> Iterator[Devices]:
    with Context(SimulatedDevice()) as client, Context(SimulatedDevice()) as server:
        yield Devices(client, server)
