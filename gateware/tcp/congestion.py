"""Congestion control of a connection: RFC 5681, NewReno (RFC 6582), limited transmit (RFC 3042)."""

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.layouts import OCTETS_BITS
from stagecoach.gateware.tcp.sequence import distance, less_than, more_than

DUPLICATES = 3
"""Of an ACK that are a loss (RFC 5681, 3.2)."""

CWND_MOST = 1 << 30
"""The largest window (RFC 7323, 2.3): one that is there does not grow. Also the first ssthresh."""

INITIAL_OCTETS = 14_600
"""Of the initial window, if segments are not larger (RFC 6928, 2)."""

CONGESTION = data.StructLayout(
    {
        "cwnd": 32,
        "ssthresh": 32,
        "recover": 32,
        "counted": 32,
        "limited": OCTETS_BITS + 1,
        "duplicates": range(DUPLICATES + 2),
        "lends": 1,
        "recovering": 1,
        "first_partial": 1,
        "expired": 1,
    }
)
"""What is known of the path, in bytes.

recover: number of the last byte that was sent when the last loss was seen; 2 before SND.UNA if
that is further. counted: acknowledged since cwnd grew last, in congestion avoidance. duplicates:
ACKs, one more than `DUPLICATES` stands for all that are more. lends: limited transmit may send a
segment for each of them; limited: that it sent. first_partial: no ACK moved SND.UNA in this
recovery. expired: the timer did for what is SND.UNA.
"""


class CongestionOperation(enum.Enum, shape=3):
    """What happened."""

    ACKNOWLEDGE = 0  # SND.UNA moves to `acknowledgment`
    DUPLICATE = 1  # a duplicate ACK
    SENT = 2  # new data was, `octets`
    EXPIRE = 3  # the retransmission timer did
    IDLE = 4  # nothing was sent for more than an RTO (RFC 5681, 4.1)


