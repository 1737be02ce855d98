"""Which received frames ask for this station: ARP requests, and ICMP echo requests."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.layouts import ETHERNET_OCTETS, FrameBus
from stagecoach.gateware.ip.checksum import big_endian
from stagecoach.gateware.ip.header import ETHERTYPE_ARP, ETHERTYPE_IPV4, IPV4_OCTETS

ARP_OCTETS = 28
"""Of a packet of ARP for IPv4 on Ethernet (RFC 826)."""

ECHO_OCTETS = 8
"""Of an ICMP echo without data (RFC 792)."""

REQUEST_OCTETS = ETHERNET_OCTETS + ARP_OCTETS
"""Of the shortest frame with a request: as many as an echo without data has."""

FRAME_BITS = 11
"""Of the length of a frame that is answered."""

MOST_IP_OCTETS = 2031
"""Of a packet that is answered: with the next 16 it has more than `FRAME_BITS` in a frame."""

PROTOCOL_ICMP = 1
_VERSION_AND_IHL = 0x45
_ECHO = bytes([8, 0])  # type, code
_ARP_HARDWARE = bytes([0, 1])
_ARP_REQUEST = bytes([8, 0, 6, 4, 0, 1])  # protocol type, lengths, opcode

assert MOST_IP_OCTETS + ETHERNET_OCTETS < 1 << FRAME_BITS
assert REQUEST_OCTETS == ETHERNET_OCTETS + IPV4_OCTETS + ECHO_OCTETS


def octets_of(value: bytes) -> int:
    """Return bytes as the number that they are in lanes, from the lowest one on."""
    return int.from_bytes(value, "little")


class RequestHeader(wiring.Component):
    """Compares the frame under way with the two requests that this station may answer by itself.

    An ARP request (RFC 826) asks for `address`; its sender has the MAC address that the frame is
    from, and another IPv4 address that is not 0: probes and announcements (RFC 5227) are none. An
    echo request (RFC 792) goes to this station alone, and to `address`; it has no IPv4 options, the
    8 bytes of its header, and a total length of at most 2,031 bytes. What the checks of Ethernet
    and IPv4 find (`Ipv4Header`) is not looked at again: versions, lengths, checksums, fragments,
    and sources that are no single host.

    One word per cycle, nothing waits. `asks` is of the words up to the one of a cycle ago, and good
    for a frame while that is its last one.

    Members
    -------
    i: words of frames. own: from the second word on, the frame is to the MAC address of this
        station. address: its IPv4 address; the first byte is the highest.
    good: in the cycle after the last word, the sum of all bytes after the IPv4 header is right.
    asks: as said.
    """

    i: In(FrameBus())
    own: In(1)
    address: In(32)
    good: In(1)
    asks: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        word = self.i.p
        lanes = word.data
        address = big_endian(self.address)
        source = Signal(48)  # of the frame
        whole = Signal()  # there are all bytes that are compared
        # Up to now the frame is a request.
        arp, echo = Signal(), Signal()
        ethertype = big_endian(lanes[32:48])
        total = big_endian(lanes[:16])
        with m.If(self.i.valid):
            with m.Switch(word.index):
                with m.Case(0):
                    m.d.sync += [
                        source[:16].eq(lanes[48:]),
                        whole.eq(0),
                    ]
                with m.Case(1):
                    m.d.sync += [
                        source[16:].eq(lanes[:32]),
                        arp.eq(
                            (ethertype == ETHERTYPE_ARP) & (lanes[48:] == octets_of(_ARP_HARDWARE))
                        ),
                        echo.eq(
                            (ethertype == ETHERTYPE_IPV4)
                            & (lanes[48:56] == _VERSION_AND_IHL)
                            & self.own
                        ),
                    ]
                with m.Case(2):
                    short = ~total[5:].any() & ~total[2:5].all()  # below 28
                    long = total[FRAME_BITS:].any() | total[4:FRAME_BITS].all()
                    protocol = lanes[56:]
                    m.d.sync += [
                        arp.eq(
                            arp
                            & (lanes[:48] == octets_of(_ARP_REQUEST))
                            & (lanes[48:] == source[:16])
                        ),
                        echo.eq(echo & ~short & ~long & (protocol == PROTOCOL_ICMP)),
                    ]
                with m.Case(3):
                    sender = lanes[32:]
                    m.d.sync += [
                        arp.eq(
                            arp & (lanes[:32] == source[16:]) & sender.any() & (sender != address)
                        ),
                        echo.eq(echo & (lanes[48:] == address[:16])),
                    ]
                with m.Case(4):
                    m.d.sync += [
                        arp.eq(arp & (lanes[48:] == address[:16])),
                        echo.eq(
                            echo & (lanes[:16] == address[16:]) & (lanes[16:32] == octets_of(_ECHO))
                        ),
                    ]
                with m.Case(5):
                    m.d.sync += [
                        arp.eq(arp & (lanes[:16] == address[16:])),
                        whole.eq(word.octets >= REQUEST_OCTETS % 8),
                    ]
        m.d.comb += self.asks.eq(whole & (arp | (echo & self.good)))
        return m
