"""What follows from the state of a connection that sends, by sums of 32 bits."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.tcp.sequence import distance
from stagecoach.gateware.tcp.transmit_state import TRANSMIT_STATE


class TransmitStatus(wiring.Component):
    """Says of a connection what decisions need at once.

    The outputs follow the inputs by a cycle, `quiet` by two. No handshake. Numbers and times are
    modulo 2^32.

    Members
    -------
    now: microseconds. state: of the connection.
    outstanding: SND.UNA is before SND.MAX. newest: SND.NXT is SND.MAX. waits: bytes, or our FIN,
        follow SND.NXT. expiry: the timeout from now on. quiet: nothing with data was sent for
        longer than that.
    """

    now: In(32)
    state: In(TRANSMIT_STATE)
    outstanding: Out(1)
    newest: Out(1)
    waits: Out(1)
    expiry: Out(32)
    quiet: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        numbers, timeout = self.state.numbers, self.state.times.rto.timeout
        idle = Signal(32)
        m.d.sync += [
            self.outstanding.eq(numbers.una != numbers.max),
            self.newest.eq(numbers.next == numbers.max),
            # SND.NXT is before `end`, or not after it if FIN is there: the sign of one sum.
            self.waits.eq((Cat(1, numbers.next) + Cat(~numbers.closing, ~numbers.end))[32]),
            self.expiry.eq(self.now + timeout),
            idle.eq(distance(self.now, numbers.sent_at)),
            self.quiet.eq(idle > timeout),
        ]
        return m
