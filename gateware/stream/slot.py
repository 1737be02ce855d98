"""A register stage of a stream that is not busy."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class StreamSlot(wiring.Component):
    """One-entry buffer that cuts every combinational path of a stream.

    `i.ready` and all of `o` come from registers. Items pass in order, one every two cycles; latency
    one cycle. Half the registers of a `StreamBuffer` and no multiplexer.
    """

    def __init__(self, shape: object):
        super().__init__(
            {"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))}  # type: ignore[arg-type]
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.i.ready.eq(~self.o.valid)
        with m.If(~self.o.valid):
            m.d.sync += [self.o.payload.eq(self.i.payload), self.o.valid.eq(self.i.valid)]
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        return m
