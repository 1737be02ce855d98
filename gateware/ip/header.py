"""Ethernet and IPv4 headers of received frames: fields, and what is wrong with them."""

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.layouts import (
    ETHERNET_OCTETS,
    OCTETS_BITS,
    FrameBus,
    FrameFate,
)
from stagecoach.gateware.ip.checksum import big_endian

IPV4_OCTETS = 20
ETHERTYPE_IPV4, ETHERTYPE_ARP = 0x0800, 0x0806
PROTOCOL_TCP = 6


def header_end(ihl: Value) -> tuple[Value, Value]:
    """Return where the IPv4 header of a frame ends: word, and the lanes in it that are its own."""
    # 14 bytes of Ethernet: the header ends in lane 2 or 6 of its last word.
    return (ihl + 3) >> 1, Mux(ihl[0], Const(0b00000011, 8), Const(0b00111111, 8))


class Ipv4Header(wiring.Component):
    """Keeps fields of the frame under way, and finds the first check that it fails.

    The checks are those of RFC 894 and RFC 791, 3.1 in the order of `FrameFate`; a frame that
    passes is RAW, or of TCP. Fragments are refused. Options are skipped.

    One word per cycle, nothing waits. Outputs are of the words up to the one of a cycle ago, and
    good for a frame while that is its last one.

    Parameters
    ----------
    mtu: bytes of the longest IP packet.

    Members
    -------
    ahead, i: words of frames, and the same ones a cycle later. mac: of this station; the first
        byte is in its lowest bits.
    good: the header's checksum is right, for the frame that ended a cycle ago.
    fate: SEGMENT if TCP has to be looked at. own: the frame is to `mac`. octets: of the frame.
        ihl, total: of the header.
    source, destination: addresses; the first byte is the highest. congestion: ECN.
    """

    def __init__(self, mtu: int):
        if not 576 <= mtu < (1 << OCTETS_BITS) - ETHERNET_OCTETS - 8:
            raise ValueError(f"Ipv4Header mtu is {mtu!r}; allowed: 576 to 16361")
        self._mtu = mtu
        super().__init__(
            {
                "ahead": In(FrameBus()),
                "i": In(FrameBus()),
                "mac": In(48),
                "good": In(1),
                "fate": Out(FrameFate),
                "own": Out(1),
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
        own, group, strange = self.own, Signal(), Signal()
        error, long, short = Signal(), Signal(), Signal()
        is_ipv4, is_arp, is_tcp, fragment = Signal(), Signal(), Signal(), Signal()
        short_ip, other_version = Signal(), Signal()
        wrong_length, wrong_total = Signal(), Signal()
        no_host = Signal()  # the source is none
        multicast, ones, broadcast = Signal(), Signal(), Signal()
        inside = Signal(signed(OCTETS_BITS + 1))  # bytes after the header of Ethernet
        with m.If(self.ahead.valid):
            m.d.sync += inside.eq(
                Mux(self.ahead.p.first, -ETHERNET_OCTETS, inside) + self.ahead.p.octets
            )
        header = self.ihl << 2
        with m.If(self.i.valid):
            # A frame that ends before its total length and IHL can be compared is short.
            m.d.sync += [
                self.octets.eq(inside + ETHERNET_OCTETS),
                long.eq((~word.first & long) | (inside > self._mtu)),
                error.eq(word.error),
                short.eq(inside < 0),
                short_ip.eq(inside < IPV4_OCTETS),
                wrong_length.eq((header < IPV4_OCTETS) | (header > inside)),
                wrong_total.eq((self.total < header) | (self.total > inside)),
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
                        other_version.eq(lanes[52:56] != 4),
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
                    first = lanes[16:24]
                    m.d.sync += [
                        self.source.eq(big_endian(lanes[16:48])),
                        self.destination[16:].eq(big_endian(lanes[48:])),
                        no_host.eq((first == 0) | (first == 127) | (first >= 224)),
                        multicast.eq(lanes[52:56] == 0b1110),
                        ones.eq(lanes[48:].all()),
                    ]
                with m.Case(4):
                    m.d.sync += [
                        self.destination[:16].eq(big_endian(lanes[:16])),
                        broadcast.eq(ones & lanes[:16].all()),
                    ]

        checks = (
            (FrameFate.LINK_ERROR, error),
            (FrameFate.LONG, long),
            (FrameFate.SHORT, short),
            (FrameFate.ADDRESS, ~(own | group) | strange),
            (FrameFate.ETHERTYPE, ~is_ipv4 & ~is_arp),
            (FrameFate.RAW, is_arp),
            (FrameFate.IP_SHORT, short_ip),
            (FrameFate.IP_VERSION, other_version),
            (FrameFate.IP_HEADER_LENGTH, wrong_length),
            (FrameFate.IP_CHECKSUM, ~self.good),
            (FrameFate.IP_TOTAL_LENGTH, wrong_total),
            (FrameFate.IP_FRAGMENT, fragment),
            (FrameFate.IP_SOURCE, no_host),
            (FrameFate.RAW, ~is_tcp),
            (FrameFate.IP_DESTINATION, ~own | multicast | broadcast),
        )
        m.d.comb += self.fate.eq(first_failed(checks, FrameFate.SEGMENT))
        return m


def first_failed(checks: Sequence[tuple[Any, Value]], otherwise: Value) -> Value:
    """Return the `FrameFate` of the first check whose value is 1."""
    fate = Value.cast(otherwise)
    for failed, condition in reversed(checks):
        fate = Mux(condition, Value.cast(failed), fate)
    return fate
