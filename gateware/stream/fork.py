"""Hands each item of one stream to several receivers."""

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class Fork(wiring.Component):
    """Every output gets every item of `i`; the next item comes when all have taken the last one.

    Outputs take an item independently of each other, in any order, from the cycle in which it
    arrives. `i.ready` comes from registers, a cycle after the last output took the item, so no
    output's `ready` reaches another one's neighbours; one item every two cycles.

    Parameters
    ----------
    shape: payload of the stream.
    outputs: number of receivers.

    Members
    -------
    i: the items.
    o: an array of output streams.
    """

    def __init__(self, shape: object, outputs: int):
        if outputs < 1:
            raise ValueError(f"outputs is {outputs}; allowed: 1 or more")
        self._outputs = outputs
        super().__init__(
            {"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape)).array(outputs)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        taken = Signal(self._outputs)
        for index, output in enumerate(self.o):
            m.d.comb += [
                output.payload.eq(self.i.payload),
                output.valid.eq(self.i.valid & ~taken[index]),
            ]
            with m.If(output.valid & output.ready):
                m.d.sync += taken[index].eq(1)
        m.d.comb += self.i.ready.eq(taken.all())
        with m.If(self.i.ready):
            m.d.sync += taken.eq(0)
        return m
