"""Where the prefetched units of rings stand in a memory."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Mux, Value
from amaranth.lib import data
from amaranth.utils import exact_log2

from stagecoach.gateware.config import RnicConfig

UNIT_OCTETS = 64
"""Size of a unit of a ring."""

LANE_UNITS = 32
"""Units of a lane."""


@dataclass(frozen=True)
class PrefetchMemory:
    """The map of the memory: room of each QP's own, and the lanes; the larger part comes first.

    Parameters
    ----------
    config: sizes of the device.
    own_units: units for which each QP has room of its own, a power of two from 2 on.
    """

    config: RnicConfig
    own_units: int

    def __post_init__(self) -> None:
        if self.own_units < 2 or self.own_units & (self.own_units - 1):
            raise ValueError(f"own_units is {self.own_units}; allowed: a power of two from 2 on")

    @property
    def _own_bits(self) -> int:
        """Width of a unit's address in the room of the QPs' own."""
        return exact_log2(self.own_units) + self.config.qp_bits

    @property
    def _lane_bits(self) -> int:
        """Width of a unit's address in the lanes."""
        return exact_log2(LANE_UNITS) + exact_log2(self.config.prefetch_lanes)

    @property
    def _lanes_first(self) -> bool:
        return self._lane_bits >= self._own_bits

    @property
    def parts(self) -> tuple[int, int]:
        """Units of the first and of the second part. The highest bit of an address says which."""
        larger, smaller = sorted((1 << self._own_bits, 1 << self._lane_bits), reverse=True)
        return larger, smaller

    @property
    def address_bits(self) -> int:
        """Width of a unit's address."""
        return max(self._own_bits, self._lane_bits) + 1

    @property
    def home(self) -> data.StructLayout:
        """Whether a QP has a lane, and which."""
        return data.StructLayout({"in_lane": 1, "lane": range(self.config.prefetch_lanes)})

    @property
    def popped(self) -> data.StructLayout:
        """Running number of a QP's oldest unit; of this and the next units, which are `in_lane`.

        There are `own_units` bits. All later units are in the lane, if the QP has one.
        """
        return data.StructLayout({"number": 16, "in_lane": self.own_units})

    def address(self, in_lane: Value, lane: Value, qp: Value, number: Value) -> Value:
        """Where unit `number` of a QP stands."""
        half = self.address_bits - 1
        lane_number = Cat(number[: exact_log2(LANE_UNITS)], lane, Const(0, half))
        own_number = Cat(number[: exact_log2(self.own_units)], qp, Const(0, half))
        return Cat(
            Mux(in_lane, lane_number[:half], own_number[:half]),
            ~in_lane if self._lanes_first else in_lane,
        )

    def is_in_lane(self, address: Value) -> Value:
        """Whether an address is in a lane."""
        return ~address[-1] if self._lanes_first else address[-1]

    def lane(self, address: Value) -> Value:
        """The lane of an address in one."""
        return address[exact_log2(LANE_UNITS) :][: exact_log2(self.config.prefetch_lanes)]
