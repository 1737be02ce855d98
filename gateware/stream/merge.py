"""Makes one stream of several."""

from amaranth.hdl import Array, Module, ShapeLike, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.stream.round_robin import choose_round_robin


class Merge(wiring.Component):
    """Every item of every input leaves, those of one input in their order; inputs take turns.

    One item per cycle, latency one cycle; `o` comes from registers. An `o` that is not taken holds
    up all inputs.

    Parameters
    ----------
    shape: payload of the streams. inputs: their number, from 1 on.
    """

    def __init__(self, shape: ShapeLike, inputs: int):
        if inputs < 1:
            raise ValueError(f"Merge inputs is {inputs!r}; allowed: 1 and more")
        self._inputs = inputs
        super().__init__(
            {"i": In(stream.Signature(shape)).array(inputs), "o": Out(stream.Signature(shape))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        latest = Signal(range(self._inputs))
        choice = Signal.like(latest)
        load = ~self.o.valid | self.o.ready
        choose_round_robin(m, [each.valid for each in self.i], latest, choice)
        for number, each in enumerate(self.i):
            m.d.comb += each.ready.eq(load & (choice == number))
        with m.If(load):
            m.d.sync += [
                self.o.valid.eq(Array([each.valid for each in self.i])[choice]),
                self.o.payload.eq(Array([each.payload for each in self.i])[choice]),
                latest.eq(choice),
            ]
        return m
