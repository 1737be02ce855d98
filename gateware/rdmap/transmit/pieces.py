"""Holds back what an FPDU is made of until all of its STag checks are done."""

from amaranth.hdl import Elaboratable, Module, ShapeLike, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out


class HeldFifo(wiring.Component):
    """FIFO whose items become visible, or are forgotten, together: those of one FPDU.

    Parameters
    ----------
    shape: an item. depth: of them, a power of two. most: items of one FPDU.

    Members
    -------
    room: Out(1), there is room for the items of one FPDU, and for a write of the cycle before.
    offer: In(1), `item` may be appended; only if there was `room` before the first item of the
        FPDU, and not for more than `most`.
    write: In(1), append what was offered last, in this cycle or before.
    item: In(shape).
    commit, discard: In(1), what was written so far is good, or is forgotten. Not with `write`.
    o: Out(stream shape), committed items.
    """

    def __init__(self, shape: ShapeLike, depth: int, most: int):
        self._shape, self._depth, self._most = shape, depth, most
        super().__init__(
            {
                "room": Out(1),
                "offer": In(1),
                "write": In(1),
                "item": In(self._shape),
                "commit": In(1),
                "discard": In(1),
                "o": Out(stream.Signature(self._shape)),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        m.submodules.memory = memory = Memory(shape=self._shape, depth=self._depth, init=[])
        write_port, read_port = memory.write_port(), memory.read_port()
        # One bit more than an address: equal means empty.
        written = Signal(range(2 * self._depth))
        committed = Signal.like(written)
        read = Signal.like(written)
        level = Signal.like(written)

        m.d.comb += [
            level.eq(written - read),
            write_port.addr.eq(written),
            write_port.data.eq(self.item),
            # What stands after the last item means nothing.
            write_port.en.eq(self.offer),
            read_port.addr.eq(read),
            read_port.en.eq(~self.o.valid | self.o.ready),
            self.o.payload.eq(read_port.data),
        ]
        m.d.sync += self.room.eq(level < self._depth - self._most)
        with m.If(self.write):
            m.d.sync += written.eq(written + 1)
        with m.If(self.commit):
            m.d.sync += committed.eq(written)
        with m.If(self.discard):
            m.d.sync += written.eq(committed)
        with m.If(read_port.en):
            m.d.sync += self.o.valid.eq(read != committed)
            with m.If(read != committed):
                m.d.sync += read.eq(read + 1)
        return m
