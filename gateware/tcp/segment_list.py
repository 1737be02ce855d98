"""Segments that were sent and not acknowledged, or wait to be sent: where each one ends."""

from amaranth.hdl import C, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, enum, memory, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.layouts import OCTETS_BITS
from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.tcp.sequence import distance

PLACES_BITS = 7

PLACES = 1 << PLACES_BITS
"""Of a connection; one of them is always free."""

SEGMENTS = data.StructLayout(
    {
        "first": PLACES_BITS,
        "current": PLACES_BITS,
        "head": PLACES_BITS,
        "first_start": 32,
        "current_start": 32,
    }
)
"""The list of a connection, which is a ring of places.

first: place of the oldest segment that is not acknowledged whole. current: of the one that SND.NXT
is in. head: the place after the last one. first_start, current_start: numbers of their first
bytes; of `head`, that is the number after all that was queued.
"""

_ENTRY = data.StructLayout({"octets": OCTETS_BITS, "whole": 1})


class SegmentOperation(enum.Enum, shape=2):
    """What happened."""

    APPEND = 0  # `octets` were queued; `whole`: an FPDU. `number` is SND.MAX
    FREE = 1  # what is before `number`, SND.UNA, was acknowledged
    SEND = 2  # what follows `number`, SND.NXT
    RESEND = 3  # what follows `number`, SND.UNA, and SND.NXT goes back there