class Congestion(wiring.Component):
    """Decides how much may be outstanding, and what a loss is.

    The caller holds all inputs for four cycles, but `una`, `next` and `highest` for three, and
    `octets` in the fourth one alone. The outputs are good in the fourth one and the next one, and
    longer if the inputs stay; `limit` in the second one after `state`. No state, no handshake, no
    division: in congestion avoidance acknowledged bytes are counted. Numbers are compared modulo
    2^32, and within 2^30 of each other. Another segment size is not dealt with.

    Members
    -------
    operation: what happened. smss: bytes of the longest segment, at least 1. una, next, highest:
        SND.UNA before, SND.NXT, and the number after all that was sent. acknowledgment, octets:
        of the operation. state: as it was.
    state_after: as it is then. limit: bytes that may be outstanding, beside the peer's window.
    retransmit: send the first segment again. restart: restart the timer.
    """

    operation: In(CongestionOperation)
    smss: In(OCTETS_BITS)
    una: In(32)
    next: In(32)
    highest: In(32)
    acknowledgment: In(32)
    octets: In(OCTETS_BITS)
    state: In(CONGESTION)
    state_after: Out(CONGESTION)
    limit: Out(32)
    retransmit: Out(1)
    restart: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        state, after, smss = self.state, self.state_after, self.smss
        two = smss << 1
        moves, repeats, expires, idles = (
            self.operation == operation
            for operation in (
                CongestionOperation.ACKNOWLEDGE,
                CongestionOperation.DUPLICATE,
                CongestionOperation.EXPIRE,
                CongestionOperation.IDLE,
            )
        )
        lent = Mux(state.duplicates[1], two, smss)
        m.d.sync += self.limit.eq(state.cwnd + Mux(state.lends, lent, 0))

        # First cycle: what is acknowledged and in flight, and where the last loss was; and what
        # those are compared with in the second one.
        una = Mux(moves, self.acknowledgment, self.una)  # after the operation
        count, flight, past, newest = (Signal(32) for _ in range(4))
        spare, lacking = Signal(32), Signal(signed(33))
        least = Signal(OCTETS_BITS + 3)
        initial = Signal(OCTETS_BITS + 1)
        some, slow, all_sent = Signal(), Signal(), Signal()
        m.d.sync += [
            count.eq(distance(self.acknowledgment, self.una)),
            flight.eq(distance(self.highest, una)),
            # After `recover`; that is all ones if SND.UNA follows it.
            past.eq(una + ~state.recover),
            # The last byte that was sent; 2 before SND.UNA if that moves.
            newest.eq(Mux(moves, self.acknowledgment, self.highest) + Cat(~moves, C(-1, 31))),
            all_sent.eq(self.next == self.highest),
            # The window after a recovery is no more than ssthresh; of `flight`, and of a segment.
            spare.eq(state.ssthresh - smss),
            some.eq(more_than(state.ssthresh, two)),
            slow.eq(state.cwnd < state.ssthresh),
            lacking.eq(state.cwnd - state.counted),
            # Half of what is in flight is more than two segments. What limited transmit sent is
            # not (RFC 5681, 3.2).
            least.eq(Cat(C(2, 2), smss) + Mux(repeats, state.limited, 0)),
            initial.eq(initial_window(smss)),
        ]
        # Second cycle: sums of those, and what they are for.
        counted, flown = Signal(32), Signal(32)
        rest, deflated = Signal(signed(33)), Signal(signed(33))
        segment = Signal()  # was acknowledged, or more
        full, beyond, forgotten = Signal(), Signal(), Signal()
        floats, below, halves, shrinks, lends = (Signal() for _ in range(5))
        m.d.sync += [
            full.eq(~past[-1]),
            beyond.eq(~past[-1] & past.any()),
            forgotten.eq(~past[-1] & past[1:].any()),
            segment.eq(~less_than(count, smss)),
            counted.eq(state.counted + count),
            rest.eq(count - lacking),
            deflated.eq(state.cwnd - count),
            flown.eq(flight - Mux(repeats, state.limited, 0)),
            floats.eq(more_than(flight, smss)),
            below.eq(some & (flight < spare)),
            halves.eq(~less_than(flight, least)),
            shrinks.eq(more_than(state.cwnd, initial)),
            # Not while old data is sent again.
            lends.eq(all_sent & ~state.recovering & (state.duplicates < DUPLICATES - 1)),
        ]

        # Third cycle: the terms of the window that follows.
        small = state.cwnd < CWND_MOST
        partial, recovered, loses = Signal(), Signal(), Signal()
        m.d.comb += [
            partial.eq(moves & state.recovering & ~full),
            recovered.eq(moves & state.recovering & full),
            loses.eq(repeats & ~state.recovering & (state.duplicates == DUPLICATES - 1) & beyond),
        ]
        threshold, left, right = Signal(32), Signal(32), Signal(OCTETS_BITS + 2)
        ssthresh, counted_after, recover = (Signal(32) for _ in range(3))
        m.d.comb += threshold.eq(Mux(halves, flown[1:], two))
        m.d.sync += [
            left.eq(state.cwnd),
            right.eq(0),
            ssthresh.eq(state.ssthresh),
            counted_after.eq(state.counted),
            recover.eq(state.recover),
        ]
        with m.If(recovered):
            m.d.sync += left.eq(state.ssthresh)
            with m.If(below):
                m.d.sync += [left.eq(Mux(floats, flown, smss)), right.eq(smss)]
        with m.Elif(partial):
            m.d.sync += [
                left.eq(Mux(deflated[-1], 0, deflated[:32])),
                right.eq(Mux(segment, smss, 0)),
            ]
        with m.Elif(moves & slow):
            m.d.sync += right.eq(Mux(segment, smss, count[:OCTETS_BITS]))
        with m.Elif(moves):
            m.d.sync += counted_after.eq(Mux(rest[-1], counted, rest[:32]))
            with m.If(~rest[-1] & small):
                m.d.sync += right.eq(smss)
        with m.Elif(loses):
            m.d.sync += [left.eq(threshold), right.eq(two + smss)]
        with m.Elif(repeats & state.recovering & small):
            m.d.sync += right.eq(smss)
        with m.Elif(expires):
            m.d.sync += [left.eq(0), right.eq(smss), counted_after.eq(0)]
        with m.Elif(idles & shrinks):
            m.d.sync += left.eq(initial)
        with m.If(loses | (expires & ~state.expired)):
            m.d.sync += ssthresh.eq(threshold)
        with m.If(loses | expires | (moves & forgotten)):
            m.d.sync += recover.eq(newest)

        # Fourth cycle: their sum, and the rest.
        m.d.comb += [
            after.eq(state),
            after.cwnd.eq(left + right),
            after.ssthresh.eq(ssthresh),
            after.counted.eq(counted_after),
            after.recover.eq(recover),
            self.retransmit.eq(partial | loses),
            self.restart.eq(moves & (~partial | state.first_partial)),
        ]
        with m.Switch(self.operation):
            with m.Case(CongestionOperation.ACKNOWLEDGE):
                m.d.comb += [
                    after.duplicates.eq(0),
                    after.lends.eq(0),
                    after.limited.eq(0),
                    after.expired.eq(0),
                    after.recovering.eq(partial),
                    after.first_partial.eq(state.first_partial & ~partial),
                ]
            with m.Case(CongestionOperation.DUPLICATE):
                m.d.comb += after.lends.eq(lends)
                with m.If(state.duplicates <= DUPLICATES):
                    m.d.comb += after.duplicates.eq(state.duplicates + 1)
                with m.If(loses):
                    m.d.comb += [after.recovering.eq(1), after.first_partial.eq(1)]
            with m.Case(CongestionOperation.SENT):
                with m.If(state.lends):
                    m.d.comb += after.limited.eq(state.limited + self.octets)
            with m.Case(CongestionOperation.EXPIRE):
                m.d.comb += [
                    after.expired.eq(1),
                    after.recovering.eq(0),
                    after.duplicates.eq(0),
                    after.lends.eq(0),
                    after.limited.eq(0),
                ]
        return m


def initial_window(smss: Value) -> Value:
    """Return the octets of the initial window (RFC 6928, 2): which of its bounds that is."""
    ten = (smss << 3) + (smss << 1)
    most = Mux(smss > INITIAL_OCTETS // 2, smss << 1, INITIAL_OCTETS)
    return Mux(smss > INITIAL_OCTETS // 10, most, ten)
