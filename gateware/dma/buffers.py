"""A block-RAM queue of the read engine."""

from amaranth.hdl import Module, Shape, Signal, Value
from amaranth.lib import memory, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.memories import NO_COLLISION

WORDS_AHEAD = 16
"""Words between the memory and the user of a queue; enough for one per cycle."""

WORDS_MARGIN = 6
"""Of them, those on their way from the memory that the level does not show yet."""


class ReservedQueue(wiring.Component):
    """Queue of `depth` words in block RAM whose writer has reserved room beforehand.

    `push` with `word` cannot be refused. `freed` pulses for every word that left the memory, so
    that its place may be reserved again. Words leave the memory while the FIFO after it has room
    for all that are on their way, so no path leads from the user of `o` to the memory. Latency
    five cycles, one word per cycle.
    """

    def __init__(self, shape: object, depth: int):
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"ReservedQueue depth is {depth!r}; allowed: a power of two from 2")
        self._shape = shape
        self._depth = depth
        super().__init__(
            {
                "push": In(1),
                "word": In(shape),  # type: ignore[arg-type]
                "freed": Out(1),
                "o": Out(stream.Signature(shape)),  # type: ignore[arg-type]
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # A word is fetched when it counts in `level`, after it was written.
        m.submodules.memory = words = memory.Memory(
            shape=self._shape, depth=self._depth, init=[], attrs=NO_COLLISION
        )
        m.submodules.output = output = SyncFIFOBuffered(
            width=Shape.cast(self._shape).width,  # type: ignore[arg-type]
            depth=WORDS_AHEAD,
        )
        write = words.write_port()
        read = words.read_port()
        level = Signal(range(self._depth + 1))
        fetch = Signal()
        fetched = Signal()  # the memory's output is a word
        arrived = Signal()  # and that of the register after it
        word = Signal(self._shape)  # type: ignore[arg-type]
        room = Signal()
        m.d.comb += [
            write.en.eq(self.push),
            write.data.eq(self.word),
            fetch.eq((level != 0) & room),
            output.w_en.eq(arrived),
            output.w_data.eq(word),
            self.o.valid.eq(output.r_rdy),
            Value.cast(self.o.payload).eq(output.r_data),
            output.r_en.eq(self.o.ready),
        ]
        m.d.sync += [
            level.eq(level + self.push - fetch),
            room.eq(output.level <= WORDS_AHEAD - WORDS_MARGIN),
            self.freed.eq(fetch),
            fetched.eq(fetch),
            arrived.eq(fetched),
            word.eq(read.data),
        ]
        with m.If(self.push):
            m.d.sync += write.addr.eq(write.addr + 1)
        with m.If(fetch):
            m.d.sync += read.addr.eq(read.addr + 1)
        return m
