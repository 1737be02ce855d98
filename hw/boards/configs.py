"""Configurations of the device that boards use."""

from stagecoach.gateware.config import RnicConfig

SMALL = RnicConfig(
    qps=8,
    cqs=8,
    stags=64,
    # With fewer, the queues of all QPs together are so small that yosys makes them of LUTs.
    read_queue_depth=8,
    prefetch_lanes=2,
    pending_sends=16,
    payload_buffer_octets=2048,
)
"""Fits an FPGA of 44,000 LUT4."""
