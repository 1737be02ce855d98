"""MULPDU from EMSS (RFC 5044, 4.5)."""

from amaranth.hdl import Elaboratable, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import MAX_ULPDU_LENGTH
from stagecoach.hw.interface.wire import FPDU_CRC_OCTETS, ULPDU_LENGTH_OCTETS

MIN_MULPDU = 128
"""The MULPDU never falls below it (RFC 5044, 4.5)."""

FPDU_OVERHEAD_OCTETS = ULPDU_LENGTH_OCTETS + FPDU_CRC_OCTETS
"""ULPDU_Length and CRC (RFC 5044, 4.1)."""

MARKER_OCTETS = 4
MARKER_INTERVAL = 512
"""A Marker in every so many octets of the stream (RFC 5044, 4.3)."""


class Mulpdu(wiring.Component):
    """Computes `mulpdu` for the `emss` and `markers` of `LATENCY` cycles ago.

    Members
    -------
    emss: In(16), bytes of one TCP segment.
    markers: In(1), Markers are inserted into this direction.
    mulpdu: Out(16), longest ULPDU whose FPDU is not longer than `emss`; from 128 to 64768.
    """

    LATENCY = 4

    emss: In(16)
    markers: In(1)
    mulpdu: Out(16)

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        interval_bits = MARKER_INTERVAL.bit_length() - 1
        whole, partial = self.emss[interval_bits:], self.emss[:interval_bits].any()
        markers = Signal(range(-(-(1 << 16) // MARKER_INTERVAL) + 1))
        beside = Signal(4)
        overhead = Signal(10)
        emss, last_emss = Signal(16), Signal(16)
        difference = Signal(17)
        m.d.sync += [
            emss.eq(self.emss),
            markers.eq(Mux(self.markers, whole + partial, 0)),
            beside.eq(FPDU_OVERHEAD_OCTETS + self.emss[:2]),  # what PAD to 4 bytes may cost
            last_emss.eq(emss),
            overhead.eq(beside + MARKER_OCTETS * markers),
            difference.eq(last_emss - overhead),
        ]
        negative = difference[-1]
        with m.If(negative | (difference < MIN_MULPDU)):
            m.d.sync += self.mulpdu.eq(MIN_MULPDU)
        with m.Elif(difference > MAX_ULPDU_LENGTH):
            m.d.sync += self.mulpdu.eq(MAX_ULPDU_LENGTH)
        with m.Else():
            m.d.sync += self.mulpdu.eq(difference)
        return m
