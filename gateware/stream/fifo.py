"""A FIFO with a stream at each end, for any payload."""

from amaranth import Module, ShapeLike, Value
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out


class StreamFifo(wiring.Component):
    """Holds up to `depth` items between `i` and `o`; both ends are registered.

    One item per cycle; an item leaves two cycles after it came at the earliest.

    Parameters
    ----------
    shape: the payload.
    depth: items, 2 or more.
    """

    def __init__(self, shape: ShapeLike, depth: int):
        if depth < 2:
            raise ValueError(f"StreamFifo depth is {depth!r}; allowed: 2 and more")
        self._depth = depth
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = len(Value.cast(self.i.payload))
        m.submodules.fifo = items = fifo.SyncFIFOBuffered(width=width, depth=self._depth)
        m.d.comb += [
            items.w_data.eq(self.i.payload),
            items.w_en.eq(self.i.valid),
            self.i.ready.eq(items.w_rdy),
            Value.cast(self.o.payload).eq(items.r_data),
            self.o.valid.eq(items.r_rdy),
            items.r_en.eq(self.o.ready),
        ]
        return m
