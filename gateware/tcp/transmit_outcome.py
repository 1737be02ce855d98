"""What follows when congestion control, the timeout and the list of segments have had their say."""

from amaranth.hdl import Module, Mux, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.layouts import OCTETS_BITS
from stagecoach.gateware.tcp.congestion import CONGESTION
from stagecoach.gateware.tcp.layouts import NoticeKind
from stagecoach.gateware.tcp.rto import RTO
from stagecoach.gateware.tcp.segment_list import SEGMENTS
from stagecoach.gateware.tcp.transmit_comparison import SEEN
from stagecoach.gateware.tcp.transmit_plan import TO_DO
from stagecoach.gateware.tcp.transmit_state import SUSPECT_RETRIES, TRANSMIT_STATE
from stagecoach.gateware.tcp.transmit_turn import TransmitKind


class TransmitOutcome(wiring.Component):
    """Decides what is known of a connection then, and what else has to be done.

    Of an ACK that frees segments of the list more than once, all the rest follows from the first
    time. Combinational. Numbers and times are modulo 2^32.

    Members
    -------
    kind, acknowledgment, octets: of the event; octets are those that are queued, `appends` says
        that some are. now: microseconds. again: segments were freed before.
    seen, to_do, state: what the plan found, and what is known.
    congestion, retransmit, restart, rto, segments, more: what those three said.
    state_after, to_do_after: as said. frees: more segments have to be. arms: the retransmission
        timer begins anew. suspects: R1 has come (RFC 9293, 3.8.3).
    """

    kind: In(TransmitKind)
    acknowledgment: In(32)
    octets: In(OCTETS_BITS)
    appends: In(1)
    now: In(32)
    again: In(1)
    seen: In(SEEN)
    to_do: In(TO_DO)
    state: In(TRANSMIT_STATE)
    congestion: In(CONGESTION)
    retransmit: In(1)
    restart: In(1)
    rto: In(RTO)
    segments: In(SEGMENTS)
    more: In(1)
    state_after: Out(TRANSMIT_STATE)
    to_do_after: Out(TO_DO)
    frees: Out(1)
    arms: Out(1)
    suspects: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        after, numbers = self.state_after, self.state.numbers
        m.d.comb += [after.eq(self.state), self.to_do_after.eq(self.to_do)]
        with m.If(self.kind == TransmitKind.ACK):
            with m.If(self.to_do.newer):
                m.d.comb += [after.path.segments.eq(self.segments), self.frees.eq(self.more)]
            with m.If(~self.again):
                self._acknowledge(m)
        with m.Elif(self.appends):
            m.d.comb += [
                after.path.segments.eq(self.segments),
                after.numbers.end.eq(numbers.end + self.octets),
            ]
        with m.Elif(self.kind == TransmitKind.DUE):
            m.d.comb += after.times.rto.eq(self.rto)
            with m.If(~self.to_do.probes):
                m.d.comb += [
                    after.path.congestion.eq(self.congestion),
                    self.to_do_after.resends.eq(1),
                    self.to_do_after.rewinds.eq(1),
                    self.arms.eq(1),
                    self.suspects.eq(numbers.retries == SUSPECT_RETRIES - 1),
                ]
                with m.If(numbers.retries != SUSPECT_RETRIES):
                    m.d.comb += after.numbers.retries.eq(numbers.retries + 1)
        return m

    def _acknowledge(self, m: Module) -> None:
        """New data is acknowledged, or an ACK came twice, or the window is open again."""
        seen, to_do, numbers = self.seen, self.to_do, self.state.numbers
        after, resend = self.state_after, self.state.times.deadlines.resend
        with m.If(to_do.newer | to_do.duplicates):
            m.d.comb += [
                after.path.congestion.eq(self.congestion),
                self.to_do_after.resends.eq(self.retransmit),
            ]
        with m.If((to_do.newer & seen.sampled) | to_do.unbacks):
            m.d.comb += after.times.rto.eq(self.rto)
        with m.If(to_do.newer):
            m.d.comb += [
                after.numbers.una.eq(self.acknowledgment),
                after.numbers.since.eq(self.now),
                after.numbers.retries.eq(0),
                after.numbers.probed.eq(0),
                after.times.deadlines.resend.armed.eq(
                    resend.armed & (~seen.all_acked | numbers.persists)
                ),
                self.arms.eq(self.restart & ~seen.all_acked),
            ]
            with m.If(seen.overtakes):
                m.d.comb += after.numbers.next.eq(self.acknowledgment)
            with m.If(seen.sampled):
                m.d.comb += after.times.timed.eq(0)
            with m.If(seen.acks_fin):
                m.d.comb += after.numbers.fin_acknowledged.eq(1)
                with m.If(numbers.peer_fin):
                    m.d.comb += [
                        self.to_do_after.ends.eq(1),
                        self.to_do_after.cause.eq(
                            Mux(
                                numbers.passive,
                                Value.cast(NoticeKind.CLOSED),
                                NoticeKind.TIME_WAIT,
                            )
                        ),
                    ]
