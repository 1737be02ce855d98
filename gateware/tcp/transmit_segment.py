"""A segment that leaves: what is said of it, and what is known of its connection then."""

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.layouts import OCTETS_BITS
from stagecoach.gateware.tcp.congestion import CONGESTION
from stagecoach.gateware.tcp.layouts import FLAGS, SendKind, send_job
from stagecoach.gateware.tcp.segment_list import SEGMENTS
from stagecoach.gateware.tcp.sequence import distance
from stagecoach.gateware.tcp.transmit_plan import TO_DO
from stagecoach.gateware.tcp.transmit_state import TRANSMIT_STATE


class TransmitSegment(wiring.Component):
    """Makes the job of a segment, and says what its leaving changes.

    It has what the windows allow, or nothing, or the octet or FIN of a probe. All have an ACK, so
    none is waited for any more. Combinational. Numbers and times are modulo 2^32.

    Parameters
    ----------
    bits: of a connection.

    Members
    -------
    connection, state, to_do: of the connection. now: microseconds. expiry: one timeout later.
    answers: it has no octets: an ACK, or the end. bare: it is a probe of a window of zero.
    stored: its octets are in the store. sum: of them there.
    number, octets, fin, last, whole, following, advances: as `SendWindow` has them.
    congestion, segments: what they are if new data was sent, and if all of the segment was.
    job: of the segment. state_after: what is known when it has left.
    """

    def __init__(self, bits: int):
        super().__init__(
            {
                "connection": In(bits),
                "state": In(TRANSMIT_STATE),
                "to_do": In(TO_DO),
                "now": In(32),
                "expiry": In(32),
                "answers": In(1),
                "bare": In(1),
                "stored": In(1),
                "sum": In(16),
                "number": In(32),
                "octets": In(OCTETS_BITS),
                "fin": In(1),
                "last": In(1),
                "whole": In(1),
                "following": In(32),
                "advances": In(1),
                "congestion": In(CONGESTION),
                "segments": In(SEGMENTS),
                "job": Out(send_job(bits)),
                "state_after": Out(TRANSMIT_STATE),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        numbers, after, job = self.state.numbers, self.state_after, self.job
        waiting = distance(numbers.end, numbers.next)
        octets = Signal(OCTETS_BITS)
        with m.If(~self.answers):
            m.d.comb += octets.eq(Mux(self.bare, waiting.any(), self.octets))
        flags = {
            "ack": C(1),
            "rst": self.answers & self.to_do.resets,
            "psh": octets.any() & Mux(self.bare, waiting == 1, self.last),
            "fin": ~self.answers & Mux(self.bare, ~waiting.any(), self.fin),
        }
        place = Mux(self.stored, Value.cast(SendKind.STORE), SendKind.RING)
        m.d.comb += [
            job.connection.eq(self.connection),
            job.kind.eq(Mux(octets.any(), place, SendKind.NOTHING)),
            job.sequence.eq(Mux(self.answers, numbers.max, self.number)),
            job.octets.eq(octets),
            job.sum.eq(self.sum),
            job.flags.eq(Cat(*(flags.get(name, C(0)) for name in FLAGS.members))),
            job.blocks.eq(self.answers & ~self.to_do.resets),
            after.eq(self.state),
            # Whatever has an acknowledgment ends the wait for one.
            after.numbers.unacknowledged.eq(0),
            after.times.deadlines.acknowledge.armed.eq(0),
            after.windows.announced.eq(self.state.windows.edge),
        ]
        with m.If(~self.answers):
            m.d.comb += after.numbers.sent_at.eq(self.now)
            with m.If(self.bare):
                m.d.comb += after.numbers.probed.eq(1)
                self._arm(m)
            with m.Else():
                self._count(m)
        return m

    def _arm(self, m: Module) -> None:
        """The timer of retransmissions or probes begins."""
        resend = self.state_after.times.deadlines.resend
        m.d.comb += [resend.armed.eq(1), resend.at.eq(self.expiry)]

    def _count(self, m: Module) -> None:
        """Data, FIN, or both, as the windows allow, or again."""
        numbers, times, after = self.state.numbers, self.state.times, self.state_after
        outstanding = numbers.una != numbers.max
        again = self.to_do.resends
        probed = numbers.probed & ~outstanding
        new = Signal()
        m.d.comb += [
            new.eq((numbers.next == numbers.max) & ~again & ~probed),
            after.times.timed.eq(new),
            after.numbers.persists.eq(0),
        ]
        with m.If(new):
            m.d.comb += after.path.congestion.eq(self.congestion)
            with m.If(~times.timed):
                m.d.comb += [
                    after.times.timed_number.eq(self.following),
                    after.times.timed_at.eq(self.now),
                ]
        with m.If(~outstanding):
            m.d.comb += [after.numbers.since.eq(self.now), after.numbers.retries.eq(0)]
        with m.If(~times.deadlines.resend.armed | numbers.persists):
            self._arm(m)
        with m.If(self.advances):
            m.d.comb += after.numbers.max.eq(self.following)
        with m.If(~again | self.to_do.rewinds):
            m.d.comb += after.numbers.next.eq(self.following)
            with m.If(self.whole):
                m.d.comb += after.path.segments.eq(self.segments)
