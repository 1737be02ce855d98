"""The words that atomics in flight are about, and which of them is the latest on a word."""

from functools import reduce
from operator import xor

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.dma.bursts import WORD_BITS

ADDRESS_BITS = 64 - WORD_BITS

COMPARED_AT_ONCE = 8
"""Address bits whose comparison goes into one register."""

TURN_BITS = 3
"""Of the turns of the table that a number in a chain tells apart."""


class AtomicAddresses(wiring.Component):
    """Keeps a word address for each operation, and looks for an earlier one that is the same.

    A search follows a chain, from the latest operation to the oldest that counts. Each address
    belongs to one of `operations` buckets; a bucket has its latest operation, and that has the one
    before it in the same bucket. The table has one port that reads, out of a register into one: a
    search looks at one entry every two cycles, and stands still while another block reads. Without
    that it ends 6 cycles after `start`, and 2 later for each entry that it has to pass: those of
    other addresses in the bucket. So it ends after 6 + 2 * `within` cycles at most.

    Nothing is taken out of a bucket. The number that a bucket or an entry has may be that of an
    operation that does not count any more. Numbers tell 2^`TURN_BITS` turns of the table apart and
    then wrap: in the place of an older operation may be one that counts. A chain then goes on in
    another bucket, where the address is not; it ends all the same, since each entry that is looked
    at is older than the one before it.

    Parameters
    ----------
    operations: how many, a power of two.

    Members
    -------
    take: In(1), `word` becomes `address`; it stays until the next `take` or `recall`.
    entry, within: of the operation that `start` is about.
    start: In(1), with a `take`: `address` is that of operation `entry`; look for it among the
        `within` operations before it. No `take` comes until the cycle after `found` or `missed`,
        and every operation has a `start` of its own, in the order of the entries.
    word: Out, out of a register.
    found, missed: Out(1), one of them pulses at the end. In the cycle after it each may be high,
        and means nothing. latest: with `found`, the operation.
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
        bits = len(self.entry)
        serial = bits + TURN_BITS
        row = data.StructLayout({"word": ADDRESS_BITS, "before": serial})
        m.submodules.table = table = Memory(shape=row, depth=self._count, init=[])
        m.submodules.buckets = buckets = Memory(shape=serial, depth=self._count, init=[])
        write, read = table.write_port(), table.read_port(domain="comb")
        bucket_write, bucket_read = buckets.write_port(), buckets.read_port(domain="comb")
        searches = Signal()
        began = Signal()  # a cycle ago
        looks = Signal()  # at an entry for the search
        own = Signal(serial)
        within = Signal.like(self.within)
        bucket = Signal.like(self.entry)
        candidate = Signal(serial)  # what is looked at next
        waits = Signal()  # there is one
        least = Signal(serial)  # operations that are between it and the searching one
        m.d.comb += [
            bucket_read.addr.eq(bucket),
            bucket_write.addr.eq(bucket),
            bucket_write.data.eq(own),
            bucket_write.en.eq(began),
            write.addr.eq(own),
            write.data.word.eq(self.word),
            write.data.before.eq(bucket_read.data),
            write.en.eq(began),
            looks.eq(searches & waits & ~self.selects),
        ]
        with m.If(self.recall):
            m.d.sync += self.word.eq(self.selected)
        with m.Elif(self.take):
            m.d.sync += self.word.eq(self.address)
        with m.If(self.take):
            parts = (self.address[low : low + bits] for low in range(0, ADDRESS_BITS, bits))
            m.d.sync += [
                own[:bits].eq(self.entry),
                within.eq(self.within),
                bucket.eq(reduce(xor, parts)),
            ]
        m.d.sync += began.eq(self.start)
        with m.If(self.start & (self.entry == 0)):
            m.d.sync += own[bits:].eq(own[bits:] + 1)
        with m.If(self.start):
            m.d.sync += searches.eq(1)
        with m.Elif(self.found | self.missed):
            m.d.sync += searches.eq(0)

        # What is looked at: its number and whether it counts or comes after all that do. Then its
        # address and the one before it, then the comparison.
        number = [Signal.like(self.entry, name=f"number_{step}") for step in range(3)]
        looked = Signal()
        counts = Signal(2)
        ends = Signal(2)
        age = Signal(serial)  # operations between the first of them and the searching one
        right = Signal()
        m.d.comb += right.eq((age >= least) & (age < within))
        with m.If(began):
            m.d.sync += [candidate.eq(bucket_read.data), waits.eq(1), least.eq(0)]
        with m.Elif(self.start | looks):
            m.d.sync += waits.eq(0)
        with m.Elif(looked):
            m.d.sync += [candidate.eq(read.data.before), waits.eq(right), least.eq(age + 1)]
        equal = Signal(len(range(0, ADDRESS_BITS, COMPARED_AT_ONCE)))
        differences = (
            (self.word ^ self.selected)[low : low + COMPARED_AT_ONCE] == 0
            for low in range(0, ADDRESS_BITS, COMPARED_AT_ONCE)
        )
        m.d.comb += read.addr.eq(number[0])
        m.d.sync += [
            number[0].eq(Mux(looks, candidate, self.select)),
            number[1].eq(number[0]),
            number[2].eq(number[1]),
            age.eq(own - candidate - 1),
            looked.eq(looks),
            counts.eq(Mux(searches, Cat(looked & right, counts), 0)),
            ends.eq(Mux(searches, Cat(looked & ~right, ends), 0)),
            self.selected.eq(read.data.word),
            equal.eq(Cat(differences)),
            self.found.eq(searches & counts[1] & equal.all()),
            self.missed.eq(searches & ends[1]),
            self.latest.eq(number[2]),
        ]
        return m
