"""Knows which QPs have something under way that may end in any order."""

from functools import reduce
from operator import or_

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gateware.config import RnicConfig
from gateware.interfaces import QpStrobe


class InFlight(wiring.Component):
    """Keeps a bit for each QP, of which one item at a time may be under way.

    `begin` sets the bit of its QP, each of `ends` clears it; not both for one QP in one cycle.
    `busy` follows two cycles later. A `mark` asks for the end of all that is busy then, whatever
    begins behind it: `passed` is low from the next cycle on until that has come.

    Parameters
    ----------
    config: sizes of the device.
    ends: number of places where items end.
    marks: number of those who ask.

    Members
    -------
    begin, ends: In(QpStrobe).
    busy: Out(config.qps).
    mark, passed: In and Out, bit n for who asks as number n.
    """

    def __init__(self, config: RnicConfig, ends: int, marks: int):
        self._qps = config.qps
        super().__init__(
            {
                "begin": In(QpStrobe(config)),
                "ends": In(QpStrobe(config)).array(ends),
                "busy": Out(config.qps),
                "mark": In(marks),
                "passed": Out(marks),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        qps = self._qps
        # The strobes may be late in their cycle: they are decoded in the next one.
        begun, ended = Signal(qps), Signal(qps)
        decoded = []
        for strobe in (self.begin, *self.ends):
            valid, qp = Signal(), Signal.like(strobe.qp)
            m.d.sync += [valid.eq(strobe.valid), qp.eq(strobe.qp)]
            decoded.append(valid << qp)
        m.d.comb += [begun.eq(decoded[0]), ended.eq(reduce(or_, decoded[1:]))]
        m.d.sync += self.busy.eq(self.busy & ~ended | begun)
        for number in range(len(self.mark)):
            waiting = Signal(qps, name=f"waiting_{number}")
            m.d.sync += waiting.eq(waiting & ~ended)
            with m.If(self.mark[number]):
                m.d.sync += waiting.eq(self.busy & ~ended | begun)
            m.d.comb += self.passed[number].eq(~waiting.any())
        return m
