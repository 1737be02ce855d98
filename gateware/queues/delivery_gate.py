"""Holds deliveries until everything that they cover is visible in host memory."""

from amaranth import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import DeliveryKind, Layouts, QpStrobe
from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.queues.completer import read_done_layout
from stagecoach.gateware.queues.cq_map import CqMap
from stagecoach.gateware.queues.drain import COUNT_BITS
from stagecoach.gateware.queues.qp_choice import bit_of_qp
from stagecoach.gateware.queues.queue_drain import QueueDrain
from stagecoach.gateware.registers_apart import keep_apart
from stagecoach.hw.interface.queue_entries import CompletionFlags, CompletionOpcode

DEPTH = 64
"""A power of two."""


class DeliveryGate(wiring.Component):
    """Passes each delivery on when `placed` has pulsed as often as the delivery's `after` says.

    `placed` pulses once for each placement whose write responses are all there. Of `after` the low
    `count_bits` count: fewer than 2^`count_bits` placements may be under way, that is, between the
    delivery that they stand before and their pulse; those that `dma/host_errors.py` has room for
    and the few before it. How many end while a delivery is held does not matter: each is accounted
    to one of those that wait here, or to none (`QueueDrain`). Deliveries leave in order: RECEIVE as
    receive completions to the CQ that CREATE named, READ as `read_done`, REQUEST as a pulse of
    `request_released`, when the last completion was taken and while there is `request_room`. One
    cycle from the last pulse to a completion whose delivery came five cycles before it, two if the
    pulse before it was in the cycle before; two to the other outputs. One delivery every four
    cycles, every five if it had to wait. Up to 64 deliveries wait here before `delivery` is held
    up.

    A Send that invalidated an STag also waits until nobody uses a host address that the STag gave
    before: from a pulse of `mark` on, until `passed` tells that no FPDU reads and no atomic changes
    host memory there.

    A delivery of a QP whose bit in `failed` is set is dropped, with a pulse of `dropped_receive`,
    `dropped_read` or `dropped_request`: a placement of its QP failed. `placed_error` comes with the
    `placed` of that, its bit two cycles later at most.
    """

    def __init__(self, config: RnicConfig, count_bits: int = COUNT_BITS):
        self._config = config
        self._count_bits = count_bits
        self._layouts = layouts = Layouts(config)
        super().__init__(
            {
                "delivery": In(stream.Signature(layouts.delivery)),
                "qp_command": In(stream.Signature(layouts.qp_command)),
                "placed": In(1),
                "placed_error": In(1),
                "completion": Out(stream.Signature(layouts.completion)),
                "read_done": Out(stream.Signature(read_done_layout(config))),
                "request_released": Out(QpStrobe(config)),
                "request_room": In(1, init=1),
                "failed": In(config.qps),
                "mark": Out(1),
                "passed": In(1, init=1),
                "dropped_receive": Out(1),
                "dropped_read": Out(1),
                "dropped_request": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        layout = self._waiting_delivery()
        m.submodules.waiting = waiting = Memory(
            shape=layout, depth=DEPTH, init=[], attrs=NO_COLLISION
        )
        write, read = waiting.write_port(), waiting.read_port()
        m.submodules.drain = drain = QueueDrain(DEPTH, self._count_bits)
        level = Signal(range(DEPTH + 1))
        takes = Signal()
        waits = Signal()  # the word at the memory's output is a delivery
        m.submodules.cq_map = cq_map = CqMap(self._config)
        head = Signal(layout)
        looked_up = Signal(self._config.qp_bits)  # its QP, for two lookups
        keep_apart(looked_up, head)
        m.d.comb += [
            *(
                write.data[name].eq(self.delivery.payload[name])
                for name, _ in layout
                if name != "share"
            ),
            write.data.share.eq(drain.share),
            write.en.eq(self.delivery.valid & self.delivery.ready),
            drain.mark.eq(write.en),
            drain.begun.eq(self.delivery.payload.after[: self._count_bits]),
            self.delivery.ready.eq(~level[-1]),
            self.qp_command.ready.eq(1),
            cq_map.taken.eq(self.qp_command.valid),
            cq_map.command.eq(self.qp_command.payload),
            cq_map.qp.eq(looked_up),
        ]

        # One is taken every four cycles at most, so that `waits` and the word follow in time.
        m.d.sync += [
            level.eq(level + write.en - takes),
            waits.eq(level != 0),
            write.addr.eq(write.addr + write.en),
            read.addr.eq(read.addr + takes),
        ]

        failed = bit_of_qp(m, self.failed, looked_up)
        held = Signal()  # it waits for atomics, or for FPDUs
        is_receive = head.kind == DeliveryKind.RECEIVE
        invalidates = Signal()
        m.d.sync += [
            invalidates.eq(is_receive & (head.flags & CompletionFlags.INVALIDATED).any()),
            held.eq(invalidates & (self.mark | ~self.passed)),
        ]

        # The placements that `head` waits for, and whether that is none or one. The pulses come
        # from far and are counted a cycle late.
        placed, failure = Signal(), Signal()
        missing = drain.missing
        none, one = Signal(), Signal()
        errors = Signal(2)  # the ones before it, whose failure may not be in `failed` yet
        m.d.sync += [
            placed.eq(self.placed),
            failure.eq(self.placed & self.placed_error),
            one.eq(missing == Cat(~placed, placed)),
            errors.eq(Cat(failure, errors)),
        ]
        m.d.comb += [drain.end.eq(placed), drain.loaded.eq(head.share)]
        known = Signal()  # `none` and `one` are about `head`
        with m.If(~known):
            m.d.sync += none.eq(missing[-1] | (missing == 0) | ((missing == 1) & placed))
        with m.Elif(one & placed):
            m.d.sync += none.eq(1)
        visible = Signal()
        m.d.comb += visible.eq((none | (one & placed & ~failure)) & ~errors.any())

        completion, read_done = self.completion, self.read_done
        # A completion leaves with the pulse itself, if no other pulse is being counted.
        expects = Signal()
        leaves, left = Signal(), Signal()
        m.d.comb += leaves.eq(expects & one & ~placed & self.placed & ~self.placed_error)
        m.d.sync += [
            expects.eq(
                known & is_receive & ~held & ~failed & ~failure & ~errors.any() & ~completion.valid
            ),
            left.eq(leaves),
        ]
        cq = Signal(self._config.cq_bits)
        with m.If(~known):
            m.d.sync += cq.eq(cq_map.cq)
        for output in (completion, read_done):
            with m.If(output.ready):
                m.d.sync += output.valid.eq(0)
        with m.If(leaves):
            m.d.sync += completion.valid.eq(1)
        with m.If(~completion.valid):
            m.d.sync += [
                completion.payload.qp.eq(head.qp),
                completion.payload.cq.eq(cq),
                completion.payload.index.eq(head.index),
                completion.payload.opcode.eq(CompletionOpcode.RECEIVE),
                completion.payload.flags.eq(head.flags),
                completion.payload.detail.eq(head.detail),
                completion.payload.length.eq(head.length),
            ]
        with m.If(~read_done.valid):
            m.d.sync += [
                read_done.payload.qp.eq(head.qp),
                read_done.payload.length.eq(head.length),
            ]
        m.d.sync += [self.request_released.valid.eq(0), self.request_released.qp.eq(head.qp)]

        with m.FSM():
            # Waits for a delivery.
            with m.State("IDLE"):
                m.d.comb += takes.eq(waits)
                m.d.sync += [head.eq(read.data), looked_up.eq(read.data.qp)]
                with m.If(waits):
                    m.next = "COUNT"
            # Its share is added to what is missing.
            with m.State("COUNT"):
                m.d.comb += drain.load.eq(1)
                m.next = "LOOK"
            # Is one of them missing?
            with m.State("LOOK"):
                m.d.comb += self.mark.eq(invalidates)
                m.next = "PLACED"
            # Waits until all its placements are visible and the output is free.
            with m.State("PLACED"):
                m.d.comb += known.eq(1)
                with m.If(left):
                    m.next = "IDLE"
                with m.Elif(held):
                    pass
                with m.Elif(visible & failed):
                    # Not in the cycle in which an earlier one leaves: each is counted alone
                    with m.If(~completion.valid & ~read_done.valid):
                        m.d.comb += [
                            self.dropped_receive.eq(head.kind == DeliveryKind.RECEIVE),
                            self.dropped_read.eq(head.kind == DeliveryKind.READ),
                            self.dropped_request.eq(head.kind == DeliveryKind.REQUEST),
                        ]
                        m.next = "IDLE"
                with m.Elif(visible):
                    with m.If(head.kind == DeliveryKind.RECEIVE):
                        with m.If(~completion.valid):
                            m.d.sync += completion.valid.eq(1)
                            m.next = "IDLE"
                    with m.Elif(head.kind == DeliveryKind.REQUEST):
                        with m.If(~completion.valid & self.request_room):
                            m.d.sync += self.request_released.valid.eq(1)
                            m.next = "IDLE"
                    with m.Elif(~read_done.valid):
                        m.d.sync += read_done.valid.eq(1)
                        m.next = "IDLE"

        return m

    def _waiting_delivery(self) -> data.StructLayout:
        """A delivery with its share of the placements under way in the place of their count."""
        fields = {name: field.shape for name, field in self._layouts.delivery if name != "after"}
        return data.StructLayout({**fields, "share": self._count_bits})
