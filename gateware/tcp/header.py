"""TCP headers of received frames: fields, and what is wrong with them."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.layouts import OCTETS_BITS, FrameBus, FrameFate
from stagecoach.gateware.ip.checksum import big_endian
from stagecoach.gateware.ip.header import first_failed, header_end

TCP_OCTETS = 20


class TcpHeader(wiring.Component):
    """Keeps fields of the frame under way as if it were of TCP, and finds the first check it fails.

    The checks are those of RFC 9293, 3.1 in the order of `FrameFate`. The header begins where that
    of IPv4 ends, in lane 2 or 6 of a word. Options are skipped, whatever is in them (MUST-5 to
    MUST-7): stage 1 needs none of an established connection.

    One word per cycle, nothing waits. Outputs are of the words up to the one of a cycle ago, and
    good for a frame while that is its last one.

    Members
    -------
    i, previous: words of frames, and the word before. ihl, total: of the IPv4 header.
    good: the checksum is right, for the frame that ended a cycle ago.
    fate: SEGMENT if nothing is wrong. others: fields of `SEGMENT`; `header` counts from the
        TCP header on.
    """

    i: In(FrameBus())
    previous: In(FrameBus())
    ihl: In(4)
    total: In(16)
    good: In(1)
    fate: Out(FrameFate)
    source_port: Out(16)
    destination_port: Out(16)
    sequence: Out(32)
    acknowledgment: Out(32)
    flags: Out(8)
    window: Out(16)
    header: Out(6)
    payload: Out(OCTETS_BITS)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        start, _ = header_end(self.ihl)
        both = Cat(self.previous.p.data, self.i.p.data)
        aligned = Signal(64)
        octets = Signal(16)  # of the segment, if the total length is right
        offset = Signal(4)
        short, wrong_offset, no_port = Signal(), Signal(), Signal()
        ports, header = (aligned[:16], aligned[16:32]), aligned[36:40] << 2
        m.d.comb += aligned.eq(Mux(self.ihl[0], both[16:80], both[48:112]))
        m.d.sync += [octets.eq(self.total - (self.ihl << 2)), short.eq(octets < TCP_OCTETS)]
        with m.If(self.i.valid):
            with m.If(self.previous.p.index == start):
                m.d.sync += [
                    self.source_port.eq(big_endian(ports[0])),
                    self.destination_port.eq(big_endian(ports[1])),
                    self.sequence.eq(big_endian(aligned[32:])),
                    no_port.eq((ports[0] == 0) | (ports[1] == 0)),
                ]
            with m.If(self.previous.p.index == start + 1):
                m.d.sync += [
                    self.acknowledgment.eq(big_endian(aligned[:32])),
                    offset.eq(aligned[36:40]),
                    wrong_offset.eq((header < TCP_OCTETS) | (header > octets)),
                    self.flags.eq(aligned[40:48]),
                    self.window.eq(big_endian(aligned[48:])),
                ]
        m.d.comb += [
            self.header.eq(offset << 2),
            self.payload.eq(octets - self.header),
            self.fate.eq(
                first_failed(
                    (
                        (FrameFate.TCP_SHORT, short),
                        (FrameFate.TCP_CHECKSUM, ~self.good),
                        (FrameFate.TCP_DATA_OFFSET, wrong_offset),
                        (FrameFate.TCP_PORT, no_port),
                    ),
                    FrameFate.SEGMENT,
                )
            ),
        ]
        return m
