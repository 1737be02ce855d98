"""A compiled device with its card as an `ours.Interface`.

Streams are those that no QP has: the cases send any octets. `test_device` is about those of QPs.
"""

import time
from dataclasses import replace

from stagecoach.host_driver.transport.base import TransportTimeout
from stagecoach.sim.network.nic import SimulatedNic
from stagecoach.sim.wire.address import WireAddress, parse_wire
from tests.linux.network_interface import DriverInterface
from tests.linux.ours import PATIENCE

_LEAST_RING = 128 << 10


class DeviceInterface(DriverInterface):
    """See `ours.Opener`: a window is a power of two, 128 KiB at least."""

    def __init__(self, address: str, window: int | None = None) -> None:
        parsed = parse_wire(address)
        if window is not None:
            parsed = replace(parsed, rx_ring=max(_LEAST_RING, 1 << (window - 1).bit_length()))
        self.nic = opened_nic(parsed)
        super().__init__(self.nic.network, self.nic.stack)

    def close(self) -> None:
        """End all of it."""
        self.nic.close()


def opened_nic(address: str | WireAddress) -> SimulatedNic:
    """A device whose wire is up."""
    nic = SimulatedNic(address)
    give_up = time.monotonic() + PATIENCE
    while not nic.carrier:
        if time.monotonic() > give_up:
            nic.close()
            raise TransportTimeout("the TAP has no carrier")
        time.sleep(0.005)
    return nic
