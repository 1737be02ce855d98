"""Remembers which QPs have lost a completion, and stops them."""

from amaranth.hdl import Elaboratable, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gateware.config import RnicConfig
from gateware.interfaces import Layouts, QpStrobe
from hw.interface.causes import Cause


class CompletionErrors(wiring.Component):
    """One error for each QP that lost a completion, however many it lost.

    A bit for each QP, so that a completion never has to wait until an error is taken: who takes
    errors may itself wait for completions, by way of a Terminate behind FPDUs whose reports are
    not taken. `error` names a QP at most `config.qps` + 1 cycles after `lost` while it is free.

    Members
    -------
    lost: In(QpStrobe). write_failed: In(1), beside it: its write failed; else its ring was full.
    forget: In(QpStrobe), forgets an error that is not named yet.
    error: Out(stream qp_error) with HOST_WRITE_ERROR or CQ_OVERFLOW, as the last loss was.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        super().__init__(
            {
                "lost": In(QpStrobe(config)),
                "write_failed": In(1),
                "forget": In(QpStrobe(config)),
                "error": Out(stream.Signature(Layouts(config).qp_error)),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        qps = self._config.qps
        m.submodules.reasons = reasons = Memory(shape=1, depth=qps, init=[])
        write, read = reasons.write_port(), reasons.read_port(domain="comb")
        unnamed = Signal(qps)
        looked_at = Signal(self._config.qp_bits)
        m.d.comb += [
            write.addr.eq(self.lost.qp),
            write.data.eq(self.write_failed),
            write.en.eq(self.lost.valid),
            read.addr.eq(looked_at),
        ]
        m.d.sync += looked_at.eq(looked_at + 1)
        with m.If(self.error.ready):
            m.d.sync += self.error.valid.eq(0)
        with m.If(~self.error.valid):
            m.d.sync += [
                self.error.valid.eq(unnamed.bit_select(looked_at, 1)),
                self.error.p.qp.eq(looked_at),
                self.error.p.cause.eq(
                    Mux(read.data, Cause.HOST_WRITE_ERROR.value, Cause.CQ_OVERFLOW.value)
                ),
                unnamed.bit_select(looked_at, 1).eq(0),
            ]
        with m.If(self.forget.valid):
            m.d.sync += unnamed.bit_select(self.forget.qp, 1).eq(0)
        with m.If(self.lost.valid):
            m.d.sync += unnamed.bit_select(self.lost.qp, 1).eq(1)
        return m
