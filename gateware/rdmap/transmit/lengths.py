"""Lengths of an FPDU, and whether the LLP window takes it."""

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.mpa.marker_count import MarkerCount
from stagecoach.gateware.mpa.mulpdu import FPDU_OVERHEAD_OCTETS
from stagecoach.hw.interface.wire import TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS


class TransmitLengths(wiring.Component):
    """Computes one value from the other, a step a cycle.

    From the cycle after `start` on the other inputs hold; when `settled`, the outputs are right.

    Members
    -------
    start: In(1).
    unlimited: In(1), with `start`: the window does not matter, only `ulpdu_length` is waited for.
    payload: In(16), bytes after the DDP header.
    tagged: In(1), which DDP header it is.
    position: In(32), where the FPDU starts in the LLP stream.
    room: In(32), bytes that the window takes from there on.
    markers: In(1), the QP sends Markers.
    settled: Out(1).
    ulpdu_length: Out(16), the field ULPDU_Length.
    until_marker: Out(7), from `position` to the next multiple of 512, in units of 4 bytes.
    sent_length: Out(17), bytes of the FPDU with its Markers.
    window_open: Out(1), the window takes it.
    """

    HEADER_CYCLES = 2
    """From `payload` to `ulpdu_length` and to the header that is made meanwhile."""

    WINDOW_CYCLES = 4
    """From `payload` to `window_open`, without Markers."""

    start: In(1)
    unlimited: In(1)
    payload: In(16)
    tagged: In(1)
    position: In(32)
    room: In(32)
    markers: In(1)
    settled: Out(1)
    ulpdu_length: Out(16)
    until_marker: Out(7)
    sent_length: Out(17)
    window_open: Out(1)

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        m.submodules.marker_count = marker_count = MarkerCount()
        fpdu_length = Signal(17)  # without Markers
        header_octets = Mux(self.tagged, TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS)
        m.d.sync += [
            self.ulpdu_length.eq(self.payload + header_octets),
            # ULPDU_Length, ULPDU and PAD are a multiple of 4, as is the CRC (RFC 5044, 4.1).
            fpdu_length.eq(
                Cat(
                    Const(0, 2),
                    (self.ulpdu_length + (FPDU_OVERHEAD_OCTETS + 3))[2:],
                )
            ),
            self.sent_length.eq(fpdu_length + Mux(self.markers, marker_count.octets, 0)),
            self.window_open.eq(self.sent_length <= self.room),
        ]
        m.d.comb += [
            self.until_marker.eq((-self.position[2:9])[:7]),
            marker_count.fpdu_length.eq(fpdu_length),
            marker_count.until_marker.eq(self.until_marker),
        ]

        settling = Signal(range(self.WINDOW_CYCLES + MarkerCount.LATENCY + 1))
        m.d.comb += self.settled.eq(settling == 0)
        with m.If(self.start):
            m.d.sync += settling.eq(self.WINDOW_CYCLES + Mux(self.markers, MarkerCount.LATENCY, 0))
            with m.If(self.unlimited):
                m.d.sync += settling.eq(self.HEADER_CYCLES)
        with m.Elif(settling != 0):
            m.d.sync += settling.eq(settling - 1)
        return m
