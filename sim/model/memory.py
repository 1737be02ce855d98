"""Registered memory of the reference model: windows into buffers, named by STags."""

from dataclasses import dataclass
from enum import Flag, auto

from sim.model.errors import ErrorCode, StreamError

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
    """

    stag: int
    buffer: memoryview
    base: int = 0
    rights: Rights = Rights.ALL
    pd: int = 0
    stream: object | None = None
    valid: bool = True

    def read(self, tagged_offset: int, length: int) -> bytes:
        start = tagged_offset - self.base
        return bytes(self.buffer[start : start + length])

    def write(self, tagged_offset: int, octets: bytes) -> None:
        start = tagged_offset - self.base
        self.buffer[start : start + len(octets)] = octets


@dataclass(frozen=True)
class AccessErrors:
    """The codes by which one kind of access reports its failures."""

    invalid: ErrorCode
    not_associated: ErrorCode
    rights: ErrorCode
    bounds: ErrorCode
    wrap: ErrorCode


class MemoryTable:
    """All registered buffers of a device; endpoints may share one."""

    def __init__(self) -> None:
        self._regions: dict[int, MemoryRegion] = {}

    def add(self, region: MemoryRegion) -> None:
        if not 0 <= region.stag <= STAG_MAX:
            raise ValueError(f"STag {region.stag:#x}; 32 bits are possible")
        if region.base < 0 or region.base + len(region.buffer) >= TAGGED_OFFSET_SPAN:
            raise ValueError(
                f"base {region.base:#x} and {len(region.buffer)} octets end past 2^64 - 1"
            )
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
        pd: int,
        stream: object,
        failures: AccessErrors,
    ) -> MemoryRegion:
        """The region if the access is allowed (RFC 5041, 7.1; RFC 5040, 7.2 and 8.1.1).

        In the order: validity, association, rights, wrap, bounds. A wrapping range is also out of
        bounds, so wrap is tested first to be reported at all.
        """
        region = self.get(stag)
        if region is None:
            raise StreamError(failures.invalid, f"STag {stag:#010x} is not registered")
        if region.pd != pd or region.stream not in (None, stream):
            raise StreamError(
                failures.not_associated,
                f"STag {stag:#010x} belongs to PD {region.pd}, stream {region.stream}; "
                f"used in PD {pd} by stream {stream}",
            )
        if right not in region.rights:
            raise StreamError(
                failures.rights,
                f"STag {stag:#010x} allows {region.rights}, needed: {right}",
            )
        end = tagged_offset + length
        if end >= TAGGED_OFFSET_SPAN:
            raise StreamError(
                failures.wrap,
                f"TO {tagged_offset:#x} plus {length} octets wraps 64 bits",
            )
        limit = region.base + len(region.buffer)
        if tagged_offset < region.base or end > limit:
            raise StreamError(
                failures.bounds,
                f"TO {tagged_offset:#x} to {end:#x} of STag {stag:#010x}; "
                f"{region.base:#x} to {limit:#x} is registered",
            )
        return region
