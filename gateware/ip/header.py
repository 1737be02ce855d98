"""Ethernet and IPv4 headers of received frames: fields, and what is wrong with them."""

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.layouts import OCTETS_BITS, FrameBus, FrameFate
from stagecoach.gateware.ip.checksum import big_endian

ETHERNET_OCTETS = 14
IPV4_OCTETS = 20
ETHERTYPE_IPV4, ETHERTYPE_ARP = 0x0800, 0x0806
PROTOCOL_TCP = 6


def header_end(ihl: Value) -> tuple[Value, Value]:
    """Return where the IPv4 header of a frame ends: word, and the lanes in it that are its own."""
    # 14 octets of Ethernet: the header ends in lane 2 or 6 of its last word.
    return (ihl + 3) >> 1, Mux(ihl[0], Const(0b00000011, 8), Const(0b00111111, 8))


class Ipv4Header(wiring.Component):
    """Keeps fields of the frame under way, and finds the first check that it fails.

    The checks are those of RFC 894 and RFC 791, 3.1 in the order of `FrameFate`; a frame that
    passes is RAW, or of TCP. Fragments are refused. Options are skipped.

    One word per cycle, nothing waits. Outputs are of the words up to the one of a cycle ago, and
    good for a frame while that is its last one.

    Parameters
    ----------
    mtu: octets of the longest IP packet.

    Members
    -------
    i: words of frames. mac: of this station; the first octet is in its lowest bits.
    good: the header's checksum is right, for the frame that ended a cycle ago.
    fate: SEGMENT if TCP has to be looked at. octets: of the frame. ihl, total: of the header.
    source, destination: addresses; the first octet is the highest. congestion: ECN.
    """

    def __init__(self, mtu: int):
        if not 576 <= mtu < (1 << OCTETS_BITS) - ETHERNET_OCTETS - 8:
            raise ValueError(f"Ipv4Header mtu is {mtu!r}; allowed: 576 to 16361")
        self._longest = mtu + ETHERNET_OCTETS
        super().__init__(
            {
                "i": In(FrameBus()),
                "mac": In(48),
                "good": In(1),
                "fate": Out(FrameFate),
                "octets": Out(OCTETS_BITS),
                "ihl": Out(4),
                "total": Out(16),
                "source": Out(32),
                "destination": Out(32),
                "congestion": Out(2),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        word = self.i.p
        lanes = word.data
        own, group, strange = Signal(), Signal(), Signal()
        error, long = Signal(), Signal()
        is_ipv4, is_arp, is_tcp, fragment = Signal(), Signal(), Signal(), Signal()
        version = Signal(4)
        octets = Signal(OCTETS_BITS)
        m.d.comb += octets.eq(Mux(word.first, 0, self.octets) + word.octets)
        with m.If(self.i.valid):
            m.d.sync += [
                self.octets.eq(octets),
                long.eq((~word.first & long) | (octets > self._longest)),
                error.eq(word.error),
            ]
            with m.Switch(word.index):
                with m.Case(0):
                    m.d.sync += [
                        own.eq(lanes[:48] == self.mac),
                        group.eq(lanes[0]),
                        strange.eq(lanes[48]),
                    ]
                with m.Case(1):
                    ethertype = big_endian(lanes[32:48])
                    m.d.sync += [
                        is_ipv4.eq(ethertype == ETHERTYPE_IPV4),
                        is_arp.eq(ethertype == ETHERTYPE_ARP),
                        self.ihl.eq(lanes[48:52]),
                        version.eq(lanes[52:56]),
                        self.congestion.eq(lanes[56:58]),
                    ]
                with m.Case(2):
                    m.d.sync += [
                        self.total.eq(big_endian(lanes[:16])),
                        # MF, or an offset
                        fragment.eq((big_endian(lanes[32:48]) & 0x3FFF).any()),
                        is_tcp.eq(lanes[56:64] == PROTOCOL_TCP),
                    ]
                with m.Case(3):
                    m.d.sync += [
                        self.source.eq(big_endian(lanes[16:48])),
                        self.destination[16:].eq(big_endian(lanes[48:])),
                    ]
                with m.Case(4):
                    m.d.sync += self.destination[:16].eq(big_endian(lanes[:16]))

        inside = Signal(OCTETS_BITS + 1)  # octets after the header of Ethernet
        header = self.ihl << 2
        first = self.source[24:]
        m.d.comb += inside.eq(self.octets - ETHERNET_OCTETS)
        to_group = (self.destination[28:] == 0b1110) | self.destination.all()
        checks = (
            (FrameFate.LINK_ERROR, error),
            (FrameFate.LONG, long),
            (FrameFate.SHORT, inside[-1]),
            (FrameFate.ADDRESS, ~(own | group) | strange),
            (FrameFate.ETHERTYPE, ~is_ipv4 & ~is_arp),
            (FrameFate.RAW, is_arp),
            (FrameFate.IP_SHORT, inside < IPV4_OCTETS),
            (FrameFate.IP_VERSION, version != 4),
            (FrameFate.IP_HEADER_LENGTH, (header < IPV4_OCTETS) | (header > inside)),
            (FrameFate.IP_CHECKSUM, ~self.good),
            (FrameFate.IP_TOTAL_LENGTH, (self.total < header) | (self.total > inside)),
            (FrameFate.IP_FRAGMENT, fragment),
            (FrameFate.IP_SOURCE, (first == 0) | (first == 127) | (first >= 224)),
            (FrameFate.RAW, ~is_tcp),
            (FrameFate.IP_DESTINATION, ~own | to_group),
        )
        m.d.comb += self.fate.eq(first_failed(checks, FrameFate.SEGMENT))
        return m


def first_failed(checks: Sequence[tuple[Any, Value]], otherwise: Value) -> Value:
    """Return the `FrameFate` of the first check whose value is 1."""
    fate = Value.cast(otherwise)
    for failed, condition in reversed(checks):
        fate = Mux(condition, Value.cast(failed), fate)
    return fate
