"""Lets placements through to the placer while there is room for their write responses."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpStrobe


class PlacementGate(wiring.Component):
    """One-entry buffer between the receiver and the placer that takes nothing without `room`.

    `i.ready` and all of `o` come from registers. In order; one placement every two cycles; latency
    one cycle.

    Members
    -------
    i, o: placements. What was taken leaves whether there is room or not.
    room: In(1). When it falls in a cycle, one placement may be taken in that one, or was in the
        one before, and is in the buffer; no other one follows.
    begun: Out(QpStrobe), a placement with bytes was taken a cycle ago.
    """

    def __init__(self, config: RnicConfig):
        placement = Layouts(config).placement
        super().__init__(
            {
                "i": In(stream.Signature(placement)),
                "o": Out(stream.Signature(placement)),
                "room": In(1),
                "begun": Out(QpStrobe(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        item = self.o.payload
        takes, taken = Signal(), Signal()
        m.d.comb += [
            takes.eq(self.i.valid & self.i.ready),
            self.begun.valid.eq(taken & (item.octets != 0)),
            self.begun.qp.eq(item.qp),
        ]
        m.d.sync += [
            taken.eq(takes),
            self.o.valid.eq(takes | (self.o.valid & ~self.o.ready)),
            self.i.ready.eq(self.room & ~takes & (~self.o.valid | self.o.ready)),
        ]
        with m.If(~self.o.valid):
            m.d.sync += item.eq(self.i.payload)
        return m
