"""The atomics in flight: what is remembered of each, and how far each is."""

from typing import Any

from amaranth import unsigned
from amaranth.hdl import Module, Signal
from amaranth.lib import data, enum
from amaranth.lib.memory import Memory

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import OPERANDS
from stagecoach.gateware.rdmap.atomic.addresses import AtomicAddresses


class AtomicStatus(enum.Enum, shape=unsigned(2)):
    """How an operation ended."""

    DONE = 0
    READ_ERROR = 1  # nothing was changed
    WRITE_ERROR = 2  # it is not known whether memory was changed


class AtomicOperations:
    """Operations pass four stages in the order in which they came.

    Each stage counts them, mod twice `count`; the low bits are the entry in the tables.
    """

    def __init__(self, m: Module, config: RnicConfig, count: int) -> None:
        def table(name: str, shape: Any) -> Memory:
            """Distributed RAM with an entry for each operation."""
            m.submodules[name] = memory = Memory(shape=shape, depth=count, init=[])
            return memory

        self.count = count
        entry, number = range(count), range(2 * count)
        self.accepted, self.computed, self.settled, self.answered = (
            Signal(number, name=name) for name in ("accepted", "computed", "settled", "answered")
        )
        m.submodules.addresses = self.addresses = AtomicAddresses(count)
        self.operands = table("operands", OPERANDS)
        self.qps = table("qps", config.qp_bits)
        # The latest one on its word of the `within` operations before it, those that may still
        # write when it comes; `within` is 0 if there is none.
        earlier = data.StructLayout({"latest": entry, "within": entry})
        self.earlier = table("earlier", earlier)
        # What it did; `stored` if the word then has a value of the device, which `writer` wrote.
        self.outcome = data.StructLayout(
            {"wrote": 1, "read_failed": 1, "stored": 1, "writer": number}
        )
        self.outcomes = table("outcomes", self.outcome)
        self.results = table("results", 64)
        self.originals = table("originals", 64)
        self.statuses = table("statuses", AtomicStatus)

        # The write failed whose value the one that is to be settled returned, from when that is
        # known until it is settled; it starts over, when nothing else is under way.
        self.failed_under = Signal()
        self.again = Signal()
        # It was computed again; one is settled: pulses.
        self.recomputed = Signal()
        self.settles = Signal()
        # Some write responses were not looked at; those that have not come.
        self.responses_wait = Signal()
        self.responses_due = Signal(range(count + 1))
