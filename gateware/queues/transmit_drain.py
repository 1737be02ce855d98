"""Knows when all that was being read from host memory for FPDUs has been read."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class TransmitDrain(wiring.Component):
    """After a `mark`, `passed` is low until no FPDU holds an address that was known before.

    First it waits until no visit of the transmitter is under way, which is so between any two of
    them, because a visit may have asked the STag table before the `mark`; then until the jobs that
    had begun have left. Nothing of this depends on a delivery. With nothing under way `passed` is
    low for 4 cycles. Counts run mod 2^16; at most 2^15 jobs may be under way.

    Members
    -------
    visit_begin, visit_end, job_begin, job_end: In(1), pulses; no job begins after the end of its
        visit.
    mark: In(1). passed: Out(1), low from the next cycle on.
    """

    visit_begin: In(1)
    visit_end: In(1)
    job_begin: In(1)
    job_end: In(1)
    mark: In(1)
    passed: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        visiting = Signal()
        begun, ended, goal, beyond = (Signal(16) for _ in range(4))
        m.d.sync += [
            begun.eq(begun + self.job_begin),
            ended.eq(ended + self.job_end),
            beyond.eq(ended - goal),
        ]
        with m.If(self.visit_begin):
            m.d.sync += visiting.eq(1)
        with m.Elif(self.visit_end):
            m.d.sync += visiting.eq(0)

        with m.FSM() as fsm:
            # Waits for a mark.
            with m.State("IDLE"):
                with m.If(self.mark):
                    m.next = "VISIT"
            # Waits for the end of the visit; all its jobs are counted then.
            with m.State("VISIT"):
                m.d.sync += goal.eq(begun)
                with m.If(~visiting & ~self.visit_begin):
                    m.next = "COMPARE"
            # The difference is taken.
            with m.State("COMPARE"):
                m.next = "LEFT"
            # Waits until as many have left.
            with m.State("LEFT"):
                with m.If(~beyond[-1]):
                    m.next = "IDLE"
            m.d.comb += self.passed.eq(fsm.ongoing("IDLE"))
        return m
