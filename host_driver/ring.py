"""A ring of fixed-size entries in host memory that the device reads or writes."""

import mmap
from operator import index

from stagecoach.host_driver.errors import require_integer
from stagecoach.host_driver.transport.base import Transport

MAXIMUM_LOG2 = 15
"""Running numbers have 16 bits; a ring of 2^15 entries keeps full and empty apart."""

LOOKS = 64
"""Looks in vain at a ring for each time that the device is asked what is lost."""


def check_entries(entries: int, units: int = 1) -> None:
    """Raises `TypeError` or `ValueError` if no ring has so many entries of `units` units."""
    require_integer("the number of entries of a queue", entries)
    most = (1 << MAXIMUM_LOG2) // units
    if not 1 <= entries <= most:
        raise ValueError(f"a queue of {entries} entries; allowed: 1 to {most}")


def ring_entries(entries: int) -> int:
    """Entries of the ring for `entries`: a power of two, at least 2."""
    return 1 << max((index(entries) - 1).bit_length(), 1)


class Ring:
    """Page-aligned memory for `2^log2` entries, at least `entries`, mapped for the device.

    Raises `ValueError` if `entries` is not from 1 to 2^15.
    """

    def __init__(self, transport: Transport, entries: int, entry_octets: int):
        check_entries(entries)
        self.entries = ring_entries(entries)
        self.log2 = self.entries.bit_length() - 1
        self.entry_octets = entry_octets
        self._transport = transport
        self._mmap = mmap.mmap(-1, self.entries * entry_octets)
        self.memory = memoryview(self._mmap)
        self._looks = 0
        try:
            self.address = transport.map_memory(self._mmap)
        except BaseException:
            self.memory.release()
            self._mmap.close()
            raise

    def offset(self, number: int) -> int:
        """Offset in `memory` of the entry with a running number."""
        return (number & (self.entries - 1)) * self.entry_octets

    def phase(self, number: int) -> int:
        """Phase bit with which the device writes the entry with a running number."""
        return 1 ^ (number >> self.log2 & 1)

    def is_written(self, number: int) -> bool:
        """Whether the device has written the entry with a running number."""
        last = self.memory[self.offset(number) + self.entry_octets - 1]
        return last & 1 == self.phase(number)

    def is_due(self) -> bool:
        """Whether the device is to be asked what became of the entry that is not there.

        One call in `LOOKS` is told so: a program may poll all the time, and asking takes long.
        """
        self._looks = (self._looks + 1) % LOOKS
        return self._looks == 0

    def skip_lost(self, number: int, answered: int) -> bool:
        """Whether the next entry, which is not there, never will be: its write has failed.

        `answered`: entries, mod 2^16, of which the device has the write responses. What the device
        did not say so of may still come, even at places before entries that are there: AXI lets
        writes become visible in any order before their responses. The place of the lost entry is
        then as after reading, for the next turn of the ring.
        """
        if answered - number - 1 & 0x8000 or self.is_written(number):
            return False
        self.memory[self.offset(number) + self.entry_octets - 1] = self.phase(number)
        return True

    def close(self) -> None:
        """Takes the memory back from the device."""
        try:
            self._transport.unmap_memory(self.address)
        finally:
            self.memory.release()
        # After a failed unmapping the device may still have it: then it is not closed.
        self._mmap.close()
