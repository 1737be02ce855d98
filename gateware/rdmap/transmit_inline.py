"""Hands RDMAP headers to the gatherer as payload."""

from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from gateware.rdmap.headers import TERMINATE_HEADER_OCTETS
from gateware.stream_fifo import StreamFifo

WORD_OCTETS = 8
INLINE_WORDS = -(-TERMINATE_HEADER_OCTETS // WORD_OCTETS)
"""Words of the longest RDMAP header."""


class TransmitInline(wiring.Component):
    """Writes the octets of an RDMAP header as inline words of the gatherer, one per cycle.

    Members
    -------
    start: In(1), write `words` words of `octets`, which hold until `done`; only while `room`.
    octets: In, octet i in bits [8i+7:8i].
    words: In, 1 to 7.
    room: Out(1), there is room for the longest header.
    done: Out(1), the last word is written in this cycle.
    o: Out(stream 64), the words.
    """

    DEPTH = 16

    start: In(1)
    octets: In(64 * INLINE_WORDS)
    words: In(range(INLINE_WORDS + 1))
    room: Out(1)
    done: Out(1)
    o: Out(stream.Signature(64))

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        m.submodules.fifo = fifo = StreamFifo(64, self.DEPTH)
        wiring.connect(m, fifo.o, wiring.flipped(self.o))

        writing = Signal()
        number = Signal(range(INLINE_WORDS))
        level = Signal(range(self.DEPTH + 1))
        m.d.comb += [
            fifo.i.valid.eq(writing),
            fifo.i.payload.eq(self.octets.word_select(number, 64)),
            self.done.eq(writing & (number == self.words - 1)),
        ]
        m.d.sync += [
            level.eq(level + writing - (self.o.valid & self.o.ready)),
            self.room.eq(level <= self.DEPTH - INLINE_WORDS),
        ]
        started = Signal()
        m.d.sync += started.eq(self.start)
        with m.If(started):
            m.d.sync += [writing.eq(1), number.eq(0)]
        with m.Elif(writing):
            m.d.sync += [number.eq(number + 1), writing.eq(~self.done)]
        return m
