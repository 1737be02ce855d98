"""What stands at our end of the cases."""

import pytest

from tests.linux.device_interface import DeviceInterface, EngineInterface
from tests.linux.network_interface import NetworkInterface
from tests.linux.ours import Opener
from tests.linux.reference_interface import ReferenceInterface

OPENERS: dict[str, Opener] = {
    "reference": ReferenceInterface,
    "card": NetworkInterface,
    "device": DeviceInterface,
    "engine": EngineInterface,
}


@pytest.fixture(params=list(OPENERS))
def opener(request: pytest.FixtureRequest, compiled_device: None, compiled_nic: None) -> Opener:
    """Makes our end."""
    return OPENERS[request.param]
