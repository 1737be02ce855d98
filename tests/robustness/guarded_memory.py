"""Memory of the driver with octets around it that a device must not touch."""

import zlib
from typing import Any

import pytest

from stagecoach.host_driver.network.hardware import memory
from stagecoach.sim.network import gateware_card

GUARD_OCTETS = 4096
_PATTERN = bytes(range(1, 251))
_GUARD = (_PATTERN * (GUARD_OCTETS // len(_PATTERN) + 1))[:GUARD_OCTETS]


class GuardedMemory(memory.AlignedMemory):
    """As `AlignedMemory`; the device may reach what is before and after it.

    Attributes
    ----------
    made: all that are open.
    """

    made: list["GuardedMemory"] = []

    def __init__(self, host: memory.MemoryHost, octets: int, alignment: int = 8) -> None:
        around = -(-GUARD_OCTETS // alignment) * alignment
        super().__init__(host, octets + 2 * around, alignment)
        self._around, whole = around, self.view
        self.address += around
        self.view = whole[around : around + octets]
        self._guards = (
            whole[around - GUARD_OCTETS : around],
            whole[around + octets :][:GUARD_OCTETS],
        )
        whole.release()
        for guard in self._guards:
            guard[:] = _GUARD
        self.made.append(self)

    @property
    def is_whole(self) -> bool:
        """Whether nothing around it has changed."""
        return all(bytes(guard) == _GUARD for guard in self._guards)

    @property
    def sum(self) -> int:
        """Another one, almost surely, when an octet has changed."""
        return zlib.crc32(self.view)

    def close(self) -> None:
        """Take it back from the device."""
        assert self.is_whole
        for guard in self._guards:
            guard.release()
        self.made.remove(self)
        super().close()


def guard(monkeypatch: pytest.MonkeyPatch) -> list[GuardedMemory]:
    """All memory of drivers that are opened from now on."""
    made: list[Any] = []
    monkeypatch.setattr(GuardedMemory, "made", made)
    monkeypatch.setattr(gateware_card, "AlignedMemory", GuardedMemory)
    return made
