"""Tells the host of new entries in the rings that it has armed."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.memories import NO_COLLISION


class RingNotifier(wiring.Component):
    """Counts the entries of each ring whose write responses are there, and pulses interrupts.

    Arming is one-shot; a doorbell that does not arm leaves it as it is. `completion_interrupt` or
    `event_interrupt` pulses when an entry that the host has not consumed is visible in an armed
    ring: at once if there is one when the ring is armed, else when the write response of the next
    one is there. In a ring armed with `solicited` only solicited entries count, unless it is armed
    without too; when more than 2^15 others came after the last one, it may pulse without any.

    One entry or doorbell at a time: five cycles for each entry and each doorbell that arms, and one
    more while `busy`. Doorbells go first.

    Members
    -------
    doorbell: `cq_doorbell`, the number after the last entry that the host has consumed. Ring
        number `config.cqs` is the event queue. hold: In(1), none is taken in this cycle.
    done: In(stream), the ring of an entry whose write response is there, and if it is solicited.
    looks, ring, consumed: what the host has consumed of `ring`, when `looks`, comes as `consumed` a
        cycle later. busy: In(1), it cannot be looked up in this cycle.
    settled: nothing of `done` or `doorbell` is under way.
    wipe, wipe_ring: forget a ring; only when `settled`, and with `hold`.
    query_ring, query_answered: visible entries of the ring, mod 2^16, 3 cycles ago; later while
        something is taken.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        rings = range(config.cqs + 1)
        super().__init__(
            {
                "doorbell": In(stream.Signature(Layouts(config).cq_doorbell)),
                "hold": In(1),
                "done": In(stream.Signature(data.StructLayout({"ring": rings, "solicited": 1}))),
                "looks": Out(1),
                "ring": Out(rings),
                "consumed": In(16),
                "busy": In(1),
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
        state_layout = data.StructLayout(
            {
                "visible": 16,
                "visible_solicited": 16,  # that were visible with the last solicited one
                "armed": 1,
                "armed_solicited": 1,
            }
        )
        event_ring = self._config.cqs
        m.submodules.states = states = Memory(
            shape=state_layout, depth=event_ring + 1, init=[], attrs=NO_COLLISION
        )
        write, read = states.write_port(), states.read_port()
        state, following = Signal(state_layout), Signal(state_layout)
        doorbell = self.doorbell.payload
        arms = Signal()  # a doorbell, not an entry
        rings = Signal()
        solicited = Signal()
        m.d.comb += [
            read.addr.eq(Mux(self.looks, self.ring, self.query_ring)),
            write.addr.eq(Mux(self.wipe, self.wipe_ring, self.ring)),
            write.data.eq(Mux(self.wipe, 0, following)),
        ]
        queried = Signal()  # a cycle ago
        m.d.sync += queried.eq(~self.looks & ~write.en)
        with m.If(queried):
            m.d.sync += self.query_answered.eq(read.data.visible)

        # The number of an entry that wakes the host if it has not consumed it: of the one that
        # came, or the last one that is there.
        newest = Signal(16)
        consumed = Signal(16)
        ahead = Signal(16)
        wakes = Signal()
        m.d.comb += [
            newest.eq(Mux(arms & solicited, state.visible_solicited, state.visible)),
            wakes.eq(~ahead[-1] & (arms | state.armed | (state.armed_solicited & solicited))),
            following.visible.eq(state.visible + ~arms),
            following.visible_solicited.eq(
                Mux(solicited & ~arms, following.visible, state.visible_solicited)
            ),
            following.armed.eq(~wakes & (state.armed | (arms & ~solicited))),
            following.armed_solicited.eq(~wakes & (state.armed_solicited | (arms & solicited))),
        ]
        m.d.sync += [self.completion_interrupt.eq(0), self.event_interrupt.eq(0)]

        with m.FSM() as fsm:
            # Waits for a doorbell or an entry.
            with m.State("IDLE"):
                m.d.comb += [
                    self.doorbell.ready.eq(~self.hold),
                    rings.eq(self.doorbell.valid & ~self.hold),
                    self.done.ready.eq(~rings),
                ]
                m.d.sync += [
                    self.ring.eq(self.done.p.ring),
                    solicited.eq(self.done.p.solicited),
                    arms.eq(rings),
                ]
                with m.If(rings):
                    m.d.sync += [self.ring.eq(doorbell.cq), solicited.eq(doorbell.solicited)]
                    with m.If(doorbell.arm):
                        m.next = "LOOK_UP"
                with m.Elif(self.done.valid):
                    m.next = "LOOK_UP"
            # The memories read.
            with m.State("LOOK_UP"):
                m.d.comb += self.looks.eq(~self.busy)
                with m.If(~self.busy):
                    m.next = "LATCH"
            # The outputs of the memories are registered.
            with m.State("LATCH"):
                m.d.sync += [state.eq(read.data), consumed.eq(self.consumed)]
                m.next = "COMPARE"
            # How far the host is behind.
            with m.State("COMPARE"):
                m.d.sync += ahead.eq(newest - consumed - arms)
                m.next = "STORE"
            # Pulses if there is something to consume.
            with m.State("STORE"):
                m.d.comb += write.en.eq(1)
                m.d.sync += [
                    self.completion_interrupt.eq(wakes & (self.ring != event_ring)),
                    self.event_interrupt.eq(wakes & (self.ring == event_ring)),
                ]
                m.next = "IDLE"
            m.d.comb += self.settled.eq(fsm.ongoing("IDLE") & ~self.done.valid)
        with m.If(self.wipe):
            m.d.comb += write.en.eq(1)
        return m
