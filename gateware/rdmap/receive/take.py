"""Takes a segment, or a command, when none is at work: the first step of the judge."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpCommandKind
from stagecoach.gateware.registers_apart import keep_apart


class ReceiveTake(wiring.Component):
    """Takes one segment, which is then at `work` until that is ready, or carries a command out.

    A command goes before a segment if it has waited for a cycle. It is taken while nothing is at
    work and all records before are dealt with, two cycles after it came at the earliest, one every
    three cycles. A segment is taken in the cycle after the one in which it came, at the earliest;
    it is at `work` in the next cycle. While `work` is not ready nothing is taken; while `idle` does
    not come no segment is taken, either, if a command waits.

    Members
    -------
    qp_command: In(stream qp_command). segment: In(stream segment).
    idle: In(1), all records before are dealt with.
    command: Out(qp_command), the one that came last; `connect` and `create`: Out(1), pulses in the
        cycle in which it is taken, if it is of that kind.
    begin: Out(1), a pulse when a segment is taken.
    work: Out(stream segment), the one that was taken.
    coming: Out, the QP that `work` has in the next cycle, if there is a segment then. qp: Out, the
        QP of `work`. Each is a register for its own users. arriving: Out, what `coming` is in the
        next cycle, unless `stays`: then it is what it is now.
    """

    def __init__(self, config: RnicConfig) -> None:
        layouts = Layouts(config)
        self._segment = layouts.segment
        super().__init__(
            {
                "qp_command": In(stream.Signature(layouts.qp_command)),
                "segment": In(stream.Signature(layouts.segment)),
                "idle": In(1),
                "command": Out(layouts.qp_command),
                "connect": Out(1),
                "create": Out(1),
                "begin": Out(1),
                "work": Out(stream.Signature(layouts.segment)),
                "coming": Out(config.qp_bits),
                "arriving": Out(config.qp_bits),
                "stays": Out(1),
                "qp": Out(config.qp_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        segment = Signal(self._segment)
        keep_apart(self.qp, segment)

        # A command, and in the cycle in which it is taken what it does
        command_waits = Signal()
        takes_command = Signal()
        kind = self.qp_command.p.kind
        m.d.sync += [
            command_waits.eq(self.qp_command.valid & ~self.qp_command.ready),
            self.command.eq(self.qp_command.payload),
            self.connect.eq(takes_command & (kind == QpCommandKind.CONNECT)),
            self.create.eq(takes_command & (kind == QpCommandKind.CREATE)),
        ]

        # What is far asks by registers: what they are while a segment is awaited is known a cycle
        # before.
        takes = Signal()  # the segment that came; only in IDLE
        m.d.sync += takes.eq(0)
        m.d.comb += [
            self.arriving.eq(self.segment.payload.qp),
            self.segment.ready.eq(takes),
            self.begin.eq(takes),
            self.work.payload.eq(segment),
        ]

        def wait() -> None:
            """IDLE follows; a command that has waited by now goes before a segment."""
            m.d.sync += takes.eq(self.segment.valid & ~command_waits)
            m.next = "IDLE"

        with m.If(~self.stays):
            m.d.sync += self.coming.eq(self.arriving)
        with m.FSM():
            # Takes a segment, or a command.
            with m.State("IDLE"):
                m.d.comb += takes_command.eq(command_waits & self.idle & ~takes)
                m.d.sync += [
                    segment.eq(self.segment.payload),
                    self.qp.eq(self.segment.payload.qp),
                ]
                wait()
                with m.If(takes_command):
                    m.next = "COMMAND"
                with m.If(takes):
                    m.d.sync += takes.eq(0)
                    m.next = "WORK"
            # The command is carried out; `command_waits` is still about it.
            with m.State("COMMAND"):
                m.d.comb += self.qp_command.ready.eq(1)
                wait()
            # Waits until the segment was judged, and its record taken.
            with m.State("WORK"):
                m.d.comb += [self.work.valid.eq(1), self.stays.eq(~self.work.ready)]
                with m.If(self.work.ready):
                    wait()
        return m
