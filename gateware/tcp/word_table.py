"""A table of wide rows in one block RAM: a word of a row in a cycle."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.memories import NO_COLLISION

WORD_BITS = 36
"""Of a block RAM that is 512 deep: a wider row would take as many of them as words, for all that
they are nearly empty."""


class WordTable(wiring.Component):
    """Keeps a row for each address, written and read word by word.

    `write` for a cycle: the row is written in as many cycles after it as it has words, and `writes`
    is high; the next pulse comes when it is low. `fetch` for a cycle, while `writes` is low;
    `read_address` stays for as many cycles as there are words. Bits 36n to 36n + 35 of `found` are
    good n + 2 cycles after `fetch`, and stay until as long after the next one. Nothing waits. A row
    that was never written has zeros, or is what it was before a reset.

    Parameters
    ----------
    layout: of a row, of two words or more. depth: rows, 2 or more.

    Members
    -------
    write, address, row, writes, fetch, read_address, found: as said.
    """

    def __init__(self, layout: data.StructLayout, depth: int):
        if layout.size <= WORD_BITS:
            raise ValueError(f"WordTable layout has {layout.size} bits; allowed: from 37 on")
        if depth < 2:
            raise ValueError(f"WordTable depth is {depth!r}; allowed: 2 and more")
        self._words = -(-layout.size // WORD_BITS)
        self._depth = depth
        bits = (depth - 1).bit_length()
        super().__init__(
            {
                "write": In(1),
                "address": In(bits),
                "row": In(layout),
                "writes": Out(1),
                "fetch": In(1),
                "read_address": In(bits),
                "found": Out(layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        words = self._words
        place_bits = (words - 1).bit_length()
        # `fetch` waits for what is written.
        m.submodules.memory = table = memory.Memory(
            shape=WORD_BITS, depth=self._depth << place_bits, init=[], attrs=NO_COLLISION
        )
        read, write = table.read_port(), table.write_port()

        left = Signal(WORD_BITS * words)  # of the row that is written
        written, to = Signal(range(words)), Signal.like(self.address)
        m.d.comb += [
            write.addr.eq(Cat(written, to)),
            write.data.eq(left),
            write.en.eq(self.writes),
        ]
        with m.If(self.write):
            m.d.sync += [
                left.eq(Value.cast(self.row)),
                to.eq(self.address),
                written.eq(0),
                self.writes.eq(1),
            ]
        with m.Elif(self.writes):
            m.d.sync += [
                left.eq(left >> WORD_BITS),
                written.eq(written + 1),
                self.writes.eq(written != words - 1),
            ]

        place = Signal(range(words))  # of the word that is read
        kept = Signal(WORD_BITS * words)
        comes = Signal(words)  # which word is at the port
        m.d.sync += comes.eq(Cat(self.fetch, comes))
        for number in range(words):
            with m.If(comes[number]):
                m.d.sync += kept.word_select(number, WORD_BITS).eq(read.data)
                if number < words - 1:
                    m.d.comb += place.eq(number + 1)
        m.d.comb += [
            read.addr.eq(Cat(place, self.read_address)),
            Value.cast(self.found).eq(kept),
        ]
        return m
