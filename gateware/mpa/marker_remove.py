"""Takes Markers out of received FPDUs and checks them (RFC 5044, 4.2, 4.3 and 8)."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.mpa.layouts import FPDU_WORD, MARKER

POINTER_BITS = 14
"""FPDUPTR in units of 4 octets: its low two bits count as zero (RFC 5044, 4.2)."""


class MarkerRemover(wiring.Component):
    """Closes the gaps that Markers leave, so that every FPDU has its place as if without them.

    One word per cycle in, at most one out, whatever Markers there are. The last word of an FPDU
    comes out two cycles after that word which had `final`. Without Markers all words take two
    cycles.

    Members
    -------
    clear: forget what is there; the next word is the first one of an FPDU, and comes two cycles
        later at the earliest.
    valid, word: the words of FPDUs.
    o_valid, o: the same without Markers; what is after the end of the FPDU in its last word is
        meaningless.
    wrong: with the last word: a Marker of this FPDU does not point to its ULPDU_Length.
    """

    clear: In(1)
    valid: In(1)
    word: In(FPDU_WORD)
    o_valid: Out(1)
    o: Out(data.StructLayout({"data": 64, "first": 1, "last": 1}))
    wrong: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._compact(m)
        self._check(m)
        return m

    def _compact(self, m: Module) -> None:
        # At most two units wait. Two, or the last ones of an FPDU, leave in the next cycle, one
        # when another joins it. So no cycle has two words to give away, also if the last word of an
        # FPDU overflows: the first word of the next one only begins to wait a cycle later.
        waiting = Signal(data.ArrayLayout(32, 2))
        complete = Signal()
        ended = Signal()  # and it is the last one
        single = Signal()
        fresh = Signal(init=1)
        both = Signal()  # of the word's units count
        leaves = Signal()
        lower, upper = self.word.data[:32], self.word.data[32:]
        leading = self.word.markers[0]
        m.d.comb += [
            both.eq(~(self.word.half | self.word.markers.any())),
            leaves.eq(complete | (single & self.valid & both)),
        ]
        m.d.sync += [ended.eq(self.valid & self.word.final), complete.eq(0)]
        with m.If(self.valid):
            m.d.sync += [
                complete.eq(self.word.final | (both ^ single)),
                single.eq(~self.word.final & ~(both ^ single)),
                waiting[1].eq(Mux(single & ~leading, lower, upper)),
            ]
            with m.If(both | ~single):
                m.d.sync += waiting[0].eq(Mux(single | leading, upper, lower))
        with m.If(leaves):
            m.d.sync += fresh.eq(ended)
        m.d.sync += [
            self.o_valid.eq(leaves),
            self.o.data.eq(Cat(waiting[0], Mux(complete, waiting[1], lower))),
            self.o.first.eq(fresh),
            self.o.last.eq(ended),
        ]
        with m.If(self.clear):
            m.d.sync += [
                complete.eq(0),
                ended.eq(0),
                single.eq(0),
                fresh.eq(1),
                self.o_valid.eq(0),
            ]

    def _check(self, m: Module) -> None:
        distance = Signal(POINTER_BITS)  # from ULPDU_Length to the word
        markers = self.word.markers
        marker = Signal(MARKER)
        m.d.comb += marker.eq(Mux(markers[0], self.word.data[:32], self.word.data[32:]))
        found = Signal()
        pointer = Signal(POINTER_BITS)
        expected = Signal(POINTER_BITS)
        first = Signal()
        cleared = Signal()
        m.d.sync += [
            cleared.eq(self.clear),
            found.eq(self.valid & markers.any()),
            first.eq(self.valid & self.word.first),
            pointer.eq(Cat(marker.fpduptr_low, marker.fpduptr_high)[2:]),
            expected.eq(distance + markers[1]),
            self.wrong.eq((self.wrong & ~first) | (found & (pointer != expected))),
        ]
        with m.If(self.valid):
            # A Marker that stands directly before the FPDU does not count.
            m.d.sync += distance.eq(distance + Mux(self.word.first & markers[0], 1, 2))
        with m.If(cleared | (self.valid & self.word.final)):
            m.d.sync += distance.eq(0)
