"""Knows when all that was being read from host memory for FPDUs has been read."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class TransmitDrain(wiring.Component):
    """After a `mark`, `passed` is low until no FPDU holds an address that was known before.

    First it waits until the visits of the transmitter that had begun have ended,
    because they may have asked the STag table before the `mark`; then until the jobs that
    had begun then have left. Nothing of this depends on a delivery. With nothing under way `passed`
    is low for 7 cycles. Counts run mod 2^16; at most 2^15 jobs may be under way, and 7 visits.

    Members
    -------
    visit_begin, visit_end, job_begin, job_end: In(1), pulses; visits end in the order in which
        they began, and no job begins after the end of its visit.
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
        visits_begun, visits_ended, visits_goal, visits_beyond = (Signal(4) for _ in range(4))
        begun, ended, goal, beyond = (Signal(16) for _ in range(4))
        # The pulses come late in their cycle: they are counted in the next one.
        visit_begin, visit_end, job_begin, job_end = (Signal() for _ in range(4))
        m.d.sync += [
            visit_begin.eq(self.visit_begin),
            visit_end.eq(self.visit_end),
            job_begin.eq(self.job_begin),
            job_end.eq(self.job_end),
            visits_begun.eq(visits_begun + visit_begin),
            visits_ended.eq(visits_ended + visit_end),
            visits_beyond.eq(visits_ended - visits_goal),
            begun.eq(begun + job_begin),
            ended.eq(ended + job_end),
            beyond.eq(ended - goal),
        ]

        with m.FSM() as fsm:
            # Waits for a mark.
            with m.State("IDLE"):
                with m.If(self.mark):
                    m.next = "COUNT"
            # A visit that began with the mark is counted.
            with m.State("COUNT"):
                m.next = "COUNTED"
            # That many have to end.
            with m.State("COUNTED"):
                m.d.sync += visits_goal.eq(visits_begun)
                m.next = "DIFFERENCE"
            # The difference is taken.
            with m.State("DIFFERENCE"):
                m.next = "VISITS"
            # Waits for the end of these visits; all their jobs are counted then.
            with m.State("VISITS"):
                m.d.sync += goal.eq(begun)
                with m.If(~visits_beyond[-1]):
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
