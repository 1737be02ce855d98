"""Configurations of the device that boards use."""

from gateware.config import RnicConfig

SMALL = RnicConfig(
    qps=8,
    cqs=8,
    stags=64,
    read_queue_depth=4,
    prefetch_lanes=2,
    pending_sends=16,
    payload_buffer_octets=2048,
)
"""Fits an FPGA of 44,000 LUT4."""
