"""The sizes that a device may have: the gateware has them all, the driver reads some of them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PowerOfTwo:
    """The powers of two of a range, both ends included; as text what an error says is allowed."""

    least: int
    most: int

    def __contains__(self, value: object) -> bool:
        is_one = isinstance(value, int) and value > 0 and value & (value - 1) == 0
        return is_one and self.least <= value <= self.most  # type: ignore[operator]

    def __str__(self) -> str:
        return f"a power of two from {self.least} to {self.most}"


SIZES = {
    "qps": PowerOfTwo(2, 256),
    "cqs": PowerOfTwo(2, 256),
    "stags": PowerOfTwo(16, 65536),
    "read_queue_depth": PowerOfTwo(1, 64),
    "prefetch_lanes": PowerOfTwo(2, 16),
    "pending_sends": PowerOfTwo(4, 256),
    "fpdu_store_octets": PowerOfTwo(65536, 1048576),
    "payload_buffer_octets": PowerOfTwo(1024, 65536),
    "max_burst_beats": PowerOfTwo(8, 256),  # of AXI (A3.4.1)
}
"""By name of the parameter of `gateware.config.RnicConfig`, which says what each one is."""

MTU = 1500
"""Bytes of the longest IP packet of a NIC, unless another number is given."""

MTUS = range(576, 9001)
"""Those that a NIC may have."""

MEMORY_ACCESSES = 16
"""Accesses to the memory controller of a board that may be queued."""
