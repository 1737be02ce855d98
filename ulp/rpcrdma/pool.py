"""Memory of a server from which it writes, and into which it reads: registered once and reused."""

import ctypes
from dataclasses import dataclass

from stagecoach.host_driver import MR, PD, SGE, AccessFlags

SMALLEST_OCTETS = 4096
KEPT_OCTETS = 4 << 20
"""Bytes that stay registered while nobody uses them."""


def region_octets(octets: int) -> int:
    """Of the region that is taken for so many bytes."""
    return max(SMALLEST_OCTETS, 1 << (octets - 1).bit_length()) if octets else 0


@dataclass(eq=False)
class Region:
    """Memory that is in use: `view` has as many bytes as were asked for."""

    mr: MR
    buffer: bytearray
    view: memoryview

    def element(self, offset: int = 0, length: int | None = None) -> SGE:
        """An element of the bytes."""
        octets = len(self.view) - offset if length is None else length
        return SGE(self.mr.addr + offset, octets, self.mr.lkey)

    def find(self, data: memoryview) -> SGE | None:
        """The element for bytes that are in this region, `None` for others."""
        if data.readonly or not len(data):
            return None
        address = ctypes.addressof(ctypes.c_char.from_buffer(data))
        offset = address - ctypes.addressof(ctypes.c_char.from_buffer(self.buffer))
        if not 0 <= offset <= len(self.view) - len(data):
            return None
        return self.element(offset, len(data))


class Pool:
    """Regions of powers of two of bytes, which the peer cannot reach.

    Parameters
    ----------
    pd: the Protection Domain, whose end is also theirs.
    """

    def __init__(self, pd: PD):
        self._pd = pd
        self._free: dict[int, list[Region]] = {}
        self._kept = 0

    def take(self, octets: int) -> Region:
        """A region with so many bytes, 1 or more; they are not zero."""
        size = region_octets(octets)
        if free := self._free.get(size):
            region = free.pop()
            self._kept -= size
        else:
            buffer = bytearray(size)
            mr = MR(self._pd, buffer, AccessFlags.LOCAL_WRITE)
            region = Region(mr, buffer, memoryview(buffer))
        region.view = memoryview(region.buffer)[:octets]
        return region

    def give(self, region: Region) -> None:
        """Takes a region back; nobody may use its bytes any more."""
        size = len(region.buffer)
        if self._kept + size > KEPT_OCTETS:
            region.mr.close()
            return
        self._kept += size
        self._free.setdefault(size, []).append(region)
