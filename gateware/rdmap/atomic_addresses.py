"""The words that atomics in flight are about, and which of them is the latest on a word."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gateware.dma.bursts import WORD_BITS

ADDRESS_BITS = 64 - WORD_BITS

COMPARED_AT_ONCE = 8
"""Address bits whose comparison goes into one register."""


class AtomicAddresses(wiring.Component):
    """Keeps a word address for each operation, and looks for an earlier one that is the same.

    The table has one port that reads: a search looks at one entry per cycle, from the latest one
    to the oldest that counts, and stands still while somebody else reads. Without that it ends
    2 to `within` + 2 cycles after `start`.

    Parameters
    ----------
    operations: how many, a power of two.

    Members
    -------
    entry, address, store: keep the address of operation `entry`.
    start: In(1), look for the address of `entry`, stored in this cycle at the latest, among the
        `within` operations before it. `within` must stay until `found` or `missed`.
    word, loaded: that address, out of a register; `loaded` pulses in the cycle before it is there.
    found, missed: Out(1), one of them pulses at the end. latest: with `found`, the operation.
    select, selects: read the address of an operation. selected: that address, in the same cycle.
    """

    def __init__(self, operations: int):
        entry = range(operations)
        self._count = operations
        super().__init__(
            {
                "entry": In(entry),
                "address": In(ADDRESS_BITS),
                "store": In(1),
                "start": In(1),
                "within": In(entry),
                "word": Out(ADDRESS_BITS),
                "loaded": Out(1),
                "found": Out(1),
                "missed": Out(1),
                "latest": Out(entry),
                "select": In(entry),
                "selects": In(1),
                "selected": Out(ADDRESS_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.table = table = Memory(shape=ADDRESS_BITS, depth=self._count, init=[])
        write, read = table.write_port(), table.read_port(domain="comb")
        looked_at = Signal.like(self.entry)
        left = Signal.like(self.within)
        compared = Signal()  # `equal` is about `latest`
        equal = Signal(len(range(0, ADDRESS_BITS, COMPARED_AT_ONCE)))
        m.d.comb += [
            write.addr.eq(self.entry),
            write.data.eq(self.address),
            write.en.eq(self.store),
            read.addr.eq(Mux(self.selects, self.select, looked_at)),
            self.selected.eq(read.data),
        ]
        parts = (
            (self.word ^ read.data)[low : low + COMPARED_AT_ONCE] == 0
            for low in range(0, ADDRESS_BITS, COMPARED_AT_ONCE)
        )
        with m.FSM():
            # Waits for something to look for.
            with m.State("IDLE"):
                m.d.sync += looked_at.eq(self.entry)
                with m.If(self.start):
                    m.next = "LOAD"
            # The address is read.
            with m.State("LOAD"):
                m.d.sync += [left.eq(self.within), compared.eq(0)]
                with m.If(~self.selects):
                    m.d.comb += self.loaded.eq(1)
                    m.d.sync += [self.word.eq(read.data), looked_at.eq(looked_at - 1)]
                    m.next = "SEARCH"
            # One entry is read, the one behind it is judged.
            with m.State("SEARCH"):
                with m.If(~self.selects):
                    m.d.comb += [
                        self.found.eq(compared & equal.all()),
                        self.missed.eq((left == 0) & ~(compared & equal.all())),
                    ]
                    m.d.sync += [
                        equal.eq(Cat(parts)),
                        self.latest.eq(looked_at),
                        looked_at.eq(looked_at - 1),
                        compared.eq(left != 0),
                        left.eq(left - 1),
                    ]
                    with m.If(self.found | self.missed):
                        m.next = "IDLE"
        return m
