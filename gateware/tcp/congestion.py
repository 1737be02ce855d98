"""Congestion control of a connection: RFC 5681, NewReno (RFC 6582), limited transmit (RFC 3042)."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.layouts import OCTETS_BITS
from stagecoach.gateware.tcp.sequence import before, distance, latest

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
"""What is known of the path, in octets.

recover: number of the last octet that was sent when the last loss was seen; 2 before SND.UNA if
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

    The caller holds all inputs for four cycles; the outputs are good in the fourth one. No state,
    no handshake, no division: in congestion avoidance acknowledged octets are counted. Numbers are
    compared modulo 2^32, and within 2^30 of each other. Another segment size is not dealt with.

    Members
    -------
    operation: what happened. smss: octets of the longest segment, at least 1. una, next, highest:
        SND.UNA before, SND.NXT, and the number after all that was sent. acknowledgment, octets:
        of the operation. state: as it was.
    state_after: as it is then. limit: octets that may be outstanding now, beside the peer's window.
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
        moves = Signal()
        m.d.comb += moves.eq(self.operation == CongestionOperation.ACKNOWLEDGE)

        # First cycle: what is acknowledged and in flight, and where the last loss was.
        count, flight = Signal(32), Signal(32)
        full, beyond = Signal(), Signal()
        forgotten = Signal(32)  # `recover` if it is no later
        una = Signal(32)  # after the operation
        m.d.comb += una.eq(Mux(moves, self.acknowledgment, self.una))
        m.d.sync += [
            count.eq(distance(self.acknowledgment, self.una)),
            flight.eq(distance(self.highest, una)),
            full.eq(~before((self.acknowledgment - 1)[:32], state.recover)),
            beyond.eq(before(state.recover, (self.una - 1)[:32])),
            forgotten.eq(una - 2),
        ]
        # Second cycle: sums of those. What limited transmit sent is not in flight (RFC 5681, 3.2).
        counted, deflated, flown, ceiling = (Signal(32) for _ in range(4))
        segment = Signal()  # was acknowledged, or more
        m.d.sync += [
            counted.eq(state.counted + count),
            segment.eq(count >= smss),
            deflated.eq(Mux(count > state.cwnd, 0, state.cwnd - count)),
            flown.eq(
                flight - Mux(self.operation == CongestionOperation.DUPLICATE, state.limited, 0)
            ),
            ceiling.eq(Mux(flight > smss, flight, smss)),
        ]
        # Third cycle: windows that may follow.
        threshold, slow, partial, recovered, rest = (Signal(32) for _ in range(5))
        larger, enough = Signal(32), Signal()
        m.d.sync += [
            threshold.eq(Mux(flown[1:] > (smss << 1), flown[1:], smss << 1)),
            slow.eq(state.cwnd + Mux(segment, smss, count)),
            partial.eq(deflated + Mux(segment, smss, 0)),
            recovered.eq(ceiling + smss),
            larger.eq(state.cwnd + smss),
            rest.eq(counted - state.cwnd),
            enough.eq(counted >= state.cwnd),
        ]

        # Fourth cycle: which of them does.
        small = state.cwnd < CWND_MOST
        m.d.comb += after.eq(state)
        with m.Switch(self.operation):
            with m.Case(CongestionOperation.ACKNOWLEDGE):
                m.d.comb += [
                    self.restart.eq(1),
                    after.duplicates.eq(0),
                    after.lends.eq(0),
                    after.limited.eq(0),
                    after.expired.eq(0),
                    after.recover.eq(latest(state.recover, forgotten)),
                ]
                with m.If(state.recovering & full):
                    smaller = recovered < state.ssthresh
                    m.d.comb += [
                        after.cwnd.eq(Mux(smaller, recovered, state.ssthresh)),
                        after.recovering.eq(0),
                    ]
                with m.Elif(state.recovering):
                    m.d.comb += [
                        after.cwnd.eq(partial),
                        after.first_partial.eq(0),
                        self.retransmit.eq(1),
                        self.restart.eq(state.first_partial),
                    ]
                with m.Elif(state.cwnd < state.ssthresh):
                    m.d.comb += after.cwnd.eq(slow)
                with m.Else():
                    m.d.comb += after.counted.eq(Mux(enough, rest, counted))
                    with m.If(enough & small):
                        m.d.comb += after.cwnd.eq(larger)
            with m.Case(CongestionOperation.DUPLICATE):
                m.d.comb += after.lends.eq(0)
                with m.If(state.duplicates <= DUPLICATES):
                    m.d.comb += after.duplicates.eq(state.duplicates + 1)
                with m.If(state.recovering):
                    with m.If(small):
                        m.d.comb += after.cwnd.eq(larger)
                with m.Elif(state.duplicates < DUPLICATES - 1):
                    # None while old data is sent again.
                    m.d.comb += after.lends.eq(self.next == self.highest)
                with m.Elif((state.duplicates == DUPLICATES - 1) & beyond):
                    m.d.comb += [
                        after.ssthresh.eq(threshold),
                        after.cwnd.eq(threshold + (smss << 1) + smss),
                        after.recover.eq(self.highest - 1),
                        after.recovering.eq(1),
                        after.first_partial.eq(1),
                        self.retransmit.eq(1),
                    ]
            with m.Case(CongestionOperation.SENT):
                with m.If(state.lends):
                    m.d.comb += after.limited.eq(state.limited + self.octets)
            with m.Case(CongestionOperation.EXPIRE):
                with m.If(~state.expired):
                    m.d.comb += after.ssthresh.eq(threshold)
                m.d.comb += [
                    after.expired.eq(1),
                    after.cwnd.eq(smss),
                    after.recover.eq(self.highest - 1),
                    after.recovering.eq(0),
                    after.duplicates.eq(0),
                    after.lends.eq(0),
                    after.limited.eq(0),
                    after.counted.eq(0),
                ]
            with m.Default():  # idle
                initial = initial_window(smss)
                with m.If(initial < state.cwnd):
                    m.d.comb += after.cwnd.eq(initial)

        lent = Mux(after.duplicates[1], smss << 1, smss)
        m.d.comb += self.limit.eq(after.cwnd + Mux(after.lends, lent, 0))
        return m


def initial_window(smss: Value) -> Value:
    """Return the octets of the initial window (RFC 6928, 2)."""
    two = smss << 1
    ten = (smss << 3) + two
    most = Mux(two > INITIAL_OCTETS, two, INITIAL_OCTETS)
    return Mux(ten < most, ten, most)
