"""Holds the end of a local invalidation until nothing is placed by its STag any more."""

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.queues.drain import COUNT_BITS, Drain
from stagecoach.gateware.stream.buffer import StreamBuffer
from stagecoach.hw.interface.queue_entries import SendOpcode


class InvalidationGate(wiring.Component):
    """Passes the reports of sent work requests on in order; one of a LOCAL_INVALIDATE waits.

    When its report comes, its STag is invalid, but the receiver may hold host addresses that it was
    given before (`placing`), and placements may be on their way. The report waits until the
    receiver held none for a cycle, and then until `placed` has pulsed for every placement that had
    `begun`, and the atomics that were under way have ended. Read access has ended: FPDUs leave in
    order. Nothing of this depends on anything that waits for a report, so nothing is locked up.
    The reports after it, of all QPs, wait.

    Two cycles for a report that does not wait, one report every two cycles; six more for a
    LOCAL_INVALIDATE when nothing is placed. Placements that begin while a report waits do not
    count, however many (`Drain`).

    Parameters
    ----------
    config: sizes of the device.
    count_bits: fewer than 2^`count_bits` placements may be under way: those that
        `dma/host_errors.py` has room for, and the few before it.

    Members
    -------
    i, o: reports, `sent_item`.
    placing: In(1), the receiver holds host addresses; it does not for a cycle between segments.
    begun: In(1), pulses for each placement with bytes; in the last cycle of `placing` at the
        latest.
    placed: In(1), pulses for each of them when its write responses are there.
    mark: Out(1), pulses to ask for the end of the atomics that are under way.
    passed: In(1), low from the next cycle on until it has come.
    """

    def __init__(self, config: RnicConfig, count_bits: int = COUNT_BITS):
        self._count_bits = count_bits
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

        m.submodules.placements = placements = Drain(self._count_bits)
        m.d.comb += [
            placements.begin.eq(self.begun),
            placements.end.eq(self.placed),
            placements.mark.eq(self.mark),
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
            # Waits until the receiver holds no address: all that counts has begun.
            with m.State("RECEIVER"):
                with m.If(~self.placing):
                    m.d.comb += self.mark.eq(1)
                    m.next = "PLACED"
            # Waits until what began is placed, and the atomics have ended.
            with m.State("PLACED"):
                with m.If(placements.passed & self.passed):
                    m.next = "PASS"
            # Waits until the report is taken.
            with m.State("PASS"):
                m.d.comb += passing.eq(1)
                with m.If(self.o.ready):
                    m.next = "IDLE"
        return m
