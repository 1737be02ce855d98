"""The retransmission timeout of a connection (RFC 6298), in integers."""

from amaranth.hdl import Cat, Module, Signal, signed
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

RTO = data.StructLayout({"sampled": 1, "srtt8": 32, "rttvar4": 32, "timeout": 32})
"""What is known of the round trip, in microseconds: 8 SRTT, 4 RTTVAR, and the RTO now.

Before the first sample `srtt8` is 8 times the initial timeout, and `rttvar4` 0.
"""


class RtoOperation(enum.Enum, shape=2):
    """What happened."""

    SAMPLE = 0  # a round trip was measured; the back-off ends (2.2, 2.3)
    EXPIRE = 1  # the timer expired: it doubles (5.5)
    RESET = 2  # the back-off ends without a sample


class RetransmissionTimeout(wiring.Component):
    """Estimates the timeout anew.

    The caller holds all inputs for four cycles; the outputs are good in the fourth one. No state,
    no handshake. A sample is below 2^29 microseconds: times 8 it has 32 bits. The timeout is
    between `minimum` and `maximum` (2.4, 2.5), which is not below it. G of RFC 6298 is 1
    microsecond. Karn's algorithm is the caller's: he takes no sample of what was sent twice.

    Members
    -------
    operation: what happened. measured: the sample. minimum, maximum: microseconds.
    rto: as it was. rto_after: as it is then.
    """

    operation: In(RtoOperation)
    measured: In(32)
    minimum: In(32)
    maximum: In(32)
    rto: In(RTO)
    rto_after: Out(RTO)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rto, after = self.rto, self.rto_after
        samples = self.operation == RtoOperation.SAMPLE
        # First cycle: the error of the estimate, and what is left of the old variation. That is 0
        # if there was none: a quarter of it, rounded down, went.
        error = Signal(signed(33))
        rest = Signal(32)
        exact, none, steady = Signal(), Signal(), Signal()
        m.d.sync += [
            error.eq(self.measured - rto.srtt8[3:]),
            rest.eq(rto.rttvar4 - rto.rttvar4[2:]),
            exact.eq(self.measured == rto.srtt8[3:]),
            none.eq(self.measured == 0),
            steady.eq(rto.rttvar4 == 0),
        ]
        # Second cycle: both estimates; the variation with the old SRTT (2.3). In one sum: of an
        # error below 0 its complement, and 1 as the carry.
        srtt8, rttvar4 = Signal(32), Signal(32)
        below = error[-1]
        distance = error[:32] ^ below.replicate(32)
        least = Signal()  # the variation that is sampled is 0: one G takes its place
        m.d.sync += [
            srtt8.eq(rto.srtt8),
            rttvar4.eq(rto.rttvar4),
            least.eq(rto.sampled & steady),
        ]
        with m.If(samples & rto.sampled):
            m.d.sync += [
                srtt8.eq(rto.srtt8 + error),
                rttvar4.eq((Cat(1, rest) + Cat(below, distance))[1:]),
                least.eq(steady & exact),
            ]
        with m.Elif(samples):
            m.d.sync += [
                srtt8.eq(self.measured << 3),
                rttvar4.eq(self.measured << 1),
                least.eq(none),
            ]
        # Third cycle: the timeout without bounds.
        wanted = Signal(33)
        m.d.sync += wanted.eq(srtt8[3:] + Cat(rttvar4[0] | least, rttvar4[1:]))
        with m.If(self.operation == RtoOperation.EXPIRE):
            m.d.sync += wanted.eq(rto.timeout << 1)
        # Fourth cycle: with them.
        m.d.comb += [
            after.sampled.eq(rto.sampled | samples),
            after.srtt8.eq(srtt8),
            after.rttvar4.eq(rttvar4),
            after.timeout.eq(wanted),
        ]
        with m.If(wanted < self.minimum):
            m.d.comb += after.timeout.eq(self.minimum)
        with m.Elif(wanted > self.maximum):
            m.d.comb += after.timeout.eq(self.maximum)
        return m
