"""Remembers which QPs have an error to be named."""

from amaranth.hdl import Array, Elaboratable, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gateware.config import RnicConfig
from gateware.interfaces import Layouts, QpStrobe
from hw.interface.causes import Cause


class QpErrors(wiring.Component):
    """One error for each QP that had failures, however many it had.

    A bit for each QP, so that a failure never waits until an error is taken: who takes errors may
    itself wait for what comes behind the failure, such as completions, by way of a Terminate behind
    FPDUs whose reports are not taken. `error` names a QP at most `config.qps` + 1 cycles after its
    failure while it is free: failures are rare, so one QP is looked at in a cycle. That of a
    failure is looked at next, so that the failure is the cause before the peer tells what it saw
    of it.

    Parameters
    ----------
    config: sizes of the device. causes: what the errors may be, one or two.

    Members
    -------
    fail: In(QpStrobe). which: In(1), beside it: number of its cause; the last one of a QP counts.
    forget: In(QpStrobe), forgets an error that is not named yet.
    error: Out(stream qp_error).
    """

    def __init__(self, config: RnicConfig, *causes: Cause):
        if not 1 <= len(causes) <= 2:
            raise ValueError(f"QpErrors takes {len(causes)} causes; allowed: one or two")
        self._config = config
        self._causes = causes
        super().__init__(
            {
                "fail": In(QpStrobe(config)),
                "which": In(1),
                "forget": In(QpStrobe(config)),
                "error": Out(stream.Signature(Layouts(config).qp_error)),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        qps = self._config.qps
        unnamed = Signal(qps)
        looked_at = Signal(self._config.qp_bits)
        cause = Signal.like(self.error.p.cause)
        if len(self._causes) == 1:
            m.d.comb += cause.eq(self._causes[0])
        else:
            m.submodules.reasons = reasons = Memory(shape=1, depth=qps, init=[])
            write, read = reasons.write_port(), reasons.read_port(domain="comb")
            m.d.comb += [
                write.addr.eq(self.fail.qp),
                write.data.eq(self.which),
                write.en.eq(self.fail.valid),
                read.addr.eq(looked_at),
                cause.eq(Array(self._causes)[read.data]),
            ]
        m.d.sync += looked_at.eq(looked_at + 1)
        with m.If(self.fail.valid):
            m.d.sync += looked_at.eq(self.fail.qp)
        with m.If(self.error.ready):
            m.d.sync += self.error.valid.eq(0)
        with m.If(~self.error.valid):
            m.d.sync += [
                self.error.valid.eq(unnamed.bit_select(looked_at, 1)),
                self.error.p.qp.eq(looked_at),
                self.error.p.cause.eq(cause),
                unnamed.bit_select(looked_at, 1).eq(0),
            ]
        with m.If(self.forget.valid):
            m.d.sync += unnamed.bit_select(self.forget.qp, 1).eq(0)
        with m.If(self.fail.valid):
            m.d.sync += unnamed.bit_select(self.fail.qp, 1).eq(1)
        return m
