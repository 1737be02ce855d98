"""In which order FPDUs arrive at several connections.

The device has a bounded number of FPDUs at hand. When it has released some, the next ones arrive.
"""

import random
from collections import deque

from bench.ports import Ports
from stagecoach.sim.cosim.device import CocotbDevice


class _Arrivals:
    """Knows the FPDUs of each connection that are still to come, and those at hand."""

    def __init__(self, ports: Ports, device: CocotbDevice, fpdus: dict[int, deque[bytes]]):
        self._device = device
        self._fpdus = fpdus
        self._ends: dict[int, deque[int]] = {connection: deque() for connection in fpdus}
        self._given = dict.fromkeys(fpdus, 0)
        ports.watch("llp__rx_release_", "connection position", self._take)

    def _take(self, connection: int, position: int) -> None:
        ends = self._ends[connection]
        while ends and ends[0] <= position:
            ends.popleft()
            self._released(connection)

    def _give(self, connection: int) -> None:
        """The next FPDU of a connection arrives, if there is one."""
        if self._fpdus[connection]:
            fpdu = self._fpdus[connection].popleft()
            self._given[connection] += len(fpdu)
            self._ends[connection].append(self._given[connection])
            self._device.llp.receive(connection, fpdu)

    def _released(self, connection: int) -> None:
        """The device has released an FPDU of a connection."""
        raise NotImplementedError


class Interleaved(_Arrivals):
    """Round robin: each connection has a few FPDUs, and gets one more for each that is released."""

    def begin(self, fpdus: int) -> None:
        """Gives each connection its first FPDUs."""
        for _ in range(fpdus):
            for connection in self._fpdus:
                self._give(connection)

    def _released(self, connection: int) -> None:
        self._give(connection)


class InRuns(_Arrivals):
    """Runs of FPDUs of one connection; the connections take turns in random order.

    A connection has one run at a time: when all of it is released, the next run is that of any
    connection that has none.
    """

    def __init__(
        self,
        ports: Ports,
        device: CocotbDevice,
        fpdus: dict[int, deque[bytes]],
        in_a_row: int,
        rng: random.Random,
    ):
        super().__init__(ports, device, fpdus)
        self._in_a_row = in_a_row
        self._rng = rng

    def begin(self, fpdus: int) -> None:
        """Lets runs arrive that have so many FPDUs in all."""
        for _ in range(fpdus // self._in_a_row):
            self._begin_run()

    def _released(self, connection: int) -> None:
        if not self._ends[connection]:
            self._begin_run()

    def _begin_run(self) -> None:
        waiting = [each for each, left in self._fpdus.items() if left and not self._ends[each]]
        if waiting:
            connection = self._rng.choice(waiting)
            for _ in range(self._in_a_row):
                self._give(connection)
