"""Registered memory of the reference model: windows into buffers, named by STags."""

from dataclasses import dataclass
from enum import Flag, auto

from stagecoach.sim.model.checks import (
    INVALIDATE_ASSOCIATED,
    INVALIDATE_UNSHARED,
    INVALIDATE_VALID,
    AccessChecks,
)

STAG_MAX = 2**32 - 1
TAGGED_OFFSET_SPAN = 2**64


class Rights(Flag):
    """What may be done with a registered buffer."""

    NONE = 0
    LOCAL_WRITE = auto()
    REMOTE_READ = auto()
    REMOTE_WRITE = auto()
    ALL = LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE


@dataclass
class MemoryRegion:
    """A buffer whose octet 0 has the Tagged Offset ``base``.

    ``stream`` limits the STag to the endpoint of that name; ``None`` means any stream of the PD.
    ``shared`` says that several streams use it, so that none of their peers may invalidate it
    (RFC 5040, 8.1.1 (7)). ``address`` is that of octet 0, whose alignment Atomic Operations need.
    """

    stag: int
    buffer: memoryview
    base: int = 0
    rights: Rights = Rights.ALL
    pd: int = 0
    stream: object | None = None
    shared: bool = False
    valid: bool = True
    address: int = 0

    def address_of(self, tagged_offset: int) -> int:
        """The address of the octet with a Tagged Offset of the region."""
        return self.address + tagged_offset - self.base

    def read(self, tagged_offset: int, length: int) -> bytes:
        start = tagged_offset - self.base
        return bytes(self.buffer[start : start + length])

    def write(self, tagged_offset: int, octets: bytes) -> None:
        start = tagged_offset - self.base
        self.buffer[start : start + len(octets)] = octets


@dataclass(frozen=True)
class Accessor:
    """Who accesses memory: a stream and its Protection Domain."""

    pd: int
    stream: object

    def owns(self, region: MemoryRegion) -> bool:
        """Whether the STag is associated with the stream (RFC 5040, 8.1.1 (1), (2))."""
        return region.pd == self.pd and region.stream in (None, self.stream)


class MemoryTable:
    """All registered buffers of a device; endpoints may share one."""

    def __init__(self) -> None:
        self._regions: dict[int, MemoryRegion] = {}

    def add(self, region: MemoryRegion) -> None:
        if not 0 <= region.stag <= STAG_MAX:
            raise ValueError(f"STag {region.stag:#x}; 32 bits are possible")
        if region.base < 0 or region.base + len(region.buffer) > TAGGED_OFFSET_SPAN:
            raise ValueError(f"base {region.base:#x} and {len(region.buffer)} bytes end past 2^64")
        self._regions[region.stag] = region

    def remove(self, stag: int) -> None:
        del self._regions[stag]

    def get(self, stag: int) -> MemoryRegion | None:
        """The region of a valid STag."""
        region = self._regions.get(stag)
        return region if region is not None and region.valid else None

    def check(
        self,
        stag: int,
        tagged_offset: int,
        length: int,
        *,
        right: Rights,
        accessor: Accessor,
        checks: AccessChecks,
    ) -> MemoryRegion:
        """The region if the access is allowed (RFC 5041, 7.1; RFC 5040, 7.2 and 8.1.1).

        Raises what the first failing one of ``checks`` says.
        """
        region = self.get(stag)
        if region is None:
            raise checks.valid.failed(f"STag {stag:#010x} is not registered")
        if not accessor.owns(region):
            raise checks.associated.failed(
                f"STag {stag:#010x} belongs to PD {region.pd}, stream {region.stream}; "
                f"used in PD {accessor.pd} by stream {accessor.stream}"
            )
        if right not in region.rights:
            raise checks.rights.failed(f"STag {stag:#010x} allows {region.rights}, needed: {right}")
        end = tagged_offset + length
        if end >= TAGGED_OFFSET_SPAN:
            raise checks.wrap.failed(f"TO {tagged_offset:#x} plus {length} bytes wraps 64 bits")
        limit = region.base + len(region.buffer)
        if tagged_offset < region.base or end > limit:
            raise checks.bounds.failed(
                f"TO {tagged_offset:#x} to {end:#x} of STag {stag:#010x}; "
                f"{region.base:#x} to {limit:#x} is registered"
            )
        return region

    def check_invalidate(self, stag: int, accessor: Accessor) -> MemoryRegion:
        """The region if the Remote Peer may invalidate its STag (RFC 5040, 5.3 and 7.2)."""
        region = self.get(stag)
        if region is None:
            raise INVALIDATE_VALID.failed(f"STag {stag:#010x} is not registered")
        if not accessor.owns(region):
            raise INVALIDATE_ASSOCIATED.failed(f"STag {stag:#010x} belongs to another PD or stream")
        if region.shared:
            raise INVALIDATE_UNSHARED.failed(f"STag {stag:#010x} is shared by several streams")
        return region
