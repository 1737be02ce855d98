"""Which parts of a device's own memory are in use."""

from stagecoach.host_driver.errors import DeviceMemoryExhausted, NoDeviceMemory

ALIGNMENT = 64
"""Bytes: each buffer begins at a multiple. A burst of a memory chip has no more."""


class MemoryAllocator:
    """Hands out the memory of a device, first fit; the caller holds the lock of the context.

    Parameters
    ----------
    octets: of the memory; 0 if the device has none.
    """

    def __init__(self, octets: int):
        self._octets = octets
        self._taken: dict[int, int] = {}  # offset of a buffer: that after it, a multiple

    def _gaps(self) -> list[tuple[int, int]]:
        """Offset and length of what is free between buffers, and after the last one."""
        taken = sorted(self._taken.items())
        begins = [0, *(end for _, end in taken)]
        ends = [*(begin for begin, _ in taken), self._octets]
        return [
            (begin, end - begin) for begin, end in zip(begins, ends, strict=True) if begin < end
        ]

    def take(self, octets: int) -> int:
        """Offset of so many bytes that no other buffer has.

        Raises `NoDeviceMemory`, and `DeviceMemoryExhausted` if no gap is long enough.
        """
        if not self._octets:
            raise NoDeviceMemory
        gaps = self._gaps()
        for begin, length in gaps:
            if octets <= length:
                self._taken[begin] = -(-(begin + octets) // ALIGNMENT) * ALIGNMENT
                return begin
        lengths = [length for _, length in gaps]
        raise DeviceMemoryExhausted(
            octets, free=sum(lengths), longest=max(lengths, default=0), size=self._octets
        )

    def give(self, offset: int) -> None:
        """Takes back a buffer."""
        del self._taken[offset]
