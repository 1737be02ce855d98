"""The checksums of a frame: of the IPv4 header, and of TCP with its pseudo header."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.dma.lanes import lanes_below
from stagecoach.gateware.ethernet.layouts import FRAME_WORD_AT, FrameBus
from stagecoach.gateware.ip.checksum import ALL_ONES, Checksum, big_endian
from stagecoach.gateware.ip.header import PROTOCOL_TCP, header_end


class SegmentSums(wiring.Component):
    """Adds up each frame as if it were IPv4 with TCP, whatever it is.

    With `icmp` a frame whose protocol is another one has no pseudo header: `tcp_good` is then of
    all octets after the header of IPv4, which is what ICMP covers (RFC 792).

    The words of TCP are those from the end of the IPv4 header to the total length; of the pseudo
    header (RFC 9293, 3.1) addresses and protocol are taken where they stand, and the length stands
    for the checksum of the IPv4 header. A frame that is too short for its header has any result.

    One word per cycle, nothing waits. `ip_good` and `tcp_good` are those of a frame `LATENCY`
    cycles after its last word, in that cycle alone.

    Parameters
    ----------
    icmp: as said.

    Members
    -------
    i: words of frames. ip_good, tcp_good: the sum is all ones.
    """

    LATENCY = 2 + Checksum.LATENCY

    def __init__(self, *, icmp: bool = False):
        self._icmp = icmp
        super().__init__({"i": In(FrameBus()), "ip_good": Out(1), "tcp_good": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.ip = ip = Checksum()
        m.submodules.tcp = tcp = Checksum()
        word, valid = Signal(FRAME_WORD_AT), Signal()
        ihl, total = Signal(4), Signal(16)
        m.d.sync += [valid.eq(self.i.valid), word.eq(self.i.p)]
        with m.If(self.i.valid & (self.i.p.index == 1)):
            m.d.sync += ihl.eq(self.i.p.data[48:52])
        pseudo = Signal() if self._icmp else Const(1)  # the pseudo header counts
        with m.If(self.i.valid & (self.i.p.index == 2)):
            m.d.sync += total.eq(big_endian(self.i.p.data[:16]))
            if self._icmp:
                m.d.sync += pseudo.eq(self.i.p.data[56:64] == PROTOCOL_TCP)

        # Of the datagram, after this word, from word 3 on; the first two bytes are in word 1.
        left = Signal(16)
        length = Signal(16)  # of TCP
        begins = word.index == 2
        following = Mux(begins, total, left) - Mux(begins, 2 + 8 + 8, 8)
        m.d.sync += length.eq(total - (ihl << 2))
        inside = Signal(8)  # lanes of this word in the datagram, from word 4 on
        with m.If(valid):
            m.d.sync += [
                left.eq(Mux(following[-1], 0, following)),
                inside.eq(Mux(left[3:].any(), Const(0xFF, 8), lanes_below(left[:3]))),
            ]

        end_index, end_lanes = header_end(ihl)
        of_header = Signal(8)  # lanes in a word that may hold the end of the header
        of_tcp = Signal(8)
        with m.If(word.index < end_index):
            m.d.comb += of_header.eq(0xFF)
        with m.Elif(word.index == end_index):
            m.d.comb += [of_header.eq(end_lanes), of_tcp.eq(~end_lanes)]
        with m.Else():
            m.d.comb += of_tcp.eq(0xFF)

        # In registers, so that what chooses a byte is not worked out for each of its bits.
        ip_lanes, tcp_lanes, tcp_word = Signal(8), Signal(8), Signal(64)
        m.d.comb += tcp_word.eq(word.data)
        for block, octets, lanes in ((ip, word.data, ip_lanes), (tcp, tcp_word, tcp_lanes)):
            m.d.sync += [
                block.valid.eq(valid),
                block.word.eq(octets),
                block.lanes.eq(lanes),
                block.first.eq(word.first),
                block.last.eq(word.last),
            ]
        with m.Switch(word.index):
            with m.Case(0):
                pass
            with m.Case(1):
                m.d.comb += ip_lanes.eq(0b11000000)
            with m.Case(2):  # protocol
                m.d.comb += [ip_lanes.eq(0xFF), tcp_lanes.eq(Cat(Const(0, 7), pseudo))]
            with m.Case(3):  # checksum of the header, source, half of the destination
                m.d.comb += [
                    ip_lanes.eq(0xFF),
                    tcp_lanes.eq(pseudo.replicate(8)),
                    tcp_word.eq(Cat(big_endian(length), word.data[16:])),
                ]
            with m.Case(4):  # the other half
                m.d.comb += [
                    ip_lanes.eq(of_header),
                    tcp_lanes.eq(pseudo.replicate(2) | (of_tcp & inside)),
                ]
            with m.Default():
                m.d.comb += [ip_lanes.eq(of_header), tcp_lanes.eq(of_tcp & inside)]
        m.d.comb += [self.ip_good.eq(ip.sum == ALL_ONES), self.tcp_good.eq(tcp.sum == ALL_ONES)]
        return m
