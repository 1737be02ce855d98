"""Memory that a device and its driver share."""

import mmap
from typing import Any, Protocol

from stagecoach.host_driver.transport.base import TransportError
from stagecoach.host_driver.transport.network import NetworkHost

LEAST_LOG2, MOST_LOG2 = 17, 30
"""Of the bytes of a ring of a stream (`TCP_RINGS` in hw/interface/network.rdl)."""

_ADDRESS_BITS = 48
"""Of the rings of a stream."""


class MemoryHost(Protocol):
    """A transport that lets a device reach memory of the driver."""

    def map_memory(self, buffer: Any) -> int:
        """Let the device reach a writable buffer, as `Transport.map_memory` does."""

    def unmap_memory(self, address: int) -> None:
        """Take back the buffer mapped last at this address."""


class AlignedMemory:
    """A `SharedMemory` of this process, mapped for a device.

    It is zeroed, and begins at a multiple of `alignment` there.

    Attributes
    ----------
    address: of its first byte, for the device. view: its bytes.
    """

    def __init__(self, host: MemoryHost, octets: int, alignment: int = 8):
        self._host = host
        # The mapping begins at a page, or anywhere: whatever is missing is there twice.
        self._mmap = mmap.mmap(-1, octets + alignment)
        self._mapped = host.map_memory(self._mmap)
        start = -self._mapped % alignment
        self.address = self._mapped + start
        self._whole = memoryview(self._mmap)
        self.view = self._whole[start : start + octets]

    def read(self, at: int, octets: int) -> bytes:
        """The bytes at a place."""
        return bytes(self.view[at : at + octets])

    def write(self, at: int, data: bytes) -> None:
        """Put bytes at a place."""
        self.view[at : at + len(data)] = data

    def close(self) -> None:
        """Take it back from the device."""
        self._host.unmap_memory(self._mapped)
        self.view.release()
        self._whole.release()
        self._mmap.close()


class StreamRing:
    """The RX or TX ring of a connection: the byte with number s is at place s modulo the size.

    Parameters
    ----------
    octets: its size, as `check_ring` allows it.

    Attributes
    ----------
    octets: its size. size: the field of `TCP_RINGS`. address: for the device.
    """

    def __init__(self, host: NetworkHost, octets: int):
        self.octets = octets
        self.size = octets.bit_length() - 1 - LEAST_LOG2
        self._memory = host.allocate(octets)
        self.address = self._memory.address
        if self.address + octets > 1 << _ADDRESS_BITS:
            raise TransportError(
                f"ring at address {self.address:#x} of the device; "
                f"allowed: below {1 << _ADDRESS_BITS:#x}"
            )

    def _pieces(self, number: int, octets: int) -> list[tuple[int, int]]:
        """Places and lengths: two if they go past the end of the ring."""
        place = number % self.octets
        first = min(octets, self.octets - place)
        return [(place, first), (0, octets - first)]

    def write(self, number: int, data: bytes) -> None:
        """Put bytes at a number."""
        at = 0
        for place, octets in self._pieces(number, len(data)):
            if octets:
                self._memory.write(place, data[at : at + octets])
            at += octets

    def read(self, number: int, octets: int) -> bytes:
        """The bytes at a number."""
        pieces = self._pieces(number, octets)
        read = self._memory.read
        return b"".join(read(place, length) for place, length in pieces if length)

    def close(self) -> None:
        """Take it back from the device."""
        self._memory.close()


def check_ring(name: str, octets: int) -> None:
    """Raises `ValueError` for a size that no ring has."""
    least, most = 1 << LEAST_LOG2, 1 << MOST_LOG2
    if not least <= octets <= most or octets & (octets - 1):
        raise ValueError(f"{name} is {octets} bytes; allowed: powers of two from {least} to {most}")
