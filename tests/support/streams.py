"""Where tests of blocks find the models of streams; they are in `sim/cosim/streams.py`."""

from stagecoach.sim.cosim.streams import (
    CLOCK_PERIOD_NS,
    StreamMonitor,
    StreamSink,
    StreamSource,
    active_cycles,
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
    width_of,
)

__all__ = [
    "CLOCK_PERIOD_NS",
    "StreamMonitor",
    "StreamSink",
    "StreamSource",
    "active_cycles",
    "pack",
    "seeded_random",
    "start_clock_and_reset",
    "unpack",
    "width_of",
]
