"""A register stage of a stream."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class StreamBuffer(wiring.Component):
    """Two-entry buffer that cuts every combinational path of a stream.

    `i.ready` and all of `o` come from registers. Items pass in order; one item per cycle; latency
    one cycle.
    """

    def __init__(self, shape: object):
        self._shape = shape
        super().__init__(
            {"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))}  # type: ignore[arg-type]
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        spare = Signal(self._shape)  # type: ignore[arg-type]
        spare_full = Signal()
        spare_empty = Signal(init=1)  # of its own, for the wide registers
        vacant = Signal(init=1)  # not o.valid; of its own, for the wide register
        m.d.comb += self.i.ready.eq(~spare_full)
        with m.If(self.o.ready | ~self.o.valid):
            m.d.sync += [
                self.o.valid.eq(spare_full | self.i.valid),
                vacant.eq(~(spare_full | self.i.valid)),
                spare_full.eq(0),
                spare_empty.eq(1),
            ]
        with m.Elif(self.i.valid & ~spare_full):
            m.d.sync += [spare_full.eq(1), spare_empty.eq(0)]
        with m.If(self.o.ready | vacant):
            with m.If(spare_empty):
                m.d.sync += self.o.payload.eq(self.i.payload)
            with m.Else():
                m.d.sync += self.o.payload.eq(spare)
        # Loaded whenever it is empty, so that its enable does not wait for o.ready.
        with m.If(spare_empty):
            m.d.sync += spare.eq(self.i.payload)
        return m
