"""How many Markers fall into an FPDU (RFC 5044, 4.3)."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

UNITS_BETWEEN_MARKERS = 127
"""A Marker stands in every 128th unit of 4 bytes of the stream."""


class MarkerCount(wiring.Component):
    """Computes the Markers of the FPDU given `LATENCY` cycles ago; takes one FPDU per cycle.

    A Marker directly before the FPDU is one of it, as is one between PAD and CRC; one after the
    CRC is not (RFC 5044, 4.3 and 4.4).

    Members
    -------
    fpdu_length: bytes without Markers, a multiple of 4 from 4 to 64776.
    until_marker: units of 4 bytes from where the FPDU, with its Markers, starts in the stream to
        the next Marker, 0 to 127.
    octets: what the Markers add to the length, a multiple of 4.
    until_next: `until_marker` of the FPDU that follows directly.
    """

    LATENCY = 3

    fpdu_length: In(17)
    until_marker: In(7)
    octets: Out(12)
    until_next: Out(7)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # The first Marker has `until_marker` units before it, every other one 127 more. It is there
        # if a unit follows, and if `behind` + 1 do, there are 1 + behind // 127 in all.
        behind = Signal(range(-128, 1 << 15))
        m.d.sync += behind.eq((self.fpdu_length >> 2) - self.until_marker - 1)

        # behind = 128 q + r = 127 q + (q + r); q + r is at most 126 + 127, less than 2 * 127.
        quotient, remainder = behind[7:14], behind[:7]
        quotient2 = Signal(7)
        none2 = Signal()
        left2 = Signal(7)  # until_next, if there is no Marker
        sum2 = Signal(8)  # q + r + 1: carries into its highest bit where q + r reaches 127
        m.d.sync += [
            quotient2.eq(quotient),
            sum2.eq(quotient + remainder + 1),
            none2.eq(behind < 0),
            left2.eq(~remainder),
        ]

        count = Signal(8)
        carry = sum2[7]
        m.d.comb += count.eq(quotient2 + carry + 1)
        m.d.sync += [
            self.octets.eq(Cat(0, 0, count)),
            # 126 - (q + r) % 127
            self.until_next.eq(~sum2[:7] - carry),
        ]
        with m.If(none2):
            m.d.sync += [self.octets.eq(0), self.until_next.eq(left2)]
        return m
