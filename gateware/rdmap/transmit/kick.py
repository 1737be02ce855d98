"""Asks for the next visit of a QP, once for every FPDU."""

from amaranth.hdl import Elaboratable, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import QpStrobe


class TransmitKick(wiring.Component):
    """Makes one kick of what the steps of a visit say, and lets those of the limits go between.

    Latency: a cycle. Kicks of a visit go before those of the limits, which wait.

    Members
    -------
    qp: In(qp), whose visit it is. working: In(1), its message is at work.
    once: In(1), a pulse: there will be something to do. Not before `working`, which lasts until a
        cycle later; the second one and all after it are not heard.
    again: In(1), a pulse: there is, whatever was said before.
    limits: In(1), of QP `limits_qp`; taken with `limits_taken`, Out(1).
    kick: Out(QpStrobe), visit this QP again.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        super().__init__(
            {
                "qp": In(config.qp_bits),
                "working": In(1),
                "once": In(1),
                "again": In(1),
                "limits": In(1),
                "limits_qp": In(config.qp_bits),
                "limits_taken": Out(1),
                "kick": Out(QpStrobe(config)),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        kicked = Signal()  # the next visit was asked for
        kicks, kicked_qp = Signal(), Signal(self._config.qp_bits)
        m.d.sync += [kicks.eq(self.again | (self.once & ~kicked)), kicked_qp.eq(self.qp)]
        with m.If(kicks):
            m.d.sync += kicked.eq(1)
        with m.Elif(~self.working):
            m.d.sync += kicked.eq(0)
        m.d.comb += [
            self.limits_taken.eq(~kicks),
            self.kick.valid.eq(kicks | self.limits),
            self.kick.qp.eq(Mux(kicks, kicked_qp, self.limits_qp)),
        ]
        return m
