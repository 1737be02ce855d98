"""Holds the pieces of an FPDU back until all of its STag checks are done."""

from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.hw.interface.queue_entries import SCATTER_GATHER_ELEMENTS


class TransmitPieces(wiring.Component):
    """FIFO of gather pieces; those of one FPDU become visible, or are forgotten, together.

    Members
    -------
    room: Out(1), there is room for the pieces of one FPDU, and for a write of the cycle before.
    offer: In(1), `item` may be appended; only if there was `room` before the first piece of the
        FPDU, and not for more pieces than an FPDU has.
    write: In(1), append what was offered last. Not with `offer`.
    item: In(gather_piece).
    commit, discard: In(1), what was written so far is good, or is forgotten. Not with `write`.
    piece: Out(stream gather_piece), committed pieces.
    """

    DEPTH = 16

    def __init__(self, config: RnicConfig):
        self._shape = Layouts(config).gather_piece
        super().__init__(
            {
                "room": Out(1),
                "offer": In(1),
                "write": In(1),
                "item": In(self._shape),
                "commit": In(1),
                "discard": In(1),
                "piece": Out(stream.Signature(self._shape)),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        m.submodules.memory = memory = Memory(shape=self._shape, depth=self.DEPTH, init=[])
        write_port, read_port = memory.write_port(), memory.read_port()
        # One bit more than an address: equal means empty.
        written = Signal(range(2 * self.DEPTH))
        committed = Signal.like(written)
        read = Signal.like(written)
        level = Signal.like(written)

        m.d.comb += [
            level.eq(written - read),
            write_port.addr.eq(written),
            write_port.data.eq(self.item),
            # What stands after the last piece means nothing.
            write_port.en.eq(self.offer),
            read_port.addr.eq(read),
            read_port.en.eq(~self.piece.valid | self.piece.ready),
            self.piece.payload.eq(read_port.data),
        ]
        m.d.sync += self.room.eq(level < self.DEPTH - SCATTER_GATHER_ELEMENTS)
        with m.If(self.write):
            m.d.sync += written.eq(written + 1)
        with m.If(self.commit):
            m.d.sync += committed.eq(written)
        with m.If(self.discard):
            m.d.sync += written.eq(committed)
        with m.If(read_port.en):
            m.d.sync += self.piece.valid.eq(read != committed)
            with m.If(read != committed):
                m.d.sync += read.eq(read + 1)
        return m
