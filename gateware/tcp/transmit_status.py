"""What follows from the state of a connection that sends, by sums of 32 bits."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.tcp.segment_list import PLACES_BITS
from stagecoach.gateware.tcp.sequence import before, distance
from stagecoach.gateware.tcp.transmit_state import TRANSMIT_STATE


class TransmitStatus(wiring.Component):
    """Says of a connection what decisions need at once.

    The outputs follow the inputs by a cycle, `quiet` by two. No handshake. Numbers and times are
    modulo 2^32.

    Members
    -------
    now: microseconds. delayed: when an ACK is sent at the latest that waits from now on. state: of
        the connection.
    outstanding: SND.UNA is before SND.MAX. newest: SND.NXT is SND.MAX. waits: octets, or our FIN,
        follow SND.NXT. expiry: the timeout from now on; or, of a timer that `probes`, when the tail
        is probed (RFC 8985, 7.2). quiet: nothing with data was sent for longer than the timeout.
    """

    now: In(32)
    delayed: In(32)
    state: In(TRANSMIT_STATE)
    outstanding: Out(1)
    newest: Out(1)
    waits: Out(1)
    expiry: Out(32)
    quiet: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        numbers, timeout = self.state.numbers, self.state.times.rto.timeout
        times, segments = self.state.times, self.state.path.segments
        idle, expiry = Signal(32), Signal(32)
        # Two round trips from now on; if one segment is outstanding, its ACK may wait. Not after
        # the timeout, which began with the last progress.
        sooner, later = Signal(32), Signal(32)
        probes, single = Signal(), Signal()
        m.d.sync += [
            expiry.eq(Mux(times.probes, numbers.since, self.now) + timeout),
            sooner.eq(self.now + times.rto.srtt8[2:]),
            later.eq(self.delayed + times.rto.srtt8[2:]),
            probes.eq(times.probes),
            single.eq((segments.current - segments.first)[1:PLACES_BITS] == 0),
        ]
        probe = Mux(single, later, sooner)
        m.d.comb += self.expiry.eq(Mux(probes & before(probe, expiry), probe, expiry))
        m.d.sync += [
            self.outstanding.eq(numbers.una != numbers.max),
            self.newest.eq(numbers.next == numbers.max),
            # SND.NXT is before `end`, or not after it if FIN is there: the sign of one sum.
            self.waits.eq((Cat(1, numbers.next) + Cat(~numbers.closing, ~numbers.end))[32]),
            idle.eq(distance(self.now, numbers.sent_at)),
            self.quiet.eq(idle > timeout),
        ]
        return m
