"""What stays of a segment for the next one of its QP."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.rdmap.headers import Opcode
from stagecoach.gateware.rdmap.receive.context import CONTEXT, NEW_CONTEXT, ReceiveContexts
from stagecoach.gateware.rdmap.receive.decode import KIND


class ReceiveFollowing(wiring.Component):
    """Finds the context of the segment's QP, and keeps what it is after a good segment.

    It waits for nobody: the context goes on in the cycle of `leaving`, or is that of a new
    connection with `connect`, and is found so by a segment that comes later. A Write changes
    nothing, but may be the first FPDU. Every MSN begins anew at 0 after 2**32 - 1, as that of the
    peer does; so do the bytes of a Read Response, which are never more than were asked for.

    Members
    -------
    coming: In, the QP of the segment from a cycle before it comes on. qp: In, its QP; both stand
        while the segment is at work.
    kind, payload: In, of the segment, from a cycle after it on.
    response_octets: In(32), received of the RDMA Read with it, from three cycles after it on.
    command: In(qp_command). connect, create: In(1), its QP is connected, its PD is set; not while a
        segment is at work.
    leaving: In(1), the record of the segment is taken and not dropped; four cycles after it at the
        earliest, or two for a Write or a segment that failed, after which the context is invalid.
    rfc7306: Out(1), the QP takes the messages of RFC 7306; with the segment.
    started: Out(1), the first FPDU of the connection arrived before; a cycle after it.
    context, pd, ird: Out, of its QP; two cycles after it.
    message_end: Out(33), bytes of the message in a receive entry with it; three cycles after it.
        The last bit says that they are more than a length can say.
    """

    def __init__(self, config: RnicConfig) -> None:
        self._config = config
        layouts = Layouts(config)
        levels = range(config.read_queue_depth + 1)
        super().__init__(
            {
                "coming": In(config.qp_bits),
                "qp": In(config.qp_bits),
                "kind": In(KIND),
                "payload": In(16),
                "response_octets": In(32),
                "command": In(layouts.qp_command),
                "connect": In(1),
                "create": In(1),
                "leaving": In(1),
                "rfc7306": Out(1),
                "started": Out(1),
                "context": Out(CONTEXT),
                "pd": Out(16),
                "ird": Out(levels),
                "message_end": Out(33),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.contexts = contexts = ReceiveContexts(self._config)
        m.d.comb += [
            # Asked for a cycle earlier than the rest, because it is wanted from a register.
            contexts.next_qp.eq(self.coming),
            contexts.qp.eq(self.qp),
            contexts.write_qp.eq(Mux(self.connect, self.command.qp, self.qp)),
            contexts.command.eq(self.command),
            contexts.set_pd.eq(self.create),
            contexts.connect.eq(self.connect),
            contexts.write.eq(self.leaving | self.connect),
            self.rfc7306.eq(contexts.rfc7306),
            self.started.eq(contexts.found.started),
            self.pd.eq(contexts.pd),
            self.ird.eq(contexts.ird),
        ]

        # After a segment that is no Write
        context, kind, last = self.context, self.kind, self.kind.last
        following = Signal(CONTEXT)
        m.d.sync += [
            context.eq(contexts.found),
            self.message_end.eq(context.send_mo + self.payload),
            following.eq(context),
            following.started.eq(1),
            following.send_msn.eq(context.send_msn + (kind.takes_entry & last)),
            following.request_msn.eq(context.request_msn + kind.request),
            following.atomic_msn.eq(context.atomic_msn + kind.atomic_response),
        ]
        with m.If(kind.send):
            m.d.sync += [
                following.send_mo.eq(Mux(last, 0, self.message_end)),
                following.send_begun.eq(~last),
                following.send_opcode.eq(kind.opcode),
            ]
        with m.If(kind.response):
            m.d.sync += following.response_octets.eq(Mux(last, 0, self.response_octets))

        stays = Signal()  # a Write changes nothing, but may be the first FPDU
        m.d.sync += stays.eq(kind.opcode == Opcode.RDMA_WRITE)
        m.d.comb += contexts.context.eq(Mux(stays, context, following))
        with m.If(stays):
            m.d.comb += contexts.context.started.eq(1)
        with m.If(self.connect):
            m.d.comb += contexts.context.eq(NEW_CONTEXT)
        return m
