"""Where the prefetched units of rings stand in a memory."""

from amaranth.hdl import Cat, Const, Mux, Value
from amaranth.lib import data
from amaranth.utils import exact_log2

from stagecoach.gateware.config import RnicConfig

UNIT_OCTETS = 64
"""Size of a unit of a ring."""

BASE_UNITS = 2
"""Units of prefetch memory that each QP has of its own."""

LANE_UNITS = 32
"""Units of a lane."""


class PrefetchMemory:
    """The map of the memory: room of each QP's own, and the lanes; the larger part comes first.

    Attributes
    ----------
    units: of the memory.
    address_bits: of a unit's address.
    home: whether a QP has a lane, and which.
    popped: running number of a QP's oldest unit; of this and the next unit, whether they stand
        `in_lane`. All others do, if the QP has a lane; before them are up to two where every QP
        has room.
    """

    def __init__(self, config: RnicConfig):
        base_bits = exact_log2(BASE_UNITS) + config.qp_bits
        lane_bits = exact_log2(LANE_UNITS) + exact_log2(config.prefetch_lanes)
        self._lane = range(config.prefetch_lanes)
        self._half_bits = max(base_bits, lane_bits)
        self._lanes_first = lane_bits >= base_bits
        self.units = (1 << base_bits) + (1 << lane_bits)
        self.address_bits = self._half_bits + 1
        self.home = data.StructLayout({"in_lane": 1, "lane": self._lane})
        self.popped = data.StructLayout({"number": 16, "in_lane": BASE_UNITS})

    def address(self, in_lane: Value, lane: Value, qp: Value, number: Value) -> Value:
        """Where unit `number` of a QP stands."""
        half = self._half_bits
        lane_number = Cat(number[: exact_log2(LANE_UNITS)], lane, Const(0, half))
        base_number = Cat(number[: exact_log2(BASE_UNITS)], qp, Const(0, half))
        return Cat(
            Mux(in_lane, lane_number[:half], base_number[:half]),
            ~in_lane if self._lanes_first else in_lane,
        )

    def is_in_lane(self, address: Value) -> Value:
        """Whether an address is in a lane."""
        return ~address[-1] if self._lanes_first else address[-1]

    def lane(self, address: Value) -> Value:
        """The lane of an address in one."""
        return address[exact_log2(LANE_UNITS) :][: exact_log2(len(self._lane))]
