"""ARP requests and ICMP echo requests for this station, answered without the driver."""

from collections.abc import Sequence
from itertools import pairwise

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import WORD_OCTETS
from stagecoach.gateware.ethernet.layouts import ETHERNET_OCTETS, FRAME_BEAT, FrameBus
from stagecoach.gateware.ip.checksum import big_endian, folded
from stagecoach.gateware.ip.request_header import FRAME_BITS, REQUEST_OCTETS
from stagecoach.gateware.memories import NO_COLLISION

TTL = 64
"""Of an answer."""

PLACES = 2
"""Requests on the chip."""

_PLACE_BITS = FRAME_BITS - 3
_HEADER_WORDS = 5
"""Those of a request with what has to be known before its answer begins."""

_ARP_LOW = 0x06
"""Lower byte of the EtherType of ARP; that of IPv4 is 0."""

_ECHO = 0x0800
"""Type and code of a request, which are 0 in a reply (RFC 792)."""

_SAME = "same"
"""As in the request."""

# The words of an answer up to the last one that differs, and the one after it, in pairs of bytes.
_START = (
    ("mac_0", "mac_1", "mac_2", "own_0"),
    ("own_1", "own_2", _SAME, _SAME),
)
_OF_ARP = (
    *_START,
    (_SAME, _SAME, "reply", "own_0"),
    ("own_1", "own_2", "address_0", "address_1"),
    ("mac_0", "mac_1", "mac_2", "ip_0"),
    ("ip_1", _SAME, _SAME, _SAME),
    (_SAME, _SAME, _SAME, _SAME),
)
_OF_ECHO = (
    *_START,
    (_SAME, _SAME, _SAME, "ttl"),
    ("ip_sum", "address_0", "address_1", "ip_0"),
    ("ip_1", "zero", "echo_sum", _SAME),
    (_SAME, _SAME, _SAME, _SAME),
)
_ROWS = len(_OF_ARP)


