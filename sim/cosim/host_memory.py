"""Host memory as the device sees it: the buffers that were mapped, at their addresses."""

from bisect import bisect, insort
from typing import Any


class HostMemory:
    """Mapped buffers at made-up, page-aligned addresses; anything else is an access error."""

    PAGE = 4096
    FIRST = 0x1000_0000

    def __init__(self) -> None:
        self._next = self.FIRST
        self._regions: dict[int, tuple[int, memoryview]] = {}
        self._starts: list[int] = []  # sorted

    def map(self, buffer: Any, offset_in_page: int = 0) -> int:
        """Maps a writable buffer; returns the address of its first byte.

        The address does not depend on where the buffer is in this process: bursts are cut at
        pages, so a run would otherwise not take the same cycles as the last one. An alignment
        is tested with addresses inside a buffer, or with `offset_in_page`.
        """
        view = memoryview(buffer).cast("B")
        address = self._next + offset_in_page
        pages = (offset_in_page + view.nbytes) // self.PAGE + 2
        self._next += pages * self.PAGE
        self._regions[address] = (view.nbytes, view)
        insort(self._starts, address)
        return address

    def unmap(self, address: int) -> None:
        """Forgets the buffer at `address`; `KeyError` if there is none."""
        _, view = self._regions.pop(address)
        self._starts.remove(address)
        view.release()

    def find(self, address: int, octets: int) -> tuple[memoryview, int] | None:
        """The buffer that holds a whole range, and the range's offset in it."""
        place = bisect(self._starts, address)
        if not place:
            return None
        start = self._starts[place - 1]
        length, view = self._regions[start]
        return (view, address - start) if address + octets <= start + length else None

    def read_word(self, address: int, octets: int = 8) -> int | None:
        """The word of so many bytes at `address`; those outside a buffer are zero.

        `None` if no byte of the word is mapped.
        """
        found = self.find(address, octets)
        if found is not None:
            view, offset = found
            return int.from_bytes(view[offset : offset + octets], "little")
        word = 0
        mapped = False
        for lane in range(octets):
            one = self.find(address + lane, 1)
            if one is not None:
                mapped = True
                word |= one[0][one[1]] << 8 * lane
        return word if mapped else None

    def write_word(self, address: int, word: int, strobe: int, octets: int = 8) -> bool:
        """Writes the lanes of `strobe` of a word of so many bytes; whether all are mapped."""
        if strobe == (1 << octets) - 1:
            found = self.find(address, octets)
            if found is not None:
                view, offset = found
                view[offset : offset + octets] = word.to_bytes(octets, "little")
                return True
        good = True
        for lane in range(octets):
            if strobe >> lane & 1:
                one = self.find(address + lane, 1)
                if one is None:
                    good = False
                else:
                    one[0][one[1]] = word >> 8 * lane & 0xFF
        return good

    def is_mapped(self, address: int, strobe: int) -> bool:
        """Whether all lanes of `strobe` of the word at `address` are."""
        lanes = [lane for lane in range(strobe.bit_length()) if strobe >> lane & 1]
        return all(self.find(address + lane, 1) is not None for lane in lanes)
