"""The compiled device for tests that disturb its ports."""

from pathlib import Path
from typing import Any

from stagecoach.sim.device import Response
from stagecoach.sim.transport import SimulatedDevice


class DisturbedDevice(SimulatedDevice):
    """A `SimulatedDevice` whose ports can be held, fail and lose connections.

    Attributes
    ----------
    mapped: address and bytes of every buffer, in the order in which they were mapped.
    """

    def __init__(
        self,
        library: Path | None = None,
        *,
        write_latency: int | None = None,
        late_writes: bool = False,
    ):
        super().__init__(library=library, write_latency=write_latency, late_writes=late_writes)
        self.mapped: list[tuple[int, int]] = []

    def map_memory(self, buffer: Any) -> int:
        """See `SimulatedDevice.map_memory`."""
        address = super().map_memory(buffer)
        self.mapped.append((address, memoryview(buffer).nbytes))
        return address

    def hold(self, *, reads: bool = False, writes: bool = False, transmit: bool = False) -> None:
        """See `sim.device.Device.hold`."""
        self._device.hold(reads=reads, writes=writes, transmit=transmit)

    def lose_after(self, connection: int, octets: int) -> None:
        """See `sim.device.Device.lose_after`."""
        self._device.lose_after(connection, octets)

    def fail_access(
        self, place: tuple[int, int], *, write: bool, skip: int, response: Response
    ) -> None:
        """See `sim.device.Device.fail_access`."""
        self._device.fail_access(*place, write=write, skip=skip, response=response)
