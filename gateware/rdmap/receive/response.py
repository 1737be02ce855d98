"""Judges a Read or Atomic Response but for the rights of its STag."""

from amaranth.hdl import Module, Mux
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ddp.checks import CAUSE_BITS
from stagecoach.gateware.rdmap.receive.decode import KIND
from stagecoach.gateware.rdmap.receive.record import VERDICT
from stagecoach.hw.interface.causes import Cause


class ReceiveResponse(wiring.Component):
    """Gives the verdict about a response three cycles after it came, and waits for nobody.

    The oldest outstanding request comes out of its queue a cycle after the segment; it takes two
    more to compare the segment with it.

    Members
    -------
    segment: In(stream KIND), taken with the verdict about it.
    payload: In(16), its bytes, as long as it is at work.
    read_cause, atomic_cause: In, of the checks, three cycles after it; which one counts is its
        kind.
    verdict: Out, `VERDICT`. An empty Read Response has no piece.
    """

    segment: In(stream.Signature(KIND))
    payload: In(16)
    read_cause: In(CAUSE_BITS)
    atomic_cause: In(CAUSE_BITS)
    verdict: Out(VERDICT)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        kind, verdict = self.segment.payload, self.verdict
        is_atomic = kind.atomic_response
        m.d.comb += self.segment.ready.eq(verdict.valid)
        with m.FSM():
            # Waits for a segment.
            with m.State("IDLE"), m.If(self.segment.valid):
                m.next = "EXPECT"
            # Waits for the RDMA Read or atomic that is answered.
            with m.State("EXPECT"):
                m.next = "COMPARE"
            # Waits for the comparison with it.
            with m.State("COMPARE"):
                m.next = "CHECK"
            # Judges the response.
            with m.State("CHECK"):
                cause = Mux(is_atomic, self.atomic_cause, self.read_cause)
                good = cause == Cause.NONE
                m.d.comb += [
                    verdict.valid.eq(1),
                    verdict.cause.eq(cause),
                    verdict.pieces.eq((is_atomic | (self.payload != 0)) & good),
                    verdict.delivers.eq(kind.last & good),
                ]
                m.next = "IDLE"
        return m
