"""Completes the bookkeeping of an FPDU that was handed over: where its QP stands after it."""

from amaranth.hdl import Elaboratable, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.rdmap.transmit.context import progress_layout, sends_bits
from stagecoach.gateware.rdmap.transmit.message import piece_layout
from stagecoach.gateware.registers_apart import keep_apart
from stagecoach.hw.interface.wire import FIRST_MSN


class TransmitComplete(wiring.Component):
    """Stores the progress of a QP, and has its queues drop what was sent.

    That happens a cycle after the FPDU was handed over, or an atomic that begins. Whether its
    checks are good does not matter: if they are not, the QP sends nothing any more. So what is
    asked of the peer is pushed as early, and the next visit counts it. Until the QP stops, a peer
    may answer a Read that it was never asked for: each segment is checked as any other, so it is
    placed inside the region of the sink or not at all, and the Read completes with its error.
    Of an atomic that begins nothing is sent: only that it has begun, and whose turn it is now, is
    stored.

    It waits for nothing and keeps nobody waiting.

    Members
    -------
    piece: In(piece_layout), a piece of the FPDU; it stands from the cycle before `handed`, or
        `begun`, until the one after it. offset: In(32), bytes of its element sent before.
    last: In(1), the FPDU ends its message. sent_length: In(17), bytes of the FPDU.
    handed: In(1), a pulse: the FPDU was handed over. begun: In(1), the same of an atomic.
    restart: In(1), a pulse: a connection starts, and `retired`, In, of its sends have ended;
        `store_restarted`, In(1), in the next cycle: that is stored.
    followed: Out(progress), to be stored with `store`, Out(1).
    pop, popping, pop_both: Out, of the `EntryPort`. pop_inbound: Out(1), of the inbound requests.
    push: Out(1), of `asked`, Out(outstanding_request).
    """

    def __init__(self, config: RnicConfig):
        self._progress = progress_layout(config)
        super().__init__(
            {
                "piece": In(piece_layout(config)),
                "offset": In(32),
                "last": In(1),
                "sent_length": In(17),
                "handed": In(1),
                "begun": In(1),
                "restart": In(1),
                "retired": In(sends_bits(config)),
                "store_restarted": In(1),
                "followed": Out(self._progress),
                "store": Out(1),
                "pop": Out(1),
                "popping": Out(1),
                "pop_both": Out(1),
                "pop_inbound": Out(1),
                "push": Out(1),
                "asked": Out(Layouts(config).outstanding_request),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        self._connect_progress(m)
        piece, message = self.piece, self.piece.message
        storing = Signal()
        ends_send = self.handed & self.last & ~message.responding
        popping = Signal()
        keep_apart(popping, self.pop)
        m.d.comb += [
            self.popping.eq(popping),
            self.store.eq(storing | self.store_restarted),
        ]
        m.d.sync += [
            storing.eq(self.handed | self.begun),
            self.pop.eq(ends_send),
            popping.eq(ends_send),
            self.pop_both.eq(message.takes_two),
            self.pop_inbound.eq(self.handed & self.last & message.responding),
            self.push.eq(self.handed & (message.is_read | message.is_atomic)),
            self.asked.atomic.eq(message.is_atomic),
            self.asked.sink_stag.eq(piece.element_stag),
            self.asked.sink_tagged_offset.eq(piece.element_offset),
            self.asked.length.eq(Mux(message.is_atomic, message.index, message.entry.length)),
        ]
        return m

    def _connect_progress(self, m: Module) -> None:
        """Where the QP stands after the FPDU."""
        piece, message, last = self.piece, self.piece.message, self.last
        progress, followed = message.progress, Signal(self._progress, reset_less=True)
        responding, begins_atomic = message.responding, message.begins_atomic
        is_request = message.is_read | message.is_atomic
        is_send = ~responding & ~message.tagged & ~is_request & ~message.is_local
        sent_length = Mux(message.is_local | begins_atomic, 0, self.sent_length)
        m.d.comb += self.followed.eq(followed)
        m.d.sync += [
            followed.eq(progress),
            followed.position.eq(progress.position + sent_length),
            followed.active.eq(~last & ~begins_atomic),
            followed.responding.eq(responding),
            followed.element.eq(Mux(last | responding, 0, piece.element + piece.exhausted)),
            followed.offset.eq(
                Mux(last | responding | piece.exhausted, 0, self.offset + piece.octets)
            ),
            followed.done.eq(Mux(last | begins_atomic, 0, progress.done + piece.payload)),
            followed.remaining.eq(message.remaining - piece.payload),
            followed.prefer_response.eq(
                Mux(last | begins_atomic, ~responding, progress.prefer_response)
            ),
            followed.send_msn.eq(progress.send_msn + (is_send & last)),
            followed.read_msn.eq(progress.read_msn + is_request),
            followed.response_msn.eq(progress.response_msn + (responding & last)),
            followed.atomic_begun.eq(
                (progress.atomic_begun & ~message.answers_atomic) | begins_atomic
            ),
            followed.atomic_response_msn.eq(progress.atomic_response_msn + message.answers_atomic),
            followed.atomic_identifier.eq(progress.atomic_identifier + message.is_atomic),
            followed.issued.eq(progress.issued + (~responding & last)),
        ]
        with m.If(self.restart):
            m.d.sync += [
                followed.eq(0),
                followed.send_msn.eq(FIRST_MSN),
                followed.read_msn.eq(FIRST_MSN),
                followed.response_msn.eq(FIRST_MSN),
                followed.atomic_response_msn.eq(FIRST_MSN),
                followed.atomic_identifier.eq(FIRST_MSN),
                followed.issued.eq(self.retired),
            ]
