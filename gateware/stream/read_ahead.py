"""From a memory to a stream: words are fetched before their reader asks for them."""

from amaranth import Module, ShapeLike, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.stream.prompt_fifo import PromptFifo

WORDS_AHEAD = 8
"""Words between the memory and the reader; enough for one per cycle."""

WORDS_MARGIN = 4
"""Of them, those on their way that the FIFO's level does not show yet."""


class ReadAhead(wiring.Component):
    """Fetches words of a memory while there are some, and has them wait for their reader.

    One word per cycle, 3 cycles from `fetch` to `o`. If the reader takes nothing, 8 words wait, or
    fewer, and no more are fetched.

    Parameters
    ----------
    shape: a word.

    Members
    -------
    there: the caller has a word, at the address that the memory's port has. fetch: that is taken.
    word: at the memory's port, a cycle later. o: the words, in order.
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
        m.submodules.ahead = ahead = PromptFifo(self._shape, WORDS_AHEAD)
        wiring.connect(m, wiring.flipped(self.o), ahead.o)
        # Fetched, at the memory's output, in the register after it.
        fetched, arrived = Signal(), Signal()
        word = Signal(self._shape)
        m.d.comb += [
            self.fetch.eq(self.there & (ahead.level <= WORDS_AHEAD - 1 - WORDS_MARGIN)),
            ahead.i.valid.eq(arrived),
            ahead.i.payload.eq(word),
        ]
        m.d.sync += [fetched.eq(self.fetch), arrived.eq(fetched), word.eq(self.word)]
        return m
