"""What the parts of a ring fetcher tell each other."""

from amaranth.hdl import Value
from amaranth.lib import data, enum

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.queues.prefetch_memory import PrefetchMemory
from stagecoach.gateware.queues.unit_arrivals import COUNT_BITS, RUN

RING = data.StructLayout({"exists": 1, "base": 64, "log2": 4})
"""Where a ring is in host memory; it has 2^`log2` units."""


class Visit(enum.Enum, shape=2):
    """What a visit is about."""

    FETCH = 0
    DOORBELL = 1
    RESCUE = 2
    COPY = 3


def visit_layout(memory: PrefetchMemory) -> data.StructLayout:
    """A QP that is visited, and why."""
    return data.StructLayout(
        {
            "qp": memory.config.qp_bits,
            "kind": Visit,
            "claimed": 16,  # running number after the last posted unit, if the doorbell is right
            "copied": range(memory.own_units + 1),  # units of a lane that were read again
        }
    )


def found_layout(memory: PrefetchMemory) -> data.StructLayout:
    """Where the ring of a visited QP stands. Numbers are running ones, of units."""
    return data.StructLayout(
        {
            "qp": memory.config.qp_bits,
            "kind": Visit,
            "ring": RING,
            "home": memory.home,
            "popped": memory.popped,
            "failed": 1,  # a read failed
            "told": 1,  # an error told of that
            "number": 16,  # the next unit to read, or to read again
            "slot": 15,  # and where it is in the ring
            "posted": 16,  # after the last unit: as claimed, else as known
            "ahead": 16,  # units posted and not fetched
            "known": 16,  # units posted and not popped, before the doorbell
            "claim": 16,  # and with it
            "used": COUNT_BITS,  # units fetched and not popped
            "on_chip": COUNT_BITS,  # of them those that have arrived
        }
    )


def read_layout(memory: PrefetchMemory) -> data.StructLayout:
    """Units to be read with one command."""
    return data.StructLayout(
        {
            "qp": memory.config.qp_bits,
            "units": range(RUN + 1),
            "address": 64,  # in host memory
            "place": memory.address_bits,  # of the first unit in the prefetch memory
            "home": memory.home,  # the lane which that is in
            "copies": 1,  # the units had arrived before
        }
    )


def refused_layout(config: RnicConfig) -> data.StructLayout:
    """A doorbell that claims what cannot be."""
    return data.StructLayout({"qp": config.qp_bits, "index": 16})


def below(log2: Value) -> Value:
    """Return a mask of so many bits."""
    return ((1 << log2) - 1)[:15]
