"""Judges a segment by its header: drops it, lets a Write go, refuses it, or passes it on."""

from amaranth.hdl import Module, Mux
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ddp.checks import CAUSE_BITS, first_cause
from stagecoach.gateware.layouts import Layouts, SegmentKind
from stagecoach.gateware.rdmap.headers import Opcode
from stagecoach.gateware.rdmap.receive.decode import KIND
from stagecoach.gateware.rdmap.receive.record import VERDICT
from stagecoach.hw.interface.causes import Cause

_REPORTS = {
    SegmentKind.CRC_ERROR: Cause.CRC_ERROR,
    SegmentKind.CLOSED: Cause.LLP_CLOSED,
    SegmentKind.CLOSED_INSIDE: Cause.LLP_CLOSED_INSIDE_FPDU,
    SegmentKind.MARKER_ERROR: Cause.MARKER_MISMATCH,
}
"""What the MPA receiver reports instead of an FPDU."""


class ReceiveHeader(wiring.Component):
    """Gives the verdict about a segment by what its header says, or passes it on to a step.

    A segment is dropped if its QP does not run, and a good Write needs nothing but its header: the
    verdict comes a cycle after the segment. If the header fails, or there is no FPDU, it comes two
    cycles after it. In the same cycle any other segment is passed on, as what it is; the context of
    its QP is compared with it in that cycle. It is passed on until the step is ready, which it is
    with its verdict; then, as after a verdict of its own, this step waits until `over` comes. If
    one of these does not come, no other segment is looked at.

    Members
    -------
    segment: In(stream segment), ready with `over`.
    over: In(1), a pulse: the record of the segment was taken; some cycles after its verdict.
    kind, payload: In, of the segment, from a cycle after it on; `failed` too, and `cause` a cycle
        after that: of the checks of its header.
    drops: In(1), its QP does not run, a cycle after it.
    send, request, response: Out(stream KIND), the segment is for this step.
    verdict: Out, `VERDICT`.
    """

    def __init__(self, config: RnicConfig) -> None:
        super().__init__(
            {
                "segment": In(stream.Signature(Layouts(config).segment)),
                "over": In(1),
                "kind": In(KIND),
                "payload": In(16),
                "failed": In(1),
                "cause": In(CAUSE_BITS),
                "drops": In(1),
                "send": Out(stream.Signature(KIND)),
                "request": Out(stream.Signature(KIND)),
                "response": Out(stream.Signature(KIND)),
                "verdict": Out(VERDICT),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        segment, kind, verdict = self.segment.payload, self.kind, self.verdict
        is_fpdu = segment.kind == SegmentKind.FPDU
        is_write = kind.opcode == Opcode.RDMA_WRITE
        failed = ~is_fpdu | self.failed
        m.d.comb += [
            self.segment.ready.eq(self.over),
            self.send.payload.eq(kind),
            self.request.payload.eq(kind),
            self.response.payload.eq(kind),
        ]

        def hand(step: stream.Interface) -> None:
            m.d.comb += step.valid.eq(1)
            with m.If(step.ready):
                m.next = "OVER"

        with m.FSM():
            # Waits for a segment, and for the checks of its header.
            with m.State("IDLE"), m.If(self.segment.valid):
                m.next = "SELECT"
            # Lets a segment go that is dropped, or a Write: that is known by its header.
            with m.State("SELECT"):
                m.d.comb += [
                    verdict.dropped.eq(self.drops),
                    # An empty Write says nothing of a buffer (RFC 5041, 5.2).
                    verdict.pieces.eq(is_write & (self.payload != 0)),
                ]
                with m.If(self.drops | (is_write & ~failed)):
                    m.d.comb += verdict.valid.eq(1)
                    m.next = "OVER"
                with m.Elif(failed):
                    m.next = "REFUSE"
                with m.Else():
                    m.next = "PASS"
            # Takes the failure of the header, or what there is instead of an FPDU.
            with m.State("REFUSE"):
                reports = [(segment.kind == report, c) for report, c in _REPORTS.items()]
                m.d.comb += [
                    verdict.valid.eq(1),
                    verdict.cause.eq(Mux(is_fpdu, self.cause, first_cause(reports))),
                    verdict.tells.eq(self.cause == Cause.TERMINATE_RECEIVED),
                ]
                m.next = "OVER"
            # Goes the way of the segment's opcode; waits for the verdict.
            with m.State("PASS"):
                with m.If(kind.request):
                    hand(self.request)
                with m.Elif(kind.response):
                    hand(self.response)
                with m.Else():
                    hand(self.send)
            # Waits until the record is taken.
            with m.State("OVER"), m.If(self.over):
                m.next = "IDLE"
        return m
