"""Remembers which QPs have an error to be named."""

from amaranth.hdl import Elaboratable, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpStrobe
from stagecoach.hw.interface.causes import Cause


class QpErrors(wiring.Component):
    """One error for each QP that had failures, however many it had.

    An entry for each QP, so that a failure never waits until an error is taken: who takes errors
    may itself wait for what comes after the failure, such as completions, by way of a Terminate
    after FPDUs whose reports are not taken. While it is free, `error` names a QP at most
    `config.qps` + 2 cycles after its failure, or after the last failure or `forget` of another QP
    since: failures are rare, so one QP is looked at in a cycle. That of a failure is looked at
    next, and named 2 cycles after it, so that the failure is the cause before the peer tells what
    it saw of it. When all were looked at and none had an error, nothing moves until the next
    failure or `forget`. No failure may come in the first `config.qps` cycles after a reset.

    Parameters
    ----------
    config: sizes of the device. causes: what the errors may be, one or two.

    Members
    -------
    fail: In(QpStrobe). which: In(1), beside it: number of its cause; the last one of a QP counts.
    forget: In(QpStrobe), forgets an error that is not named yet. It waits while failures come in
        each cycle, and the next one must not come before.
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
        entry = data.StructLayout({"unnamed": 1, "which": len(self._causes) - 1})
        m.submodules.entries = entries = Memory(shape=entry, depth=qps, init=[])
        write, read = entries.write_port(), entries.read_port(domain="comb")
        looked_at = Signal(self._config.qp_bits)
        clears = Signal(init=1)  # all entries, after a reset
        forgets = Signal()
        forgotten = Signal.like(self.forget.qp)
        error = self.error

        left = Signal(range(qps + 1), init=qps)  # to be looked at until it rests
        m.d.comb += read.addr.eq(looked_at)
        with m.If(left != 0):
            m.d.sync += [looked_at.eq(looked_at + 1), left.eq(left - 1)]
        with m.If(looked_at == qps - 1):
            m.d.sync += clears.eq(0)
        with m.If(error.ready):
            m.d.sync += error.valid.eq(0)
        with m.If(~error.valid):
            m.d.sync += [
                error.p.qp.eq(looked_at),
                error.p.cause.eq(Mux(read.data.which, self._causes[-1], self._causes[0])),
            ]

        with m.If(self.fail.valid):
            m.d.comb += [
                write.addr.eq(self.fail.qp),
                write.data.unnamed.eq(1),
                write.data.which.eq(self.which),
                write.en.eq(1),
            ]
            m.d.sync += [looked_at.eq(self.fail.qp), left.eq(qps)]
            with m.If(self.fail.qp == forgotten):
                m.d.sync += forgets.eq(0)
        with m.Elif(forgets):
            m.d.comb += [write.addr.eq(forgotten), write.en.eq(1)]
            m.d.sync += [forgets.eq(0), left.eq(qps)]
        with m.Elif(clears | ~error.valid):
            m.d.comb += [write.addr.eq(looked_at), write.en.eq(1)]
            with m.If(~clears):
                m.d.sync += error.valid.eq(read.data.unnamed)
        with m.Else():
            m.d.sync += left.eq(qps)
        with m.If(self.forget.valid):
            m.d.sync += [forgets.eq(1), forgotten.eq(self.forget.qp)]
        return m
