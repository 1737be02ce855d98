"""Holds the end of a local invalidation until nothing is placed by its STag any more."""

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from gateware.config import RnicConfig
from gateware.interfaces import Layouts
from gateware.stream_buffer import StreamBuffer
from hw.interface.queue_entries import SendOpcode


class InvalidationGate(wiring.Component):
    """Passes the reports of sent work requests on in order; one of a LOCAL_INVALIDATE waits.

    When its report comes, its STag is invalid, but the receiver may hold host addresses that it was
    given before (`placing`), and placements may be on their way. The report waits until the
    receiver held none for a cycle, and then until `placed` has pulsed for every placement that had
    `begun`, and the atomics that were under way have ended. Read access has ended: FPDUs leave in
    order. Nothing of this depends on anything that waits for a report, so nothing is locked up.
    Behind it the reports of all QPs wait.

    Two cycles for a report that does not wait, one report every two cycles; six more for a
    LOCAL_INVALIDATE when nothing is placed. The counts run mod 2^16; at most 2^15 placements may be
    under way.

    Members
    -------
    i, o: reports, `sent_item`.
    placing: In(1), the receiver holds host addresses; it does not for a cycle between segments.
    begun: In(1), pulses for each placement with octets; in the last cycle of `placing` at the
        latest.
    placed: In(1), pulses for each of them when its write responses are there.
    mark: Out(1), pulses to ask for the end of the atomics that are under way.
    passed: In(1), low from the next cycle on until it has come.
    """

    def __init__(self, config: RnicConfig):
        self._item = Layouts(config).sent_item
        super().__init__(
            {
                "i": In(stream.Signature(self._item)),
                "o": Out(stream.Signature(self._item)),
                "placing": In(1),
                "begun": In(1),
                "placed": In(1),
                "mark": Out(1),
                "passed": In(1, init=1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.buffer = buffer = StreamBuffer(self._item)
        wiring.connect(m, wiring.flipped(self.i), buffer.i)
        item = buffer.o

        begin = Signal()  # counted a cycle late: whether a placement has octets is known late
        begun = Signal(16)
        # So are the ends, by their absence: a register of its own, for they come from far.
        no_end = Signal(init=1)
        placed = Signal(16)
        goal = Signal(16)
        beyond = Signal(16)  # negative: placements are missing
        m.d.sync += [
            begin.eq(self.begun),
            begun.eq(begun + begin),
            no_end.eq(~self.placed),
            placed.eq(placed + ~no_end),
            beyond.eq(placed - goal),
        ]
        passing = Signal()
        m.d.comb += [
            self.o.payload.eq(item.payload),
            self.o.valid.eq(passing),
            item.ready.eq(passing & self.o.ready),
        ]

        with m.FSM():
            # Waits for a report.
            with m.State("IDLE"):
                with m.If(item.valid):
                    m.next = "PASS"
                    with m.If(item.p.opcode == SendOpcode.LOCAL_INVALIDATE):
                        m.next = "RECEIVER"
            # Waits until the receiver holds no address.
            with m.State("RECEIVER"):
                with m.If(~self.placing):
                    m.next = "COUNT"
            # All that began is counted.
            with m.State("COUNT"):
                m.d.sync += goal.eq(begun)
                m.d.comb += self.mark.eq(1)
                m.next = "COMPARE"
            # The difference is taken.
            with m.State("COMPARE"):
                m.next = "PLACED"
            # Waits until what began is placed.
            with m.State("PLACED"):
                with m.If(~beyond[-1] & self.passed):
                    m.next = "PASS"
            # Waits until the report is taken.
            with m.State("PASS"):
                m.d.comb += passing.eq(1)
                with m.If(self.o.ready):
                    m.next = "IDLE"
        return m