class SegmentList(wiring.Component):
    """Keeps where segments begin and end, so that one that is sent again is the same one.

    Bytes that are appended become a segment. An FPDU joins the last one instead if that consists
    of FPDUs, nothing of it was sent, and both fit in `most` bytes: each FPDU begins a segment, or
    follows another one in it (RFC 5044, 5). An acknowledgment frees two segments at most; `more`
    says that it may be for others, which the caller frees before he sends.

    What is sent is the rest of a segment, or its next `most` bytes: SND.NXT and SND.UNA may be
    anywhere in it. A caller that sends fewer than those keeps `segments` as they were.

    The caller holds all inputs for four cycles, `most` from the second one on, `number` and `end`
    in the first one; the outputs are good in the fourth one, and as long as the inputs stay. In a
    cycle in which they are good he says `take`: then what is appended is kept. No handshake,
    nothing waits. He appends only while there are `free` places, at least one byte; he
    sends, and sends again, from within the segment, or from its end only if that is the head.
    Numbers are modulo 2^32, places modulo 128.

    Parameters
    ----------
    connections: 2 to 256.

    Members
    -------
    operation: what happened. connection: to which one. take: as said. number: of the operation.
        end: the number after all that was queued before. octets, whole: of APPEND. most: bytes
        that a segment may have, at least 1.
    segments: the list of the connection as it was.
    segments_after: as it is then. sent: bytes that are sent, 0 if none wait. more: as said.
        free: places after it.
    """

    def __init__(self, connections: int = 64):
        if not 2 <= connections <= 256:
            raise ValueError(f"SegmentList connections is {connections!r}; allowed: 2 to 256")
        self._connections = connections
        super().__init__(
            {
                "operation": In(SegmentOperation),
                "connection": In((connections - 1).bit_length()),
                "take": In(1),
                "number": In(32),
                "end": In(32),
                "octets": In(OCTETS_BITS),
                "whole": In(1),
                "most": In(OCTETS_BITS),
                "segments": In(SEGMENTS),
                "segments_after": Out(SEGMENTS),
                "sent": Out(OCTETS_BITS),
                "more": Out(1),
                "free": Out(PLACES_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Even and odd places, so that two neighbours are read at once.
        banks = [
            memory.Memory(
                shape=_ENTRY, depth=self._connections * PLACES // 2, init=[], attrs=NO_COLLISION
            )
            for _ in range(2)
        ]
        m.submodules.even, m.submodules.odd = banks
        reads, writes = [bank.read_port() for bank in banks], [bank.write_port() for bank in banks]
        segments, after = self.segments, self.segments_after
        appends, frees = Signal(), Signal()
        m.d.comb += [
            appends.eq(self.operation == SegmentOperation.APPEND),
            frees.eq(self.operation == SegmentOperation.FREE),
        ]

        # First cycle: the place of the segment, and how far `number` is from its start; of APPEND
        # how many bytes were never sent. And how many segments there are, and before the current
        # one; how many places are free.
        place = Signal(PLACES_BITS)  # of the last segment, of the current or the first one
        following = Signal(PLACES_BITS)  # the next one
        start = Signal(32)
        with m.Switch(self.operation):
            with m.Case(SegmentOperation.APPEND):
                m.d.comb += [place.eq(segments.head - 1), following.eq(segments.head)]
            with m.Case(SegmentOperation.SEND):
                m.d.comb += [
                    place.eq(segments.current),
                    following.eq(segments.current + 1),
                    start.eq(segments.current_start),
                ]
            with m.Default():
                m.d.comb += [
                    place.eq(segments.first),
                    following.eq(segments.first + 1),
                    start.eq(segments.first_start),
                ]
        m.d.comb += [
            reads[0].addr.eq(Cat(following[1:], self.connection)),
            reads[1].addr.eq(Cat(place[1:], self.connection)),
        ]
        offset, begin = Signal(32), Signal(32)
        used, sent_whole, places = (Signal(PLACES_BITS) for _ in range(3))
        m.d.sync += [
            offset.eq(
                distance(Mux(appends, self.end, self.number), Mux(appends, self.number, start))
            ),
            begin.eq(start),
            used.eq(segments.head - segments.first),
            sent_whole.eq(segments.current - segments.first),
            places.eq(segments.first - segments.head - 1),
        ]
        # Second cycle: the segment, and the one after it; what a segment may end at, or have.
        one, two = Signal(_ENTRY), Signal(_ENTRY)
        away = Signal(OCTETS_BITS + 2)  # the offset, or more than two segments have
        reach = Signal(OCTETS_BITS + 1)  # the offset after what may be sent
        room = Signal(signed(OCTETS_BITS + 1))  # beside what is appended
        waits = Signal()  # the last segment may not have been sent
        some = Signal()  # there is a segment
        at_first, near = Signal(), Signal()  # the current one is the first, or next to it
        m.d.sync += [
            one.eq(Mux(place[0], reads[1].data, reads[0].data)),
            two.eq(Mux(place[0], reads[0].data, reads[1].data)),
            away.eq(Mux(offset[OCTETS_BITS + 1 :].any(), 1 << (OCTETS_BITS + 1), offset)),
            reach.eq(offset[:OCTETS_BITS] + self.most),
            room.eq(self.most - self.octets),
            waits.eq(segments.current != segments.head),
            some.eq(place != segments.head),
            at_first.eq(sent_whole == 0),
            near.eq(sent_whole < 2),
        ]
        # Third cycle: how they compare.
        past_one, past_two, past_both = Signal(), Signal(), Signal()
        ends = Signal()  # what is sent ends the segment
        moves = Signal()  # past the segment
        moves_on = Signal()  # past the next one, too
        fits = Signal()  # what is appended, in the last one
        rest = Signal(OCTETS_BITS)
        joined = Signal(OCTETS_BITS + 1)
        after_one = Signal(32)  # where the next segment begins
        first = (away >= one.octets) & (used != 0)
        # The offset less both, of three terms two, so that it is one sum: not below 0, or above it.
        bits = len(away) + 1
        x = Cat(away, C(0, 1))
        y, z = (~Cat(each.octets, C(0, bits - OCTETS_BITS)) for each in (one, two))
        ones, twos = x ^ y ^ z, Cat(C(1, 1), (x & y) | (x & z) | (y & z))[:bits]
        reaches = ~(Cat(C(1, 1), ones) + Cat(C(1, 1), twos))[bits]
        exceeds = ~(ones + twos)[bits - 1]
        second = reaches & (used > 1)
        end = one.octets <= reach
        m.d.sync += [
            past_one.eq(first),
            past_two.eq(second),
            past_both.eq(exceeds & (used > 2)),
            ends.eq(end),
            moves.eq(Mux(frees, first, end)),
            moves_on.eq(frees & second),
            fits.eq((one.octets <= room) & one.whole & self.whole & waits),
            rest.eq(one.octets - away),
            joined.eq(one.octets + self.octets),
            after_one.eq(begin + one.octets),
        ]

        # Fourth cycle.
        joins = Signal()
        freed = Signal(2)
        moved = Signal(32)  # the start of the first, or the current, one
        overtakes = Signal()  # SND.NXT is not before SND.UNA
        gone = Signal(signed(3))  # places that are free then, or one less
        m.d.comb += [
            joins.eq(fits & past_one),
            freed.eq(Mux(past_two, 2, past_one)),
            moved.eq(Mux(moves, after_one, begin) + Mux(moves_on, two.octets, 0)),
            overtakes.eq(Mux(past_two, near, past_one & at_first)),
            self.free.eq(places + gone),
            after.eq(segments),
        ]
        with m.Switch(self.operation):
            with m.Case(SegmentOperation.APPEND):
                m.d.comb += [gone.eq(Mux(joins, 0, -1)), after.head.eq(segments.head + ~joins)]
            with m.Case(SegmentOperation.FREE):
                m.d.comb += [
                    gone.eq(freed),
                    self.more.eq(past_both),
                    after.first.eq(segments.first + freed),
                    after.first_start.eq(moved),
                ]
                with m.If(overtakes):
                    m.d.comb += [
                        after.current.eq(after.first),
                        after.current_start.eq(moved),
                    ]
            with m.Default():
                with m.If(some):
                    m.d.comb += [
                        self.sent.eq(Mux(ends, rest, self.most)),
                        after.current.eq(Mux(ends, following, place)),
                        after.current_start.eq(moved),
                    ]

        for number, port in enumerate(writes):
            target = Mux(joins, place, following)
            m.d.comb += [
                port.addr.eq(Cat(target[1:], self.connection)),
                port.data.octets.eq(Mux(joins, joined, self.octets)),
                port.data.whole.eq(self.whole),
                port.en.eq(self.take & appends & (target[0] == number)),
            ]
        return m
