"""Host memory as a device at a link may reach it: the mapped buffers, byte by byte."""

import bisect
import ctypes
from typing import Any

from stagecoach.host_driver.transport.base import TransportError
from stagecoach.host_driver.transport.buffers import Exported, export

OKAY = 0
DECERR = 3
WORD = 8


class MappedMemory:
    """The buffers that were mapped, at their addresses in this process.

    As an IOMMU with the granularity of a byte: reads find zero where nothing is mapped, and fail
    if that is so of a whole word; writes fail if one byte to be written is not mapped.
    """

    def __init__(self) -> None:
        # Address to the buffers mapped there, oldest first.
        self._mapped: dict[int, list[memoryview]] = {}
        self._keep: dict[int, list[Exported]] = {}
        self._starts: list[int] = []

    def map(self, buffer: Any) -> int:
        """Maps a writable, contiguous buffer; returns its address."""
        exported = export(buffer)
        address = ctypes.addressof(exported)
        self._keep.setdefault(address, []).append(exported)
        self._mapped.setdefault(address, []).append(memoryview(exported).cast("B"))
        self._starts = sorted(self._mapped)
        return address

    def unmap(self, address: int) -> None:
        """Takes back the buffer mapped last at `address`."""
        if address not in self._mapped:
            raise TransportError(f"nothing is mapped at {address:#x}")
        self._mapped[address].pop().release()
        self._keep[address].pop()
        if not self._mapped[address]:
            del self._mapped[address], self._keep[address]
            self._starts = sorted(self._mapped)

    def clear(self) -> None:
        """Takes back everything."""
        for address in list(self._mapped):
            while address in self._mapped:
                self.unmap(address)

    def _find(self, address: int, octets: int) -> memoryview | None:
        """The bytes from `address` on, as one piece of a mapped buffer."""
        index = bisect.bisect_right(self._starts, address)
        while index:
            index -= 1
            start = self._starts[index]
            for view in self._mapped[start]:
                if address + octets <= start + len(view):
                    return view[address - start : address - start + octets]
        return None

    def read(self, address: int, octets: int) -> bytes | None:
        """Whole words; `None` if one of them is not mapped at all."""
        piece = self._find(address, octets)
        if piece is not None:
            with piece:
                return bytes(piece)
        words = []
        for at in range(address, address + octets, WORD):
            found = [self._find(one, 1) for one in range(at, at + WORD)]
            if not any(found):
                return None
            words.append(bytes(piece[0] if piece else 0 for piece in found))
            for piece in found:
                if piece is not None:
                    piece.release()
        return b"".join(words)

    def write(self, address: int, words: bytes) -> int:
        """Writes words with their strobes, nine bytes each; returns the response of AXI.

        A word is written, or nothing of it.
        """
        response = OKAY
        at = address
        whole = words[::9] == b"\xff" * (len(words) // 9)
        if whole and (piece := self._find(address, len(words) // 9 * WORD)) is not None:
            with piece:
                for index in range(0, len(words), 9):
                    begin = index // 9 * WORD
                    piece[begin : begin + WORD] = words[index + 1 : index + 9]
            return OKAY
        for index in range(0, len(words), 9):
            if not self._write_word(at, words[index], words[index + 1 : index + 9]):
                response = DECERR
            at += WORD
        return response

    def _write_word(self, address: int, strobes: int, octets: bytes) -> bool:
        lanes = [lane for lane in range(WORD) if strobes >> lane & 1]
        if not lanes:
            return True
        # What is written is one run in all words that this device writes.
        first, last = lanes[0], lanes[-1]
        if lanes == list(range(first, last + 1)):
            piece = self._find(address + first, len(lanes))
            if piece is not None:
                with piece:
                    piece[:] = octets[first : last + 1]
                return True
        pieces = [self._find(address + lane, 1) for lane in lanes]
        found = all(piece is not None for piece in pieces)
        for lane, piece in zip(lanes, pieces, strict=True):
            if piece is not None:
                if found:
                    piece[0] = octets[lane]
                piece.release()
        return found
