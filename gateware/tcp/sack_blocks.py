"""What an ACK says of data out of order: the ranges of a connection as a SACK option (RFC 2018)."""

from amaranth.hdl import Array, C, Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.layouts import FRAME_WORD
from stagecoach.gateware.ip.checksum import big_endian, folded
from stagecoach.gateware.tcp.ranges import RANGES, ranges_layout

NO_OPERATION, SACK = 1, 5
"""Kinds of options (RFC 9293, 3.2; RFC 2018, 3)."""

_PADDING_OCTETS, _LENGTH_OCTETS = 2, 2
"""Options that do nothing, so that numbers are aligned; kind and length of SACK."""

BLOCK_OCTETS = 8

_HALF = RANGES // 2
"""Of the ranges, those that come at once."""

MOST_OCTETS = _PADDING_OCTETS + _LENGTH_OCTETS + RANGES * BLOCK_OCTETS

_HEAD_SUM = (NO_OPERATION << 8 | NO_OPERATION) + (SACK << 8)
"""Of the bytes before the blocks, but for the length."""


class SackBlocks(wiring.Component):
    """Asks for the ranges of a connection, and gives them as bytes of a header, and their sum.

    3 cycles after `begin` `done` is high if there are no ranges. Otherwise it asks from the second
    cycle after `begin` on, and `done` is high 11 cycles after `ask` was taken, or 5 if they may not
    be told; it comes with `octets` and `sum`, until the next `begin`. From then on the words
    of the option leave, one per cycle. The first range is the one that was received last, the
    others follow in that order (RFC 2018, 4). While nobody takes `ask`, or words, it waits. Edges
    are passed on as they are, modulo 2^32.

    Parameters
    ----------
    connections: 2 to 256.

    Members
    -------
    begin, connection: a pulse, while `done` and no word is left, or nothing was begun.
    out_of_order: in the cycle after `begin`, the connection has ranges. ask, ranges: as those of
        the receive processor. allowed: ranges may be told, from a cycle after `ask` was taken on;
        otherwise it is as if there were none.
    done, octets, sum: as said; `octets` is 0 if there are no ranges. o: words, from lane 0 on.
    """

    def __init__(self, connections: int = 64):
        if not 2 <= connections <= 256:
            raise ValueError(f"SackBlocks connections is {connections!r}; allowed: 2 to 256")
        bits = (connections - 1).bit_length()
        super().__init__(
            {
                "begin": In(1),
                "connection": In(bits),
                "out_of_order": In(1),
                "ask": Out(stream.Signature(bits)),
                "ranges": In(ranges_layout()),
                "allowed": In(1),
                "done": Out(1),
                "octets": Out(range(MOST_OCTETS + 1)),
                "sum": Out(16),
                "o": Out(stream.Signature(FRAME_WORD)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        ranges = Signal(ranges_layout())
        order = ranges.order  # turned: the place of the block after the next one comes first
        block = Signal.like(ranges.list[0])
        number = Signal(range(RANGES + 1))  # of turns
        end = Signal(32)  # of the block before
        head, length = Signal(32), Signal(8)  # the option before its blocks, its length field
        total, once = Signal(21), Signal(17)
        turns = Signal()
        last = number == ranges.used
        m.d.comb += [
            length.eq(_LENGTH_OCTETS + (ranges.used << 3)),
            head.eq(Cat(length, C(SACK, 8), C(NO_OPERATION, 8), C(NO_OPERATION, 8))),
            self.o.p.last.eq(last),
            self.o.p.data.eq(Cat(big_endian(Mux(number == 0, head, end)), big_endian(block.first))),
        ]
        with m.If(turns):
            m.d.sync += [
                Value.cast(order).eq(Value.cast(order).rotate_right(len(order[0]))),
                number.eq(number + 1),
                block.eq(Array(ranges.list)[order[0]]),
                end.eq(block.end),
            ]
        with m.FSM(init="REST"):
            with m.State("REST"):  # until somebody begins
                with m.If(self.begin):
                    m.d.sync += [self.done.eq(0), self.ask.payload.eq(self.connection)]
                    m.next = "LOOK"
            with m.State("LOOK"):  # whether there are ranges
                m.d.sync += [number.eq(0), self.octets.eq(0), self.sum.eq(0)]
                m.next = "NONE"
                with m.If(self.out_of_order):
                    m.next = "ASK"
            with m.State("NONE"):
                m.d.sync += self.done.eq(1)
                m.next = "REST"
            with m.State("ASK"):  # until that is taken
                m.d.comb += self.ask.valid.eq(1)
                with m.If(self.ask.ready):
                    m.next = "HEAD"
            with m.State("HEAD"):  # how many there are; they may be gone
                m.d.sync += [order.eq(self.ranges.order), ranges.used.eq(self.ranges.used)]
                m.next = "FIRST"
            with m.State("FIRST"):  # half of them
                m.d.sync += [ranges.list[each].eq(self.ranges.list[each]) for each in range(_HALF)]
                m.next = "SECOND"
            with m.State("SECOND"):  # the others
                m.d.sync += [
                    ranges.list[each].eq(self.ranges.list[each]) for each in range(_HALF, RANGES)
                ]
                m.next = "BEGIN"
                with m.If((ranges.used == 0) | ~self.allowed):
                    m.next = "NONE"
            with m.State("BEGIN"):  # the sum; the first range
                m.d.comb += turns.eq(1)
                m.d.sync += total.eq(_HEAD_SUM + length)
                m.next = "ADD"
            with m.State("ADD"):  # each range to it, in the place of each
                m.d.comb += turns.eq(1)
                with m.If(number <= ranges.used):
                    first = block.first[16:] + block.first[:16]
                    m.d.sync += total.eq(total + (first + (block.end[16:] + block.end[:16])))
                with m.If(number == RANGES):
                    m.next = "FOLD"
            with m.State("FOLD"):  # the sum
                m.d.sync += [once.eq(folded(total)), number.eq(0)]
                m.next = "SAY"
            with m.State("SAY"):  # it, and how many bytes
                m.d.sync += [
                    self.sum.eq(folded(once)),
                    self.octets.eq(_LENGTH_OCTETS + _PADDING_OCTETS + (ranges.used << 3)),
                    self.done.eq(1),
                ]
                m.next = "GIVE"
            with m.State("GIVE"):  # the words
                m.d.comb += [self.o.valid.eq(1), turns.eq(self.o.ready)]
                with m.If(self.o.ready & last):
                    m.next = "REST"
        return m
