"""What a wire does to frames: rate, delay, loss, duplication, reordering, corruption.

What happens to a frame is a function of seed, direction and frame number alone, so that a run that
sends the same frames meets the same fates.
"""

import enum
import hashlib
import math
import struct
from dataclasses import dataclass, fields
from fractions import Fraction

PS_PER_US = 10**6
PS_PER_NS = 1000

MINIMUM_FRAME = 60
"""Octets of a frame without FCS (IEEE 802.3, 4A.4.2); a shorter one is padded on the wire."""

OVERHEAD = 24
"""Bytes that a frame takes on the wire besides its own: preamble and start delimiter (8), FCS (4)
and the gap to the next one (12)."""

MAXIMUM_LATE_FRAMES = 4
"""A reordered frame comes after up to so many frames of its length that were sent later."""

Number = Fraction | float | int

LIMITS: dict[str, tuple[Number, Number]] = {
    "loss": (0, 1),
    "duplicate": (0, 1),
    "reorder": (0, 1),
    "corrupt": (0, 1),
    "delay_us": (0, 10_000_000),
    "rate_gbps": (0.001, 1000),
    "seed": (0, (1 << 64) - 1),
}
"""The least and the largest value of each impairment."""

_DRAW = 1 << 64


def is_allowed(name: str, value: Number) -> bool:
    """Whether an impairment can have a value."""
    low, high = LIMITS[name]
    # The float 0.001 is more than a thousandth.
    return bool(Fraction(str(low)) <= value <= high)


class Direction(enum.IntEnum):
    """Of a frame, as the device sees it."""

    TX = 0
    RX = 1


@dataclass(frozen=True)
class Fate:
    """What happens to one frame.

    late_frames: 0, or how many frames of its length overtake it. flipped: the bit that arrives
    wrong, counted from bit 0 of the first byte, or `None`.
    """

    lost: bool
    duplicated: bool
    late_frames: int
    flipped: int | None


@dataclass(frozen=True)
class Impairments:
    """Those of one direction of a wire. Raises `ValueError` for values outside of `LIMITS`.

    loss, duplicate, reorder, corrupt: the probability of each, for each frame. delay_us: from the
    end of a frame at the sender to its arrival, in microseconds. rate_gbps: of the wire, in
    Gbit/s. seed: of all that is drawn. Fractions are kept exactly.
    """

    loss: Number = 0
    duplicate: Number = 0
    reorder: Number = 0
    corrupt: Number = 0
    delay_us: Number = 0
    rate_gbps: Number = 10
    seed: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not is_allowed(field.name, value):
                low, high = LIMITS[field.name]
                raise ValueError(f"{field.name} is {value}; allowed: {low} to {high}")

    @property
    def delay_ps(self) -> int:
        """The delay in picoseconds."""
        return round(self.delay_us * PS_PER_US)

    def wire_time_ps(self, octets: int) -> int:
        """How long a frame of so many bytes takes, in picoseconds: at 10 Gbit/s (n + 24)/8 cycles
        of 6.4 ns. `octets` are those of the frame without FCS. Rounded up.
        """
        bits = 8 * (max(octets, MINIMUM_FRAME) + OVERHEAD)
        return math.ceil(bits * PS_PER_NS / Fraction(self.rate_gbps))

    def fate(self, direction: Direction, number: int, octets: int) -> Fate:
        """What happens to the frame `number` (from 0) of a direction, which has `octets` bytes."""
        place = struct.pack("<QBQ", self.seed, direction, number)
        draws = struct.unpack("<6Q", hashlib.blake2b(place, digest_size=48).digest())
        loss, duplicate, reorder, corrupt, late, bit = draws
        return Fate(
            lost=loss < self.loss * _DRAW,
            duplicated=duplicate < self.duplicate * _DRAW,
            late_frames=1 + late % MAXIMUM_LATE_FRAMES if reorder < self.reorder * _DRAW else 0,
            flipped=bit % (8 * octets) if corrupt < self.corrupt * _DRAW else None,
        )
