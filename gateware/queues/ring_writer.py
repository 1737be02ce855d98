"""Writes completion and event entries into their rings in host memory."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.host_memory import WriteClient
from stagecoach.gateware.layouts import Layouts, QpStrobe
from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.queues.entries import COMPLETION_LAYOUT, EVENT_LAYOUT
from stagecoach.gateware.queues.entry_writer import ENTRY_OCTETS, EntryWriter, entry_tag
from stagecoach.gateware.queues.qp_errors import QpErrors
from stagecoach.gateware.queues.ring_notifier import RingNotifier
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import CompletionFlags

ENTRY_BITS = 5
"""log2 of the bytes of an entry."""

assert ENTRY_OCTETS == 1 << ENTRY_BITS
assert COMPLETION_LAYOUT.size == EVENT_LAYOUT.size == 8 * ENTRY_OCTETS
assert COMPLETION_LAYOUT["phase"].offset == EVENT_LAYOUT["phase"].offset


class RingWriter(wiring.Component):
    """Turns completions and events into entries, tells the host, and guards against overflow.

    Ring number `config.cqs` is the event queue. Entries of a ring are written in the order in which
    they were taken; `send`, `receive` and `event` take turns. Each stands at a multiple of its
    size, whatever the low bits of the ring's base are, so that it is one AXI burst. One entry every
    five cycles; from a completion in an idle writer to the command of its write 5 cycles, to its
    first word 7, if it is one of `receive`, else one more.

    A ring has 2^0 to 2^15 entries; running numbers have 16 bits.
    `cq_command` enables (from entry 0, phase 1, unarmed) or disables a ring; it is taken when no
    write is outstanding. `cq_doorbell` gives the number after the last entry that the host has
    consumed. An entry for a full or disabled ring is dropped: a completion then raises CQ_OVERFLOW
    for its QP at `overflow`; events are counted in `dropped_events`, mod 2^16. A completion entry
    whose write failed raises HOST_WRITE_ERROR. Errors of a QP that come before the first is taken
    become one; `forget` forgets one that is not named yet, when its QP is another one.
    Arming and interrupts are those of `RingNotifier`; solicited are the entries with
    `CompletionFlags.SOLICITED`.

    `accepted` pulses for each completion or event taken, `finished` for each in the same order:
    when its write responses are there or, if it was dropped, when they are there for all before
    it. Everything is taken in the end, even when nobody takes `overflow`.

    `query_answered` counts, mod 2^16, the entries of `query_ring` whose write responses are there,
    also those that failed, since the ring was enabled: as it was 3 cycles ago.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        layouts = Layouts(config)
        self._layouts = layouts
        super().__init__(
            {
                "send": In(stream.Signature(layouts.completion)),
                "receive": In(stream.Signature(layouts.completion)),
                "event": In(stream.Signature(layouts.event)),
                "cq_command": In(stream.Signature(layouts.cq_command)),
                "cq_doorbell": In(stream.Signature(layouts.cq_doorbell)),
                "write": Out(WriteClient()),
                "forget": In(QpStrobe(config)),
                "overflow": Out(stream.Signature(layouts.qp_error)),
                "completion_interrupt": Out(1),
                "event_interrupt": Out(1),
                "accepted": Out(1),
                "finished": Out(1),
                "dropped_events": Out(16),
                "query_ring": In(range(config.cqs + 1)),
                "query_answered": Out(16),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.writer = writer = EntryWriter(config)
        m.submodules.notifier = notifier = RingNotifier(config)
        m.submodules.errors = errors = QpErrors(config, Cause.CQ_OVERFLOW, Cause.HOST_WRITE_ERROR)
        wiring.connect(m, wiring.flipped(self.write), writer.write)
        wiring.connect(m, wiring.flipped(self.cq_doorbell), notifier.doorbell)
        wiring.connect(m, wiring.flipped(self.forget), errors.forget)
        wiring.connect(m, errors.error, wiring.flipped(self.overflow))
        done = writer.done
        failed = Signal()  # a completion
        lost = Signal()  # a completion, for which there is no room
        lost_qp = Signal(config.qp_bits)
        m.d.comb += [
            notifier.done.valid.eq(done.valid),
            notifier.done.p.ring.eq(done.p.tag.ring),
            notifier.done.p.solicited.eq(done.p.tag.solicited),
            done.ready.eq(notifier.done.ready),
            notifier.query_ring.eq(self.query_ring),
            self.query_answered.eq(notifier.query_answered),
            self.completion_interrupt.eq(notifier.completion_interrupt),
            self.event_interrupt.eq(notifier.event_interrupt),
            failed.eq(done.valid & done.ready & done.p.failed & (done.p.tag.ring != config.cqs)),
        ]
        m.d.sync += [
            errors.fail.valid.eq(failed | lost),
            errors.fail.qp.eq(Mux(failed, done.p.tag.qp, lost_qp)),
            errors.which.eq(failed),
        ]
        dropped = Signal()
        self._elaborate_entries(m, writer, notifier, lost, lost_qp, dropped)
        # Nothing is dropped while an entry is to finish.
        m.d.sync += self.finished.eq((done.valid & done.ready) | dropped)
        return m

    def _elaborate_entries(
        self,
        m: Module,
        writer: EntryWriter,
        notifier: RingNotifier,
        lost: Signal,
        lost_qp: Signal,
        dropped: Signal,
    ) -> None:
        """Take what comes in, one at a time, and find its place."""
        rings = self._config.cqs + 1
        event_ring = self._config.cqs
        context_layout = data.StructLayout({"enabled": 1, "base": 64 - ENTRY_BITS, "log2": 4})
        m.submodules.contexts = contexts = Memory(
            shape=context_layout, depth=rings, init=[], attrs=NO_COLLISION
        )
        m.submodules.produced = produced = Memory(shape=16, depth=rings, init=[])
        m.submodules.consumed = consumed = Memory(shape=16, depth=rings, init=[])
        contexts_read, contexts_write = contexts.read_port(), contexts.write_port()
        produced_read, produced_write = produced.read_port(), produced.write_port()
        consumed_read, consumed_write = consumed.read_port(), consumed.write_port()
        ring = Signal(range(rings))
        wipe = Signal()
        wanted = Signal(context_layout)  # by the command
        command, doorbell = self.cq_command.payload, self.cq_doorbell.payload
        rung = Signal()
        for port in (contexts_read, contexts_write, produced_read, produced_write):
            m.d.comb += port.addr.eq(ring)
        m.d.comb += [
            consumed_read.addr.eq(Mux(notifier.looks, notifier.ring, ring)),
            notifier.consumed.eq(consumed_read.data),
        ]
        # The outputs of the block RAMs are slow: nothing is computed before these registers.
        context = Signal(context_layout)
        number = Signal(16)
        room_taken = Signal(16)
        m.d.sync += [
            context.eq(contexts_read.data),
            number.eq(produced_read.data),
            room_taken.eq(produced_read.data - consumed_read.data),
        ]

        # The choice among the sources: not again the last one if another one can. All are far: only
        # `receive` counts in the cycle in which it comes, the others a cycle later.
        sources = (self.send, self.receive, self.event)
        source = Signal(range(3))
        sends, tells, commanded = Signal(), Signal(), Signal()
        waits = Signal()  # `receive` does, for another one
        event_first = Signal()  # of those
        m.d.sync += [
            sends.eq(self.send.valid & ~self.send.ready),
            tells.eq(self.event.valid & ~self.event.ready),
            commanded.eq(self.cq_command.valid & ~self.cq_command.ready),
        ]
        m.d.comb += event_first.eq(tells & ~((source == 2) & sends))
        with m.Switch(source):
            with m.Case(1):
                m.d.comb += waits.eq(sends | tells)
            with m.Case(2):
                m.d.comb += waits.eq(sends)
        receives = self.receive.valid & ~waits

        taken = Signal(self._layouts.completion)
        completion = Signal(COMPLETION_LAYOUT)
        event = Signal(EVENT_LAYOUT)
        is_event = Signal()
        m.d.comb += [
            taken.eq(Mux(source == 0, self.send.payload, self.receive.payload)),
            completion.qp.eq(taken.qp),
            completion.index.eq(taken.index),
            completion.length.eq(taken.length),
            completion.opcode.eq(taken.opcode),
            completion.flags.eq(taken.flags),
            # One of them counts at most, as the flags say.
            completion.invalidated_stag.eq(taken.detail[:32]),
            completion.immediate_data.eq(taken.detail),
            event.qp.eq(self.event.payload.qp),
            event.index.eq(self.event.payload.index),
            event.ulpdu_length.eq(self.event.payload.ulpdu_length),
            event.cause.eq(self.event.payload.cause),
            event.srq.eq(self.event.payload.srq),
            event.header.eq(self.event.payload.header),
        ]

        entry = Signal(8 * ENTRY_OCTETS)
        tag = Signal(entry_tag(self._config))
        full = Signal()
        phase = Signal()
        address = Signal(64 - ENTRY_BITS)
        issue = Signal()
        issued = Signal()  # a cycle ago: its ring still stands
        m.d.sync += issued.eq(issue)
        m.d.comb += [
            writer.i.payload.tag.eq(tag),
            writer.i.payload.address.eq(Cat(Const(0, ENTRY_BITS), address)),
            writer.i.payload.entry.eq(entry | (phase << COMPLETION_LAYOUT["phase"].offset)),
            issue.eq(writer.i.valid & writer.i.ready),
            contexts_write.data.eq(wanted),
            contexts_write.en.eq(wipe),
            produced_write.data.eq(Mux(wipe, 0, number + 1)),
            produced_write.en.eq(wipe | issued),
            rung.eq(self.cq_doorbell.valid & self.cq_doorbell.ready),
            consumed_write.addr.eq(Mux(wipe, ring, doorbell.cq)),
            consumed_write.data.eq(Mux(wipe, 0, doorbell.consumer)),
            consumed_write.en.eq(wipe | rung),
            notifier.wipe.eq(wipe),
            notifier.wipe_ring.eq(ring),
            lost_qp.eq(tag.qp),
        ]

        # As wide as the numbers: full and empty rings of 2^15 entries differ in the top bit alone.
        mask = Signal.like(number)
        m.d.comb += mask.eq(Cat(bit < context.log2 for bit in range(len(mask))))
        m.d.sync += address.eq(context.base + (number & mask))

        with m.FSM() as fsm:
            # After a reset no ring is enabled.
            with m.State("FORGET_ALL"):
                m.d.comb += wipe.eq(1)
                m.d.sync += ring.eq(ring + 1)
                with m.If(ring == rings - 1):
                    m.next = "IDLE"
            # Waits for a command or an entry.
            with m.State("IDLE"):
                other_ring = Mux(event_first, event_ring, self.send.payload.cq)
                m.d.sync += ring.eq(Mux(receives, self.receive.payload.cq, other_ring))
                with m.If(commanded):
                    m.d.sync += [
                        ring.eq(command.cq),
                        wanted.enabled.eq(command.enable),
                        wanted.base.eq(command.base[ENTRY_BITS:]),
                        wanted.log2.eq(command.log2),
                    ]
                    m.next = "DRAIN"
                with m.Elif(writer.room & (self.receive.valid | sends | tells)):
                    m.d.sync += source.eq(Mux(receives, 1, Mux(event_first, 2, 0)))
                    m.next = "TAKE"
            # Waits until no write is outstanding, then starts the ring anew.
            with m.State("DRAIN"):
                with m.If(writer.idle & notifier.settled):
                    m.next = "FORGET"
            # The ring begins anew.
            with m.State("FORGET"):
                m.d.comb += [wipe.eq(1), self.cq_command.ready.eq(1)]
                m.next = "IDLE"
            # Takes the entry that was chosen; the memories read its ring.
            with m.State("TAKE"):
                for number_of, entry_source in enumerate(sources):
                    m.d.comb += entry_source.ready.eq(source == number_of)
                m.d.comb += self.accepted.eq(1)
                m.d.sync += [
                    is_event.eq(source == 2),
                    tag.ring.eq(ring),
                    tag.qp.eq(taken.qp),
                    tag.solicited.eq(
                        (source != 2) & (taken.flags & CompletionFlags.SOLICITED).any()
                    ),
                    entry.eq(Mux(source == 2, event, completion)),
                ]
                m.next = "LATCH"
            # The outputs of the memories are registered.
            with m.State("LATCH"):
                m.next = "COMPARE"
            # The ring is here.
            with m.State("COMPARE"):
                m.d.sync += [
                    # The bit above the mask counts the turns of the ring.
                    phase.eq(~number.bit_select(context.log2, 1)),
                    full.eq((room_taken & ~mask).any() | ~context.enabled),
                ]
                m.next = "ISSUE"
            # Hands the entry on; or drops it, but not before all entries before it are visible.
            with m.State("ISSUE"):
                m.d.comb += [writer.i.valid.eq(~full), dropped.eq(full & writer.idle)]
                m.d.comb += lost.eq(dropped & ~is_event)
                m.d.sync += self.dropped_events.eq(self.dropped_events + (dropped & is_event))
                with m.If(Mux(full, writer.idle, writer.i.ready)):
                    m.next = "IDLE"
            m.d.comb += notifier.busy.eq(fsm.ongoing("TAKE"))
            m.d.comb += notifier.hold.eq(
                fsm.ongoing("FORGET_ALL") | fsm.ongoing("DRAIN") | fsm.ongoing("FORGET")
            )
