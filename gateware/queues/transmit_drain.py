"""Knows when all that was being read from host memory for FPDUs has been read."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.queues.drain import COUNT_BITS, Drain


class TransmitDrain(wiring.Component):
    """After a `mark`, `passed` is low until no FPDU holds an address that was known before.

    First it waits until the visits of the transmitter that had begun have ended, because they may
    have asked the STag table before the `mark`; then until the jobs that had begun then have left.
    Nothing of this depends on a delivery, and nothing that begins later is waited for (`Drain`).
    With nothing under way `passed` is low for 6 cycles. A `mark` while it is low is ignored.

    Parameters
    ----------
    count_bits: fewer than 2^`count_bits` jobs may be under way, and as many visits: the jobs that
        wait for the assembler, and those of the FPDUs in assembler and framer.

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

    def __init__(self, count_bits: int = COUNT_BITS):
        self._count_bits = count_bits
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.visits = visits = Drain(self._count_bits)
        m.submodules.jobs = jobs = Drain(self._count_bits)
        m.d.comb += [
            visits.begin.eq(self.visit_begin),
            visits.end.eq(self.visit_end),
            jobs.begin.eq(self.job_begin),
            jobs.end.eq(self.job_end),
        ]

        with m.FSM() as fsm:
            # Waits for a mark.
            with m.State("IDLE"):
                m.d.comb += visits.mark.eq(self.mark)
                with m.If(self.mark):
                    m.next = "VISITS"
            # Waits for the end of the visits of then; all their jobs have begun then.
            with m.State("VISITS"):
                m.d.comb += jobs.mark.eq(visits.passed)
                with m.If(visits.passed):
                    m.next = "LEFT"
            # Waits until these jobs have left.
            with m.State("LEFT"):
                with m.If(jobs.passed):
                    m.next = "IDLE"
            m.d.comb += self.passed.eq(fsm.ongoing("IDLE"))
        return m
