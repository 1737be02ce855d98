"""The words that atomics in flight are about, and which of them is the latest on a word."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.dma.bursts import WORD_BITS

ADDRESS_BITS = 64 - WORD_BITS

COMPARED_AT_ONCE = 8
"""Address bits whose comparison goes into one register."""


class AtomicAddresses(wiring.Component):
    """Keeps a word address for each operation, and looks for an earlier one that is the same.

    The table has one port that reads, out of a register into one: a search looks at one entry per
    cycle, from the latest one to the oldest that counts, and stands still while somebody else
    reads. Without that it ends 5 to `within` + 5 cycles after `start`.

    Parameters
    ----------
    operations: how many, a power of two.

    Members
    -------
    take: In(1), `word` becomes `address`; it stays until the next `take` or `recall`.
    entry, within: of the operation that `start` is about.
    start: In(1), with a `take`: `address` is that of operation `entry`; look for it among the
        `within` operations before it. No `take` comes until `found` or `missed`.
    word: Out, out of a register.
    found, missed: Out(1), one of them pulses at the end, and means nothing else. latest: with
        `found`, the operation.
    select: In, an operation. selects: In(1), read its address, even if a search wants the port.
    selected: its address, two cycles later.
    recall: In(1), `word` becomes `selected`.
    """

    def __init__(self, operations: int):
        entry = range(operations)
        self._count = operations
        super().__init__(
            {
                "take": In(1),
                "entry": In(entry),
                "address": In(ADDRESS_BITS),
                "within": In(entry),
                "start": In(1),
                "word": Out(ADDRESS_BITS),
                "found": Out(1),
                "missed": Out(1),
                "latest": Out(entry),
                "select": In(entry),
                "selects": In(1),
                "selected": Out(ADDRESS_BITS),
                "recall": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.table = table = Memory(shape=ADDRESS_BITS, depth=self._count, init=[])
        write, read = table.write_port(), table.read_port(domain="comb")
        searches = Signal()
        looks = Signal()  # at an entry for the search
        own = Signal.like(self.entry)
        looked_at = Signal.like(self.entry)
        left = Signal.like(self.within)
        m.d.comb += [
            write.addr.eq(own),
            write.data.eq(self.word),
            # Again and again: a pulse would be one register more.
            write.en.eq(searches),
            looks.eq(searches & ~self.selects),
        ]
        with m.If(self.recall):
            m.d.sync += self.word.eq(self.selected)
        with m.Elif(self.take):
            m.d.sync += self.word.eq(self.address)
        with m.If(self.take):
            m.d.sync += [
                own.eq(self.entry),
                looked_at.eq(self.entry - 1),
                left.eq(self.within),
            ]
        with m.Elif(looks):
            m.d.sync += [looked_at.eq(looked_at - 1), left.eq(left - 1)]
        with m.If(self.start):
            m.d.sync += searches.eq(1)
        with m.Elif(self.found | self.missed):
            m.d.sync += searches.eq(0)

        # What is looked at: its number and whether it counts or is behind all that do. Then its
        # address, then the comparison.
        number = [Signal.like(self.entry, name=f"number_{step}") for step in range(3)]
        counts, ends = Signal(3), Signal(3)
        equal = Signal(len(range(0, ADDRESS_BITS, COMPARED_AT_ONCE)))
        parts = (
            (self.word ^ self.selected)[low : low + COMPARED_AT_ONCE] == 0
            for low in range(0, ADDRESS_BITS, COMPARED_AT_ONCE)
        )
        m.d.comb += read.addr.eq(number[0])
        m.d.sync += [
            number[0].eq(Mux(looks, looked_at, self.select)),
            number[1].eq(number[0]),
            number[2].eq(number[1]),
            counts.eq(Mux(searches, Cat(looks & (left != 0), counts), 0)),
            ends.eq(Mux(searches, Cat(looks & (left == 0), ends), 0)),
            self.selected.eq(read.data),
            equal.eq(Cat(parts)),
            self.found.eq(searches & counts[2] & equal.all()),
            self.missed.eq(searches & ends[2]),
            self.latest.eq(number[2]),
        ]
        return m