class Responder(wiring.Component):
    """Keeps up to two requests and sends the answer of each, in their order.

    The words of every frame are written over those of the one before; a frame that is `keep` stays
    until its answer has left. With two that stay the next one is `dropped`: the wire is never held
    up, and a peer asks again (RFC 826, RFC 1122, 3.2.2).

    An answer goes to the MAC address that the request came from. ARP: a reply with `mac` and
    `address` (RFC 826). ICMP: an echo reply with all data (RFC 1122, 3.2.2.6), source and
    destination exchanged, TTL 64, all other fields of IPv4 as they came. Both checksums are
    changed by what changed (RFC 1624). Padding of the request is left out.

    A request takes a word in each cycle. From its last word to the first one of its answer 10
    cycles, then a word in each, and to the next answer 10 at least. A `frame` that is not taken
    holds up answers, and nothing else; if it is never taken two requests stay, and all others are
    dropped. No number here counts further than a frame.

    Members
    -------
    i: words of frames. keep: with the last one, the frame is a request (`RequestHeader`), and all
        its checks are passed.
    mac: of this station; the first byte is in its lowest bits. address: its IPv4 address; the
        first byte is the highest. Both stand while a request is answered.
    frame: to `FrameOutput`, without a gap. answered, dropped: a pulse for each request.
    """

    i: In(FrameBus())
    keep: In(1)
    mac: In(48)
    address: In(32)
    frame: Out(stream.Signature(FRAME_BEAT))
    answered: Out(1)
    dropped: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # A place is read while it is full, and written while it is not.
        m.submodules.requests = requests = memory.Memory(
            shape=64, depth=PLACES << _PLACE_BITS, init=[], attrs=NO_COLLISION
        )
        write, read = requests.write_port(), requests.read_port()
        full = Signal(PLACES)
        self._write(m, write, full)
        self._read(m, read, full)
        return m

    def _write(self, m: Module, write: memory.WritePort, full: Signal) -> None:
        """What comes."""
        place = Signal(range(PLACES))
        # Of the word. One past the place is padding, or of no request, and is not written.
        number, past = Signal(_PLACE_BITS), Signal()
        fits = Signal()  # the place was free when the frame began
        fitted = Signal()
        word = self.i.p
        ends = self.i.valid & word.last & self.keep
        m.d.comb += [
            fits.eq(Mux(word.first, ~full.bit_select(place, 1), fitted)),
            write.addr.eq(Cat(number, place)),
            write.data.eq(word.data),
            write.en.eq(self.i.valid & fits & ~past),
            self.dropped.eq(ends & ~fits),
        ]
        with m.If(self.i.valid):
            m.d.sync += [
                fitted.eq(fits),
                Cat(number, past).eq(Mux(word.last, 0, Cat(number, past) + ~past)),
            ]
        with m.If(ends & fits):
            m.d.sync += [full.bit_select(place, 1).eq(1), place.eq(place + 1)]

    def _read(self, m: Module, read: memory.ReadPort, full: Signal) -> None:
        """What leaves: words are fetched, then at the memory's output, then in a register, then at
        `frame`. The header is fetched once before, for what has to be known of it."""
        frame = self.frame
        place = Signal(range(PLACES))
        number = Signal(_PLACE_BITS)  # of the word that is fetched
        # Of the word at the memory's output, and of the one in the register.
        rows = [Signal(3, name="row_read"), Signal(3, name="row")]
        sends = [Signal(name=f"sends_{stage}") for stage in range(3)]  # also of what is fetched
        moves = Signal()
        word = Signal(64)
        left = Signal(FRAME_BITS)  # bytes that have not left
        answer, octets = self._answer(m, moves, rows, word)
        m.d.comb += [
            moves.eq(~frame.valid | frame.ready),
            read.addr.eq(Cat(number, place)),
            read.en.eq(moves),
            frame.p.last.eq(left <= WORD_OCTETS),
            frame.p.octets.eq(Mux(frame.p.last, left, WORD_OCTETS)),
        ]
        with m.If(moves):
            m.d.sync += [
                rows[0].eq(Mux(number[3:].any(), _ROWS, number)),
                rows[1].eq(rows[0]),
                *(after.eq(before) for before, after in pairwise(sends)),
                word.eq(read.data),
                frame.valid.eq(sends[2]),
                frame.p.data.eq(answer),
            ]
        with m.FSM(init="WAIT"):
            with m.State("WAIT"):  # for a request
                m.d.sync += number.eq(0)
                with m.If(full.bit_select(place, 1)):
                    m.next = "LOAD"
            with m.State("LOAD"):  # its header
                m.d.sync += number.eq(number + 1)
                with m.If(number == _HEADER_WORDS - 1):
                    m.d.sync += [number.eq(0), sends[0].eq(1)]
                    m.next = "SEND"
            with m.State("SEND"):  # the answer
                m.d.sync += number.eq(number + moves)
                with m.If(~frame.valid):
                    m.d.sync += left.eq(octets)
                with m.Elif(frame.ready):
                    m.d.sync += left.eq(left - WORD_OCTETS)
                    with m.If(frame.p.last):
                        m.d.comb += self.answered.eq(1)
                        m.d.sync += [
                            *(each.eq(0) for each in sends),
                            frame.valid.eq(0),
                            full.bit_select(place, 1).eq(0),
                            place.eq(place + 1),
                        ]
                        m.next = "WAIT"

    def _answer(
        self, m: Module, moves: Signal, rows: Sequence[Signal], word: Signal
    ) -> tuple[Signal, Signal]:
        """Return the answer's word in the place of `word`, and the bytes of the answer.

        rows: numbers of the word after it, and of itself.
        """
        mac, ip = Signal(48), Signal(32)  # of who asks, as on the wire
        arp = Signal()
        octets = Signal(FRAME_BITS)
        ttl, ip_sum, echo_sum = Signal(9), Signal(17), Signal(17)
        # The checksum of IPv4 is changed by the new TTL less the old one, the upper byte of a sum
        # in one's complement: a carry out of it is added at the lower end, which is all ones else.
        change = Cat((~ttl[8]).replicate(8), ttl[:8] + ttl[8])[:16]
        coming, row = rows
        with m.Switch(row):
            with m.Case(0):
                m.d.sync += mac[:16].eq(word[48:])
            with m.Case(1):
                m.d.sync += [mac[16:].eq(word[:32]), arp.eq(word[40:48] == _ARP_LOW)]
            with m.Case(2):
                m.d.sync += [
                    octets.eq(Mux(arp, REQUEST_OCTETS, big_endian(word[:16]) + ETHERNET_OCTETS)),
                    ttl.eq((~word[48:56])[:8] + TTL),
                ]
            with m.Case(3):
                m.d.sync += [
                    ip.eq(Mux(arp, word[32:], word[16:48])),
                    ip_sum.eq((~big_endian(word[:16]))[:16] + change),
                ]
            with m.Case(4):
                # Not by equation 3 of RFC 1624: of octets that are all 0 it would be 0, not -0.
                m.d.sync += echo_sum.eq(big_endian(word[32:48]) + _ECHO)

        own, address = self.mac, big_endian(self.address)
        parts = {
            **{f"own_{part}": own.word_select(part, 16) for part in range(3)},
            **{f"mac_{part}": mac.word_select(part, 16) for part in range(3)},
            **{f"ip_{part}": ip.word_select(part, 16) for part in range(2)},
            **{f"address_{part}": address.word_select(part, 16) for part in range(2)},
            "reply": Const(0x0200, 16),
            "ttl": Cat(Const(TTL, 8), word[56:]),
            "ip_sum": big_endian((~folded(ip_sum))[:16]),
            "zero": Const(0, 16),
            "echo_sum": big_endian(folded(echo_sum)[:16]),
        }
        answer = Signal(64)
        for lanes in range(4):
            columns = [[row_of[lanes] for row_of in table] for table in (_OF_ECHO, _OF_ARP)]
            names = sorted({*columns[0], *columns[1]} - {_SAME})
            choice = Signal(range(1 + len(names)), name=f"choice_{lanes}")
            chosen = [word.word_select(lanes, 16), *(parts[name] for name in names)]
            m.d.comb += answer.word_select(lanes, 16).eq(Array(chosen)[choice])
            numbers = [[1 + names.index(n) if n in names else 0 for n in each] for each in columns]
            with m.If(moves):
                m.d.sync += choice.eq(Mux(arp, *(Array(each)[coming] for each in numbers[::-1])))
        return answer, octets
