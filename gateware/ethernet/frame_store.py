"""The store of received frames: a frame comes out when it is whole and good, or not at all."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.layouts import FRAME_WORD
from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.stream.read_ahead import ReadAhead


class FrameStore(wiring.Component):
    """Circular memory of frames. The words of one are forgotten unless `keep` comes with the last.

    One word in and one out per cycle. The first word of a frame is at `o` five cycles after its
    last one was written. A word for which there is no room is lost, and `full` says with the last
    word, or before, that the frame cannot be kept: then `keep` must be low. A reader that takes
    nothing fills the store; the writer never waits. Addresses wrap with the memory.

    Parameters
    ----------
    octets: size, a power of two from 1024 on.

    Members
    -------
    write, word: the next word of a frame. keep: with the last word, the frame is good.
    full: this frame had a word, or now has one, without room.
    o: the words of frames that were kept, in order.
    """

    def __init__(self, octets: int):
        if octets < 1024 or octets & (octets - 1):
            raise ValueError(f"FrameStore octets is {octets!r}; allowed: a power of two from 1024")
        self._words = octets // 8
        super().__init__(
            {
                "write": In(1),
                "word": In(FRAME_WORD),
                "keep": In(1),
                "full": Out(1),
                "o": Out(stream.Signature(FRAME_WORD)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth = self._words
        # A word is fetched when its frame was kept, after it was written.
        m.submodules.memory = words = memory.Memory(
            shape=FRAME_WORD, depth=depth, init=[], attrs=NO_COLLISION
        )
        m.submodules.ahead = ahead = ReadAhead(FRAME_WORD)
        wiring.connect(m, wiring.flipped(self.o), ahead.o)
        write, read = words.write_port(), words.read_port()

        # Written: words of the frame under way count in `used`, but not in `waiting`.
        start = Signal(range(depth))  # of the frame under way
        used = Signal(range(depth + 1))
        waiting = Signal(range(depth + 1))
        overflow = Signal()
        no_room = Signal()
        fetch = Signal()
        written = Signal()
        m.d.comb += [
            self.full.eq(overflow | no_room),
            written.eq(self.write & ~self.full),
            write.en.eq(written),
            Value.cast(write.data).eq(Value.cast(self.word)),
        ]
        ends = self.write & self.word.last
        after, left = Signal(range(depth + 1)), Signal(range(depth + 1))
        m.d.comb += [
            no_room.eq(used[-1]),  # `depth` of them, a power of two
            after.eq(used + (written - fetch)),
            left.eq(waiting - fetch),
        ]
        m.d.sync += [used.eq(after), waiting.eq(left)]
        with m.If(self.write):
            m.d.sync += overflow.eq(~self.word.last & self.full)
        with m.If(written):
            m.d.sync += write.addr.eq(write.addr + 1)
        with m.If(ends):
            with m.If(self.keep):
                m.d.sync += [start.eq(write.addr + 1), waiting.eq(after)]
            with m.Else():
                m.d.sync += [write.addr.eq(start), used.eq(left)]

        # Read.
        m.d.comb += [
            ahead.there.eq(waiting != 0),
            fetch.eq(ahead.fetch),
            ahead.word.eq(read.data),
            read.en.eq(fetch),
        ]
        with m.If(fetch):
            m.d.sync += read.addr.eq(read.addr + 1)
        return m
