"""What an ACK says of data out of order: the ranges of a connection as a SACK option (RFC 2018)."""

from amaranth.hdl import Array, C, Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.layouts import FRAME_WORD
from stagecoach.gateware.ip.checksum import big_endian, folded
from stagecoach.gateware.tcp.ranges import RANGES, ranges_layout

NO_OPERATION, SACK = 1, 5
"""Kinds of options (RFC 9293, 3.2; RFC 2018, 3)."""

OPTION_OCTETS = 4
"""Two that do nothing, so that numbers are aligned, and kind and length of SACK."""

BLOCK_OCTETS = 8

MOST_OCTETS = OPTION_OCTETS + RANGES * BLOCK_OCTETS


class SackBlocks(wiring.Component):
    """Asks for the ranges of a connection, and gives them as octets of a header, and their sum.

    It asks from the cycle after `begin` on. 5 cycles after `ask` was taken, and one more for each
    block, `done` is high, with `octets` and `sum`, until the next `begin`. From then on the words
    of the option leave, one per cycle, if there are ranges. The first one is the one that was
    received last, the others follow in that order (RFC 2018, 4). While nobody takes `ask`, or
    words, it waits. Edges are passed on as they are, modulo 2^32.

    Parameters
    ----------
    connections: 2 to 256.

    Members
    -------
    begin, connection: a pulse, while `done` and no word is left, or nothing was begun.
    ask: connections. ranges: a cycle after that was taken, those of the connection.
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
                "ask": Out(stream.Signature(bits)),
                "ranges": In(ranges_layout()),
                "done": Out(1),
                "octets": Out(range(MOST_OCTETS + 1)),
                "sum": Out(16),
                "o": Out(stream.Signature(FRAME_WORD)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        ranges = Signal(ranges_layout())
        number = Signal(range(RANGES + 1))  # of the block that is added, or that leaves first
        chosen = Signal(range(RANGES))
        block = Signal.like(ranges.list[0])
        end = Signal(32)  # of the block before
        length = Signal(range(MOST_OCTETS + 1))
        total = Signal(21)
        once = Signal(17)
        head, says = Signal(32), Signal(8)  # the option before its blocks, its length field
        last = number == ranges.used
        m.d.comb += [
            chosen.eq(Array(ranges.order)[number[:2]]),
            block.eq(Array(ranges.list)[chosen]),
            length.eq(OPTION_OCTETS + (ranges.used << 3)),
            says.eq(length - 2),
            head.eq(Cat(says, C(SACK, 8), C(NO_OPERATION, 8), C(NO_OPERATION, 8))),
            self.o.p.last.eq(last),
            self.o.p.data.eq(
                Cat(
                    big_endian(Mux(number == 0, head, end)),
                    big_endian(block.first),
                )
            ),
        ]
        # Their sum as 16-bit words.
        option = head[16:] + head[:16]
        adds = block.first[16:] + block.first[:16] + block.end[16:] + block.end[:16]
        with m.FSM(init="REST"):
            with m.State("REST"):  # until somebody begins
                with m.If(self.begin):
                    m.d.sync += [
                        self.done.eq(0),
                        self.ask.valid.eq(1),
                        self.ask.payload.eq(self.connection),
                    ]
                    m.next = "ASK"
            with m.State("ASK"):  # until that is taken
                with m.If(self.ask.ready):
                    m.d.sync += self.ask.valid.eq(0)
                    m.next = "TAKE"
            with m.State("TAKE"):  # the ranges
                m.d.sync += [ranges.eq(self.ranges), number.eq(0)]
                m.next = "ADD"
            with m.State("ADD"):  # a block to the sum, and the option in the end
                m.d.sync += [
                    total.eq(Mux(number == 0, 0, total) + Mux(last, option, adds)),
                    number.eq(number + 1),
                ]
                with m.If(last):
                    m.next = "FOLD"
            with m.State("FOLD"):  # the sum
                m.d.sync += [once.eq(folded(total)), number.eq(0)]
                m.next = "SAY"
            with m.State("SAY"):  # the sum, and how many octets
                m.d.sync += [
                    self.sum.eq(Mux(ranges.used == 0, 0, folded(once))),
                    self.octets.eq(Mux(ranges.used == 0, 0, length)),
                    self.done.eq(1),
                    self.o.valid.eq(ranges.used != 0),
                ]
                m.next = "REST"
                with m.If(ranges.used != 0):
                    m.next = "GIVE"
            with m.State("GIVE"):  # the words
                with m.If(self.o.ready):
                    m.d.sync += [number.eq(number + 1), end.eq(block.end)]
                    with m.If(last):
                        m.d.sync += self.o.valid.eq(0)
                        m.next = "REST"
        return m
