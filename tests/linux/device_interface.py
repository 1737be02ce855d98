"""Compiled devices with their cards as an `ours.Interface`: with the reference TCP or an engine.

Streams are those that no QP has: the cases send any octets. `test_device` is about those of QPs.
"""

import time
from dataclasses import replace
from pathlib import Path

from stagecoach.gateware.config import RnicConfig
from stagecoach.host_driver.transport.base import TransportTimeout
from stagecoach.sim.network.nic import SimulatedNic
from stagecoach.sim.wire.address import WireAddress, parse_wire
from tests.linux.network_interface import DriverInterface
from tests.linux.ours import PATIENCE
from tests.support.compiled_nic import NIC_CONFIG, nic_library

_LEAST_RING = 128 << 10


class DeviceInterface(DriverInterface):
    """See `ours.Opener`: a window is a power of two, 128 KiB at least."""

    def __init__(self, address: str, window: int | None = None) -> None:
        parsed = parse_wire(address)
        if window is not None:
            parsed = replace(parsed, rx_ring=max(_LEAST_RING, 1 << (window - 1).bit_length()))
        self.nic = self._open(parsed)
        super().__init__(self.nic.network, self.nic.stack)

    def _open(self, address: WireAddress) -> SimulatedNic:
        return opened_nic(address)

    def close(self) -> None:
        """End all of it."""
        self.nic.close()


class EngineInterface(DeviceInterface):
    """The same with the engine in gateware."""

    def _open(self, address: WireAddress) -> SimulatedNic:
        return opened_nic(replace(address, tcp="engine"), NIC_CONFIG, nic_library())


def opened_nic(
    address: str | WireAddress, config: RnicConfig | None = None, library: Path | None = None
) -> SimulatedNic:
    """A device whose wire is up."""
    nic = SimulatedNic(address, config, library=library)
    give_up = time.monotonic() + PATIENCE
    while not nic.carrier:
        if time.monotonic() > give_up:
            nic.close()
            raise TransportTimeout("the TAP has no carrier")
        time.sleep(0.005)
    return nic
