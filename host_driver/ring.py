"""A ring of fixed-size entries in host memory that the device reads or writes."""

import mmap

from host_driver.transport.base import Transport

MAXIMUM_LOG2 = 15
"""Running numbers have 16 bits; a ring of 2^15 entries keeps full and empty apart."""

LOOK_NEAR, LOOK_FAR = 16, 256
"""How many entries behind a missing one are looked at each time: the next, and others in turn."""

_PHASE_BIT = bytes(octet & 1 for octet in range(256))


def check_entries(entries: int) -> None:
    """Raises `ValueError` if no ring has so many entries."""
    if not 1 <= entries <= 1 << MAXIMUM_LOG2:
        raise ValueError(f"a queue of {entries} entries; allowed: 1 to {1 << MAXIMUM_LOG2}")


def ring_entries(entries: int) -> int:
    """Entries of the ring for `entries`: a power of two, at least 2."""
    return 1 << max((entries - 1).bit_length(), 1)


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
        self._last_octets = self.memory[entry_octets - 1 :: entry_octets]
        self._looked = 0
        try:
            self.address = transport.map_memory(self._mmap)
        except BaseException:
            self._release()
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

    def _is_any_written(self, number: int, count: int) -> bool:
        """Whether the device has written one of `count` entries from a running number on."""
        while count > 0:
            first = number & (self.entries - 1)
            octets = self._last_octets[first : first + count].tobytes()
            if self.phase(number) in octets.translate(_PHASE_BIT):
                return True
            number, count = number + len(octets), count - len(octets)
        return False

    def skip_lost(self, number: int) -> bool:
        """Whether the next entry, which is not written, never will be: its write has failed.

        The device writes entries in order and with one AXI ID, so it is lost if one behind it is
        there. One that is far behind may be found only when this was called some more times. The
        place of the lost entry is then as after reading, for the next turn of the ring.
        """
        others = self.entries - 1
        far = min(LOOK_FAR, others - self._looked)
        if not (
            self._is_any_written(number + 1, min(LOOK_NEAR, others))
            or self._is_any_written(number + 1 + self._looked, far)
        ):
            self._looked = (self._looked + far) % others
            return False
        if self.is_written(number):  # just now
            return False
        self.memory[self.offset(number) + self.entry_octets - 1] = self.phase(number)
        return True

    def close(self) -> None:
        """Takes the memory back from the device."""
        try:
            self._transport.unmap_memory(self.address)
        finally:
            self._release()
        # After a failed unmapping the device may still have it: then it is not closed.
        self._mmap.close()

    def _release(self) -> None:
        self._last_octets.release()
        self.memory.release()
