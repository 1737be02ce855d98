"""Judges a segment that takes a receive entry: a Send or Immediate Data."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ddp.checks import CAUSE_BITS
from stagecoach.gateware.rdmap.receive.decode import KIND
from stagecoach.gateware.rdmap.receive.record import VERDICT
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import SCATTER_GATHER_ELEMENTS


class ReceiveSend(wiring.Component):
    """Waits for the receive entry, which may still be fetched, and judges what goes there.

    The verdict about Immediate Data comes 2 cycles after the segment, if the entry is on chip, that
    about a Send 2 cycles or more, when its payload was cut over the elements of the entry. A
    segment that failed needs no entry. While none comes, the segment waits, until its QP is
    stopped, and is `dropped` then, or until there is none to come. The first segment of a Send that
    goes on waits until the whole entry was read, if that is of a shared ring.

    Members
    -------
    segment: In(stream KIND), taken with the verdict about it.
    cause, other_opcode: In, of the checks of its header and context, a cycle after it: all but its
        length, and whether the Send began with another opcode.
    immediate_cause: In, of Immediate Data beside them; as those.
    too_long: In(1), the message has more bytes than a length can say; as those.
    level: In, receive entries of its QP on chip, in the cycle of the segment and from then on.
    failed, shared: In(1), of the receive entries; as `level`.
    drops: In(1), its QP does not run.
    restart: Out(1), the payload is cut anew, because the entry was not there.
    complete, exhausted, count, read: In, of `ReceiveScan`; `count` is taken a cycle after the first
        two and stands by then.
    verdict: Out, `VERDICT`.
    """

    segment: In(stream.Signature(KIND))
    cause: In(CAUSE_BITS)
    other_opcode: In(1)
    immediate_cause: In(CAUSE_BITS)
    too_long: In(1)
    level: In(8)
    failed: In(1)
    shared: In(1)
    drops: In(1)
    restart: Out(1)
    complete: In(1)
    exhausted: In(1)
    count: In(range(SCATTER_GATHER_ELEMENTS + 1))
    read: In(1)
    verdict: Out(VERDICT)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        kind, verdict = self.segment.payload, self.verdict
        on_chip = Signal()
        failed = Signal()
        complete = Signal()
        exhausted = Signal()
        m.d.sync += [
            on_chip.eq(self.level != 0),
            failed.eq(self.failed),
            complete.eq(self.complete),
            exhausted.eq(self.exhausted),
        ]
        cause = Signal(CAUSE_BITS)
        refused = Signal()  # there is a `cause`: it failed without its payload
        m.d.comb += self.segment.ready.eq(verdict.valid)

        with m.FSM():
            # Waits for a segment, and for the checks of its context.
            with m.State("IDLE"), m.If(self.segment.valid):
                m.next = "CHECK"
            # Judges it without its payload. A failure is looked at in the next state, the choice of
            # which does not wait for it.
            with m.State("CHECK"):
                m.d.sync += [cause.eq(self.cause), refused.eq(self.cause != Cause.NONE)]
                with m.If(~on_chip):
                    m.next = "ENTRY"
                with m.Elif(kind.immediate):
                    m.next = "IMMEDIATE"
                with m.Else():
                    m.next = "SCAN"
            # Waits for the receive entry, which is being fetched, unless the segment or QP failed.
            with m.State("ENTRY"):
                m.d.comb += [
                    self.restart.eq(1),
                    verdict.cause.eq(cause),
                    verdict.dropped.eq(self.drops),
                ]
                with m.If(self.drops | refused):
                    m.d.comb += verdict.valid.eq(1)
                    m.next = "IDLE"
                with m.Elif(on_chip):
                    m.next = "SCAN"
                    with m.If(kind.immediate):
                        m.next = "IMMEDIATE"
                with m.Elif(failed):
                    m.d.comb += [verdict.valid.eq(1), verdict.cause.eq(Cause.HOST_READ_ERROR)]
                    m.next = "IDLE"
            # Judges the length of Immediate Data, of which nothing is placed.
            with m.State("IMMEDIATE"):
                m.d.comb += [
                    verdict.valid.eq(1),
                    verdict.cause.eq(Mux(refused, cause, self.immediate_cause)),
                    verdict.delivers.eq(~refused & (self.immediate_cause == Cause.NONE)),
                ]
                m.next = "IDLE"
            # Waits until the payload was cut over the elements of the receive entry, and until that
            # may be kept.
            with m.State("SCAN"):
                fits = complete & ~self.too_long
                good = fits & ~self.other_opcode
                m.d.comb += verdict.cause.eq(cause)
                with m.If(~refused):
                    m.d.comb += [
                        verdict.cause.eq(
                            Mux(
                                fits,
                                Mux(self.other_opcode, Cause.UNEXPECTED_OPCODE, Cause.NONE),
                                Cause.UNTAGGED_TOO_LONG,
                            )
                        ),
                        verdict.pieces.eq(Mux(good, self.count, 0)),
                        verdict.delivers.eq(kind.last & good),
                    ]
                may_keep = kind.last | ~self.shared | self.read
                with m.If(refused | ((complete | exhausted) & may_keep)):
                    m.d.comb += verdict.valid.eq(1)
                    m.next = "IDLE"
        return m
