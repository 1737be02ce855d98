"""Writes completion and event entries into their rings in host memory."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gateware.config import RnicConfig
from gateware.interfaces import WORD, Layouts, QpCommandKind, WriteClient
from gateware.queues.entries import COMPLETION_LAYOUT, EVENT_LAYOUT
from gateware.stream_buffer import StreamBuffer
from hw.interface.causes import Cause
from hw.interface.queue_entries import (
    COMPLETION_ENTRY_OCTETS,
    EVENT_ENTRY_OCTETS,
    CompletionFlags,
)

ENTRY_OCTETS = 32
ENTRY_WORDS = ENTRY_OCTETS // 8
ENTRY_BITS = 5
"""log2 of the octets of an entry."""

OUTSTANDING = 16
"""Entries whose write responses may be outstanding."""

ERRORS = 32
"""Errors that may wait; an entry is only taken while every entry inside could still fail."""

assert ENTRY_OCTETS == 1 << ENTRY_BITS
assert ENTRY_OCTETS == COMPLETION_ENTRY_OCTETS == EVENT_ENTRY_OCTETS
assert COMPLETION_LAYOUT.size == EVENT_LAYOUT.size == 8 * ENTRY_OCTETS


class RingWriter(wiring.Component):
    """Turns completions and events into entries, tells the host, and guards against overflow.

    A completion of a QP goes to its send or receive CQ as CREATE named them (other kinds of
    `qp_command` are ignored). Ring number `config.cqs` is the event queue. Entries of a ring are
    written in the order in which they were taken; `send`, `receive` and `event` take turns. Each
    stands at a multiple of its size, whatever the low bits of the ring's base are, so that it is
    one AXI burst. One entry every 8 cycles, 8 cycles from taking it to the first word.

    `cq_command` enables (from entry 0, phase 1, unarmed) or disables a ring; it is taken when no
    write is outstanding. `cq_doorbell` gives the number behind the last entry that the host has
    consumed. An entry for a full or disabled ring is dropped: a completion then raises CQ_OVERFLOW
    for its QP, with the index of the work request, at `overflow`; events are counted in
    `dropped_events`. A completion entry whose write failed raises HOST_WRITE_ERROR.

    Arming is one-shot; a doorbell that does not arm leaves it as it is. `completion_interrupt` or
    `event_interrupt` pulses when an entry that the host has not consumed is visible in an armed
    ring: at once if there is one when the ring is armed, else when the write response of the next
    one is there. In a ring armed with `solicited` only entries with `CompletionFlags.SOLICITED`
    count, unless it is armed without too; when more than 2^15 others came after the last one, it
    may pulse without any.

    `accepted` pulses for each completion or event taken, `finished` for each that was dropped or
    whose write responses are there. An event is always taken in the end, even when nobody takes
    `overflow`; completions wait then.

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
                "event": In(stream.Signature(layouts.qp_error)),
                "qp_command": In(stream.Signature(layouts.qp_command)),
                "cq_command": In(stream.Signature(layouts.cq_command)),
                "cq_doorbell": In(stream.Signature(layouts.cq_doorbell)),
                "write": Out(WriteClient()),
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

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        rings = config.cqs + 1
        event_ring = config.cqs
        ring_bits = range(rings)

        context_layout = data.StructLayout({"enabled": 1, "base": 64, "mask": 15})
        map_layout = data.StructLayout({"send_cq": config.cq_bits, "receive_cq": config.cq_bits})
        tag_layout = data.StructLayout(
            {"ring": ring_bits, "qp": config.qp_bits, "index": 16, "solicited": 1}
        )
        report_layout = data.StructLayout({"qp": config.qp_bits, "index": 16, "write_failed": 1})

        m.submodules.contexts = contexts = Memory(shape=context_layout, depth=rings, init=[])
        m.submodules.produced = produced = Memory(shape=16, depth=rings, init=[])
        m.submodules.consumed = consumed = Memory(shape=16, depth=rings, init=[])
        m.submodules.visible = visible = Memory(shape=16, depth=rings, init=[])
        # How many were visible with the last solicited one.
        m.submodules.visible_solicited = visible_solicited = Memory(shape=16, depth=rings, init=[])
        m.submodules.cq_map = cq_map = Memory(shape=map_layout, depth=config.qps, init=[])
        armed = Signal(rings)
        armed_solicited = Signal(rings)

        ring = Signal(ring_bits)
        qp = Signal(config.qp_bits)
        contexts_read, contexts_write = contexts.read_port(), contexts.write_port()
        produced_read, produced_write = produced.read_port(), produced.write_port()
        consumed_read, consumed_write = consumed.read_port(), consumed.write_port()
        visible_read, visible_write = visible.read_port(), visible.write_port()
        visible_query = visible.read_port()
        solicited_read = visible_solicited.read_port()
        solicited_write = visible_solicited.write_port()
        map_read, map_write = cq_map.read_port(), cq_map.write_port()
        for memory_port in (
            contexts_read,
            contexts_write,
            produced_read,
            produced_write,
            consumed_read,
            consumed_write,
            visible_read,
            solicited_read,
        ):
            m.d.comb += memory_port.addr.eq(ring)
        m.d.comb += [map_read.addr.eq(qp), visible_query.addr.eq(self.query_ring)]
        m.d.sync += self.query_answered.eq(visible_query.data)

        # Entries on their way to the host, and what became of them

        m.submodules.tags = tags = SyncFIFOBuffered(width=tag_layout.size, depth=OUTSTANDING)
        m.submodules.reports = reports = SyncFIFOBuffered(width=report_layout.size, depth=ERRORS)
        outstanding = Signal(range(OUTSTANDING + 1))
        issue = Signal()
        drop = Signal()  # a completion; done when `drop_taken`
        drop_event = Signal()
        drop_taken = Signal()
        m.d.sync += outstanding.eq(outstanding + issue - self.write.done)
        m.d.comb += tags.r_en.eq(self.write.done)

        done = Signal()
        done_failed = Signal()  # and it was a completion
        done_tag = Signal(tag_layout)
        first_tag = Signal(tag_layout)
        m.d.comb += first_tag.eq(tags.r_data)
        m.d.sync += [
            done.eq(self.write.done),
            done_failed.eq(self.write.done & self.write.error & (first_tag.ring != event_ring)),
            done_tag.eq(first_tag),
        ]
        visible_now = visible.read_port(domain="comb")
        consumed_now = consumed.read_port(domain="comb")
        wipe = Signal()
        m.d.comb += [
            visible_now.addr.eq(done_tag.ring),
            consumed_now.addr.eq(done_tag.ring),
            visible_write.addr.eq(Mux(wipe, ring, done_tag.ring)),
            visible_write.data.eq(Mux(wipe, 0, visible_now.data + 1)),
            visible_write.en.eq(wipe | done),
            solicited_write.addr.eq(visible_write.addr),
            solicited_write.data.eq(visible_write.data),
            solicited_write.en.eq(wipe | (done & done_tag.solicited)),
        ]
        shown = Signal()
        shown_ring = Signal(ring_bits)
        shown_visible = Signal(16)
        shown_consumed = Signal(16)
        shown_armed = Signal()
        m.d.sync += [
            shown.eq(done),
            shown_ring.eq(done_tag.ring),
            shown_visible.eq(visible_now.data),
            shown_consumed.eq(consumed_now.data),
            shown_armed.eq(
                armed.bit_select(done_tag.ring, 1)
                | (armed_solicited.bit_select(done_tag.ring, 1) & done_tag.solicited)
            ),
        ]
        # The entry just shown has the number `shown_visible`: not consumed if that is not behind.
        shown_new = Signal()
        lag = Signal(16)
        m.d.comb += [
            lag.eq(shown_visible - shown_consumed),
            shown_new.eq(shown & shown_armed & ~lag[-1]),
        ]
        wake = Signal()  # arming finds an unconsumed entry
        m.d.sync += [
            self.completion_interrupt.eq(
                (shown_new & (shown_ring != event_ring)) | (wake & (ring != event_ring))
            ),
            self.event_interrupt.eq(
                (shown_new & (shown_ring == event_ring)) | (wake & (ring == event_ring))
            ),
        ]
        arm = Signal()
        arm_solicited = Signal()
        disarm = Signal()
        for armed_kind, arm_kind in ((armed, arm), (armed_solicited, arm_solicited)):
            with m.If(shown_new):
                m.d.sync += armed_kind.bit_select(shown_ring, 1).eq(0)
            with m.If(disarm):
                m.d.sync += armed_kind.bit_select(ring, 1).eq(0)
            with m.If(arm_kind):
                m.d.sync += armed_kind.bit_select(ring, 1).eq(1)

        item = Signal(
            data.StructLayout(
                {
                    "ring": ring_bits,
                    "qp": config.qp_bits,
                    "index": 16,
                    "solicited": 1,
                    "entry": 8 * ENTRY_OCTETS,
                }
            )
        )
        report = Signal(report_layout)
        failure = Signal()
        m.d.comb += [
            failure.eq(done_failed),
            drop_taken.eq(~failure),
            reports.w_en.eq(failure | drop),
            reports.w_data.eq(report),
            report.qp.eq(Mux(failure, done_tag.qp, item.qp)),
            report.index.eq(Mux(failure, done_tag.index, item.index)),
            report.write_failed.eq(failure),
        ]
        waiting = Signal(report_layout)
        m.d.comb += [
            waiting.eq(reports.r_data),
            self.overflow.valid.eq(reports.r_rdy),
            reports.r_en.eq(self.overflow.ready),
            self.overflow.payload.qp.eq(waiting.qp),
            self.overflow.payload.index.eq(waiting.index),
            self.overflow.payload.cause.eq(
                Mux(waiting.write_failed, Cause.HOST_WRITE_ERROR, Cause.CQ_OVERFLOW)
            ),
        ]

        # A write response and a drop may end two entries in one cycle: `finished` owes them.
        owed = Signal(range(OUTSTANDING + 3))
        dropped = Signal()
        m.d.comb += [
            dropped.eq((drop & drop_taken) | drop_event),
            self.finished.eq(owed != 0),
        ]
        m.d.sync += owed.eq(owed + done + dropped - self.finished)

        # Hands an entry to the write engine: the command, then its words.

        m.submodules.words = words = StreamBuffer(WORD)
        wiring.connect(m, words.o, wiring.flipped(self.write.data))
        command, word = self.write.command, words.i
        entry_left = Signal(8 * ENTRY_OCTETS)
        words_left = Signal(range(ENTRY_WORDS + 1))
        writer_free = Signal()
        m.d.comb += [
            command.payload.octets.eq(ENTRY_OCTETS),
            word.valid.eq(~command.valid & (words_left != 0)),
            word.payload.data.eq(entry_left[:64]),
            word.payload.last.eq(words_left == 1),
            writer_free.eq(words_left == 0),
        ]
        with m.If(command.ready):
            m.d.sync += command.valid.eq(0)
        with m.If(word.valid & word.ready):
            m.d.sync += [entry_left.eq(entry_left >> 64), words_left.eq(words_left - 1)]

        # Takes what comes in

        is_event = Signal()
        is_receive = Signal()
        arming = Signal()
        solicited = Signal()
        ports_turn = Signal()
        source = Signal(range(3))
        completion = Signal(COMPLETION_LAYOUT)
        event = Signal(EVENT_LAYOUT)
        sources = (self.send, self.receive, self.event)
        chosen = Signal(range(4))
        room = Signal()  # for a completion that may fail
        tags_room = Signal()
        # One entry may have been issued since the levels were looked at.
        usable = Signal(3)
        m.d.sync += [
            room.eq(reports.level < ERRORS - OUTSTANDING - 2),
            tags_room.eq(outstanding < OUTSTANDING - 1),
            usable.eq(
                Cat(
                    self.send.valid & room & tags_room,
                    self.receive.valid & room & tags_room,
                    self.event.valid & tags_room,
                )
            ),
        ]
        m.d.comb += chosen.eq(3)
        with m.Switch(source):
            for last in range(3):
                with m.Case(last):
                    for step in (3, 2, 1):
                        with m.If(usable[(last + step) % 3]):
                            m.d.comb += chosen.eq((last + step) % 3)

        taken = Signal(self._layouts.completion)
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
            event.header.eq(self.event.payload.header),
            event.first_fpdu.eq(self.event.payload.first_fpdu),
        ]

        # The outputs of the block RAMs are slow: nothing is computed before this register.
        context = Signal(context_layout)
        number = Signal(16)
        room_taken = Signal(16)
        m.d.sync += [
            context.eq(contexts_read.data),
            number.eq(produced_read.data),
            room_taken.eq(produced_read.data - consumed_read.data),
        ]

        full = Signal()
        offset = Signal(15)
        phase = Signal()
        base = Signal(64)
        mask = Signal(15)
        enable = Signal()
        latest = Signal(16)
        distance = Signal(16)
        consumer = Signal(16)
        m.d.comb += [
            contexts_write.data.eq(Cat(enable, base, mask)),
            contexts_write.en.eq(wipe),
            produced_write.data.eq(Mux(wipe, 0, number + 1)),
            produced_write.en.eq(wipe | issue),
            consumed_write.data.eq(Mux(wipe, 0, consumer)),
            map_write.addr.eq(self.qp_command.payload.qp),
            map_write.data.send_cq.eq(self.qp_command.payload.send_cq),
            map_write.data.receive_cq.eq(self.qp_command.payload.receive_cq),
            tags.w_en.eq(issue),
            tags.w_data.eq(Cat(item.ring, item.qp, item.index, item.solicited)),
        ]

        with m.FSM():
            # After a reset no ring is enabled.
            with m.State("FORGET_ALL"):
                m.d.comb += [wipe.eq(1), consumed_write.en.eq(1)]
                m.d.sync += ring.eq(ring + 1)
                with m.If(ring == rings - 1):
                    m.next = "IDLE"
            # Waits for a command, a doorbell or an entry; the ports and the entries take turns.
            with m.State("IDLE"):
                m.d.sync += ports_turn.eq(1)
                m.d.comb += self.qp_command.ready.eq(1)
                with m.If(self.qp_command.valid):
                    m.d.comb += map_write.en.eq(
                        self.qp_command.payload.kind == QpCommandKind.CREATE
                    )
                with m.Elif(self.cq_command.valid):
                    m.d.sync += [
                        ring.eq(self.cq_command.payload.cq),
                        enable.eq(self.cq_command.payload.enable),
                        base.eq(self.cq_command.payload.base),
                        mask.eq((1 << self.cq_command.payload.log2) - 1),
                    ]
                    m.next = "DRAIN"
                with m.Elif(self.cq_doorbell.valid & (ports_turn | (chosen == 3))):
                    m.d.sync += [
                        ring.eq(self.cq_doorbell.payload.cq),
                        consumer.eq(self.cq_doorbell.payload.consumer),
                        arming.eq(self.cq_doorbell.payload.arm),
                        solicited.eq(self.cq_doorbell.payload.solicited),
                        ports_turn.eq(0),
                    ]
                    m.next = "DOORBELL"
                with m.Elif(chosen != 3):
                    m.d.sync += source.eq(chosen)
                    m.next = "TAKE"
            # Takes the entry that was chosen.
            with m.State("TAKE"):
                for number_of, entry_source in enumerate(sources):
                    m.d.comb += entry_source.ready.eq(source == number_of)
                m.d.comb += self.accepted.eq(1)
                m.d.sync += [
                    is_event.eq(source == 2),
                    is_receive.eq(taken.receive),
                    qp.eq(taken.qp),
                    item.qp.eq(taken.qp),
                    item.index.eq(taken.index),
                    item.solicited.eq(
                        (source != 2) & (taken.flags & CompletionFlags.SOLICITED).any()
                    ),
                    item.entry.eq(Mux(source == 2, event, completion)),
                    ring.eq(event_ring),
                ]
                m.next = "FIND_CQ"
            # Waits until no write is outstanding, then starts the ring anew.
            with m.State("DRAIN"):
                with m.If((outstanding == 0) & ~done & ~shown):
                    m.next = "FORGET"
            # The ring begins anew.
            with m.State("FORGET"):
                m.d.comb += [
                    wipe.eq(1),
                    consumed_write.en.eq(1),
                    disarm.eq(1),
                    self.cq_command.ready.eq(1),
                ]
                m.next = "IDLE"
            # Takes the number that the host consumed.
            with m.State("DOORBELL"):
                m.d.comb += [
                    self.cq_doorbell.ready.eq(1),
                    consumed_write.en.eq(1),
                    arm.eq(arming & ~solicited),
                    arm_solicited.eq(arming & solicited),
                ]
                m.next = "IDLE"
                with m.If(arming):
                    m.next = "ARMED"
            # From here on every write response sees that the ring is armed; those before are
            # counted in `visible`.
            with m.State("ARMED"):
                m.next = "LOOK_UP_VISIBLE"
            # The memory reads once more, now that responses under way have been counted.
            with m.State("LOOK_UP_VISIBLE"):
                m.next = "LATCH_VISIBLE"
            # The outputs of the memories are registered.
            with m.State("LATCH_VISIBLE"):
                m.d.sync += latest.eq(Mux(solicited, solicited_read.data, visible_read.data))
                m.next = "COMPARE_VISIBLE"
            # How far the host is behind.
            with m.State("COMPARE_VISIBLE"):
                m.d.sync += distance.eq(latest - consumer)
                m.next = "WAKE"
            # Pulses at once if there is something to consume.
            with m.State("WAKE"):
                with m.If(~distance[-1] & (distance != 0)):
                    m.d.comb += [wake.eq(1), disarm.eq(1)]
                m.next = "IDLE"
            # The map reads the CQs of the QP.
            with m.State("FIND_CQ"):
                m.next = "LOOK_UP_CQ"
            # The number of the ring is known.
            with m.State("LOOK_UP_CQ"):
                with m.If(~is_event):
                    m.d.sync += ring.eq(
                        Mux(is_receive, map_read.data.receive_cq, map_read.data.send_cq)
                    )
                m.next = "LOOK_UP_RING"
            # The memories read the ring.
            with m.State("LOOK_UP_RING"):
                m.d.sync += item.ring.eq(ring)
                m.next = "LATCH"
            # The outputs of the memories are registered.
            with m.State("LATCH"):
                m.next = "COMPARE"
            # The ring is here.
            with m.State("COMPARE"):
                # The bit above the mask counts the turns of the ring.
                turn_bit = Signal(16)
                m.d.comb += turn_bit.eq(Cat(1, context.mask) & ~context.mask)
                m.d.sync += [
                    offset.eq(number & context.mask),
                    phase.eq((number & turn_bit) == 0),
                    full.eq((room_taken > context.mask) | ~context.enabled),
                    base.eq(context.base),
                ]
                m.next = "ISSUE"
            # Hands the entry on, or drops it.
            with m.State("ISSUE"):
                with m.If(full):
                    with m.If(is_event):
                        m.d.comb += drop_event.eq(1)
                        m.d.sync += self.dropped_events.eq(self.dropped_events + 1)
                        m.next = "IDLE"
                    with m.Else():
                        m.d.comb += drop.eq(1)
                        with m.If(drop_taken):
                            m.next = "IDLE"
                with m.Elif(writer_free):
                    m.d.comb += issue.eq(1)
                    m.d.sync += [
                        command.valid.eq(1),
                        command.payload.address.eq(
                            Cat(Const(0, ENTRY_BITS), (base[ENTRY_BITS:] + offset)[:-1])
                        ),
                        entry_left.eq(item.entry | (phase << COMPLETION_LAYOUT["phase"].offset)),
                        words_left.eq(ENTRY_WORDS),
                    ]
                    m.next = "IDLE"

        return m


assert COMPLETION_LAYOUT["phase"].offset == EVENT_LAYOUT["phase"].offset
