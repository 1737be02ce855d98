"""Tells the host of new entries in the rings that it has armed."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gateware.config import RnicConfig
from gateware.interfaces import Layouts


class RingNotifier(wiring.Component):
    """Counts the entries of each ring whose write responses are there, and pulses interrupts.

    Arming is one-shot; a doorbell that does not arm leaves it as it is. `completion_interrupt` or
    `event_interrupt` pulses when an entry that the host has not consumed is visible in an armed
    ring: at once if there is one when the ring is armed, else when the write response of the next
    one is there. In a ring armed with `solicited` only solicited entries count, unless it is armed
    without too; when more than 2^15 others came after the last one, it may pulse without any.

    A doorbell is taken in one cycle and has its effect six cycles later, if it arms.

    Members
    -------
    doorbell: `cq_doorbell`, the number behind the last entry that the host has consumed. Ring
        number `config.cqs` is the event queue. hold: In(1), none is taken in this cycle.
    done, done_ring, done_solicited: an entry's write response is there. One is counted per cycle.
    settled: nothing of `done` or `doorbell` is under way.
    wipe, wipe_ring: forget a ring; only when `settled`, and with `hold`.
    query_ring, query_answered: visible entries of the ring, mod 2^16, 3 cycles ago, or 4 while a
        doorbell arms.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        rings = range(config.cqs + 1)
        super().__init__(
            {
                "doorbell": In(stream.Signature(Layouts(config).cq_doorbell)),
                "hold": In(1),
                "done": In(1),
                "done_ring": In(rings),
                "done_solicited": In(1),
                "settled": Out(1),
                "wipe": In(1),
                "wipe_ring": In(rings),
                "completion_interrupt": Out(1),
                "event_interrupt": Out(1),
                "query_ring": In(rings),
                "query_answered": Out(16),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rings = self._config.cqs + 1
        event_ring = self._config.cqs

        m.submodules.consumed = consumed = Memory(shape=16, depth=rings, init=[])
        m.submodules.visible = visible = Memory(shape=16, depth=rings, init=[])
        # How many were visible with the last solicited one.
        m.submodules.visible_solicited = visible_solicited = Memory(shape=16, depth=rings, init=[])
        consumed_write = consumed.write_port()
        consumed_now = consumed.read_port(domain="comb")
        visible_write = visible.write_port()
        visible_now = visible.read_port(domain="comb")
        visible_read = visible.read_port()
        solicited_write, solicited_read = (
            visible_solicited.write_port(),
            visible_solicited.read_port(),
        )
        armed = Signal(rings)
        armed_solicited = Signal(rings)

        ring = Signal(range(rings))  # of the doorbell
        doorbell = self.doorbell.payload
        taken = Signal()
        looks_up = Signal()
        latches = Signal()  # what was looked up
        m.d.comb += [
            taken.eq(self.doorbell.valid & self.doorbell.ready),
            consumed_write.addr.eq(Mux(self.wipe, self.wipe_ring, doorbell.cq)),
            consumed_write.data.eq(Mux(self.wipe, 0, doorbell.consumer)),
            consumed_write.en.eq(self.wipe | taken),
            # For the query, but when a doorbell needs it.
            visible_read.addr.eq(Mux(looks_up, ring, self.query_ring)),
            solicited_read.addr.eq(ring),
            consumed_now.addr.eq(self.done_ring),
            visible_now.addr.eq(self.done_ring),
            visible_write.addr.eq(Mux(self.wipe, self.wipe_ring, self.done_ring)),
            visible_write.data.eq(Mux(self.wipe, 0, visible_now.data + 1)),
            visible_write.en.eq(self.wipe | self.done),
            solicited_write.addr.eq(visible_write.addr),
            solicited_write.data.eq(visible_write.data),
            solicited_write.en.eq(self.wipe | (self.done & self.done_solicited)),
        ]
        with m.If(~latches):
            m.d.sync += self.query_answered.eq(visible_read.data)

        shown = Signal()
        shown_ring = Signal(range(rings))
        shown_visible = Signal(16)
        shown_consumed = Signal(16)
        shown_armed = Signal()
        m.d.sync += [
            shown.eq(self.done),
            shown_ring.eq(self.done_ring),
            shown_visible.eq(visible_now.data),
            shown_consumed.eq(consumed_now.data),
            shown_armed.eq(
                armed.bit_select(self.done_ring, 1)
                | (armed_solicited.bit_select(self.done_ring, 1) & self.done_solicited)
            ),
        ]
        # The entry just shown has the number `shown_visible`: not consumed if that is not behind.
        shown_new = Signal()
        lag = Signal(16)
        wake = Signal()  # arming finds an unconsumed entry
        m.d.comb += [
            lag.eq(shown_visible - shown_consumed),
            shown_new.eq(shown & shown_armed & ~lag[-1]),
        ]
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
        m.d.comb += disarm.eq(wake)
        for armed_kind, arm_kind in ((armed, arm), (armed_solicited, arm_solicited)):
            with m.If(shown_new):
                m.d.sync += armed_kind.bit_select(shown_ring, 1).eq(0)
            with m.If(disarm):
                m.d.sync += armed_kind.bit_select(ring, 1).eq(0)
            with m.If(self.wipe):
                m.d.sync += armed_kind.bit_select(self.wipe_ring, 1).eq(0)
            with m.If(arm_kind):
                m.d.sync += armed_kind.bit_select(ring, 1).eq(1)

        solicited = Signal()
        latest = Signal(16)
        consumer = Signal(16)
        distance = Signal(16)
        with m.FSM() as fsm:
            # Waits for a doorbell and takes the number that the host consumed.
            with m.State("IDLE"):
                m.d.comb += self.doorbell.ready.eq(~self.hold)
                m.d.sync += [
                    ring.eq(doorbell.cq),
                    consumer.eq(doorbell.consumer),
                    solicited.eq(doorbell.solicited),
                ]
                with m.If(taken & doorbell.arm):
                    m.next = "ARM"
            # Arms.
            with m.State("ARM"):
                m.d.comb += [arm.eq(~solicited), arm_solicited.eq(solicited)]
                m.next = "ARMED"
            # From here on every write response sees that the ring is armed; those before are
            # counted in `visible`.
            with m.State("ARMED"):
                m.next = "LOOK_UP"
            # The memories read, now that responses under way have been counted.
            with m.State("LOOK_UP"):
                m.d.comb += looks_up.eq(1)
                m.next = "LATCH"
            # The outputs of the memories are registered.
            with m.State("LATCH"):
                m.d.comb += latches.eq(1)
                m.d.sync += latest.eq(Mux(solicited, solicited_read.data, visible_read.data))
                m.next = "COMPARE"
            # How far the host is behind.
            with m.State("COMPARE"):
                m.d.sync += distance.eq(latest - consumer)
                m.next = "WAKE"
            # Pulses at once if there is something to consume.
            with m.State("WAKE"):
                m.d.comb += wake.eq(~distance[-1] & (distance != 0))
                m.next = "IDLE"
            m.d.comb += self.settled.eq(fsm.ongoing("IDLE") & ~self.done & ~shown)
        return m
