"""Ports that the driver's network is tested on."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.host_driver.network.hardware_fake import HardwareFake
from tests.host_driver.network.port import FakePort


@pytest.fixture(params=[FakePort, HardwareFake], ids=["fake", "hardware"])
def make_port(request) -> Callable[..., Any]:
    """Makes a port whose engine is a fake, or the driver's port of a NIC in Python."""
    return request.param
