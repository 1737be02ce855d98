"""From a memory to a stream: words are fetched before their reader asks for them."""

from amaranth import Module, ShapeLike, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

WORDS_AHEAD = 3
"""Words between the memory and the reader."""


class ReadAhead(wiring.Component):
    """Fetches words of a memory while there are some, and has them wait for their reader.

    One word per cycle, 3 cycles from `fetch` to `o`. If the reader takes nothing, 3 words wait: at
    `o`, in the register before it, and at the memory's output, which keeps what was fetched last.
    So nothing is multiplexed: each place is loaded when the next one takes what it has, and
    `o.ready` enables all three, and the memory's port.

    Parameters
    ----------
    shape: a word.

    Members
    -------
    there: the caller has a word, at the address that the memory's port has. fetch: that is taken,
        and enables the port.
    word: at the memory's port, a cycle later, and until the next one is fetched. o: the words, in
        order.
    """

    def __init__(self, shape: ShapeLike):
        self._shape = shape
        super().__init__(
            {
                "there": In(1),
                "fetch": Out(1),
                "word": In(shape),
                "o": Out(stream.Signature(shape)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        o = self.o
        word = Signal(self._shape)
        fetched, arrived = Signal(), Signal()  # at the memory's output, in the register after it
        moves, follows = Signal(), Signal()  # what is in the register, and at the output, goes on
        m.d.comb += [
            moves.eq(~o.valid | o.ready),
            follows.eq(~arrived | moves),
            self.fetch.eq(self.there & (~fetched | follows)),
        ]
        with m.If(moves):
            m.d.sync += [o.valid.eq(arrived), o.payload.eq(word)]
        with m.If(follows):
            m.d.sync += [arrived.eq(fetched), word.eq(self.word)]
        with m.If(self.fetch):
            m.d.sync += fetched.eq(1)
        with m.Elif(follows):
            m.d.sync += fetched.eq(0)
        return m
