"""Holds deliveries until everything that they cover is visible in host memory."""

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from gateware.config import RnicConfig
from gateware.interfaces import DeliveryKind, Layouts, QpStrobe
from gateware.queues.completer import read_done_layout
from hw.interface.queue_entries import CompletionFlags, CompletionOpcode

DEPTH = 64


class DeliveryGate(wiring.Component):
    """Passes each delivery on when `placed` has pulsed as often as the delivery's `after` says.

    `placed` pulses once for each placement whose write responses are all there; both counts run
    mod 2^16, and at most 2^15 placements may be under way. Deliveries leave in order: RECEIVE as
    receive completions, READ as `read_done`, REQUEST as a pulse of `request_released`, when the
    last completion was taken and while there is `request_room`. 4 cycles from the last pulse to the
    output, one delivery every 3 cycles. Up to 64 deliveries wait here before `delivery` is held
    up.

    A Send that invalidated an STag also waits until nobody uses a host address that the STag gave
    before: while an atomic of its QP, whose bit in `changing` is set then, is under way, and, from
    a pulse of `mark` on, until `passed` tells that no FPDU reads host memory there.

    A delivery of a QP whose bit in `failed` is set is dropped, with a pulse of `dropped_receive`,
    `dropped_read` or `dropped_request`: a placement of its QP failed.
    """

    def __init__(self, config: RnicConfig):
        self._layouts = layouts = Layouts(config)
        super().__init__(
            {
                "delivery": In(stream.Signature(layouts.delivery)),
                "placed": In(1),
                "completion": Out(stream.Signature(layouts.completion)),
                "read_done": Out(stream.Signature(read_done_layout(config))),
                "request_released": Out(QpStrobe(config)),
                "request_room": In(1, init=1),
                "failed": In(config.qps),
                "changing": In(config.qps),
                "mark": Out(1),
                "passed": In(1, init=1),
                "dropped_receive": Out(1),
                "dropped_read": Out(1),
                "dropped_request": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        layout = self._layouts.delivery
        m.submodules.fifo = fifo = SyncFIFOBuffered(width=layout.size, depth=DEPTH)
        m.d.comb += [
            fifo.w_data.eq(self.delivery.payload),
            fifo.w_en.eq(self.delivery.valid),
            self.delivery.ready.eq(fifo.w_rdy),
        ]

        placements = Signal(16)
        m.d.sync += placements.eq(placements + self.placed)

        head = Signal(layout)
        beyond = Signal(16)
        failed = Signal()  # the QP of `head` is in `self.failed`
        m.d.sync += failed.eq(self.failed.bit_select(head.qp, 1))
        held = Signal()  # it waits for the atomic of its QP, or for FPDUs
        invalidates = (head.kind == DeliveryKind.RECEIVE) & (
            head.flags & CompletionFlags.INVALIDATED
        ).any()
        changing = self.changing.bit_select(head.qp, 1)
        m.d.sync += held.eq(invalidates & (changing | self.mark | ~self.passed))
        # A negative difference: placements are missing.
        m.d.sync += beyond.eq(placements - head.after)

        for output in (self.completion, self.read_done):
            with m.If(output.ready):
                m.d.sync += output.valid.eq(0)
        m.d.sync += [self.request_released.valid.eq(0), self.request_released.qp.eq(head.qp)]

        with m.FSM():
            # Waits for a delivery.
            with m.State("IDLE"):
                m.d.comb += fifo.r_en.eq(1)
                m.d.sync += head.eq(fifo.r_data)
                with m.If(fifo.r_rdy):
                    m.next = "COMPARE"
            # The difference is taken.
            with m.State("COMPARE"):
                m.d.comb += self.mark.eq(invalidates)
                m.next = "PLACED"
            # Waits until all its placements are visible and the output is free.
            with m.State("PLACED"):
                with m.If(held):
                    pass
                with m.Elif(~beyond[-1] & failed):
                    # Not in the cycle in which an earlier one leaves: each is counted alone
                    with m.If(~self.completion.valid & ~self.read_done.valid):
                        m.d.comb += [
                            self.dropped_receive.eq(head.kind == DeliveryKind.RECEIVE),
                            self.dropped_read.eq(head.kind == DeliveryKind.READ),
                            self.dropped_request.eq(head.kind == DeliveryKind.REQUEST),
                        ]
                        m.next = "IDLE"
                with m.Elif(~beyond[-1]):
                    with m.If(head.kind == DeliveryKind.RECEIVE):
                        with m.If(~self.completion.valid):
                            m.d.sync += [
                                self.completion.valid.eq(1),
                                self.completion.payload.qp.eq(head.qp),
                                self.completion.payload.receive.eq(1),
                                self.completion.payload.index.eq(head.index),
                                self.completion.payload.opcode.eq(CompletionOpcode.RECEIVE),
                                self.completion.payload.flags.eq(head.flags),
                                self.completion.payload.detail.eq(head.detail),
                                self.completion.payload.length.eq(head.length),
                            ]
                            m.next = "IDLE"
                    with m.Elif(head.kind == DeliveryKind.REQUEST):
                        with m.If(~self.completion.valid & self.request_room):
                            m.d.sync += self.request_released.valid.eq(1)
                            m.next = "IDLE"
                    with m.Elif(~self.read_done.valid):
                        m.d.sync += [
                            self.read_done.valid.eq(1),
                            self.read_done.payload.qp.eq(head.qp),
                            self.read_done.payload.length.eq(head.length),
                        ]
                        m.next = "IDLE"

        return m
