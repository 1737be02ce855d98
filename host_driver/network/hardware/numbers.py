"""The engine's numbers of connections, and the rings of each."""

import contextlib
from collections import deque

from stagecoach.host_driver.network.hardware.memory import StreamRing
from stagecoach.host_driver.network.hardware.start import HardwareSettings
from stagecoach.host_driver.transport.network import NetworkHost


class Numbers:
    """Those that are free; the one that was free for the longest time comes first.

    Parameters
    ----------
    connections: that the engine keeps at once. settings: sizes of the rings.
    """

    def __init__(self, host: NetworkHost, connections: int, settings: HardwareSettings):
        self._host = host
        self._settings = settings
        self._free = deque(range(connections))
        self._rings: dict[int, tuple[StreamRing, StreamRing]] = {}

    def __len__(self) -> int:
        return len(self._free)

    @property
    def next(self) -> int:
        """The one that comes first."""
        return self._free[0]

    def take(self) -> None:
        """It is used from now on."""
        self._free.popleft()

    def give_back(self, number: int) -> None:
        """It is free again."""
        self._free.append(number)

    def rings(self, number: int) -> tuple[StreamRing, StreamRing]:
        """RX and TX ring; made when they are used first, and kept."""
        if number not in self._rings:
            with contextlib.ExitStack() as undo:
                rx = StreamRing(self._host, self._settings.rx_ring)
                undo.callback(rx.close)
                tx = StreamRing(self._host, self._settings.tx_ring)
                undo.pop_all()
            self._rings[number] = rx, tx
        return self._rings[number]

    def close(self) -> None:
        """Take the rings back from the device."""
        for rings in self._rings.values():
            for ring in rings:
                ring.close()
