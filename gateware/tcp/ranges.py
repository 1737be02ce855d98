"""What was received out of order: ranges of sequence numbers after RCV.NXT, and SACK's order."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.tcp.sequence import before

RANGES = 4
"""Ranges of a connection, as many as a SACK option has blocks (RFC 2018, 3)."""

SEQUENCE_BITS = 32


def ranges_layout(bits: int = SEQUENCE_BITS, count: int = RANGES) -> data.StructLayout:
    """Return the layout of the ranges of a connection.

    list: each from `first` up to before `end`; the one that was received last is number 0.
    used: how many there are.
    """
    one = data.StructLayout({"first": bits, "end": bits})
    return data.StructLayout({"list": data.ArrayLayout(one, count), "used": range(count + 1)})


class Ranges(wiring.Component):
    """Adds the octets [first, end) to those received: moves RCV.NXT, or adds and joins ranges.

    Ranges that the new octets overlap or touch become one with them. If that begins at or before
    `following`, RCV.NXT moves to its end; otherwise it is range 0, and the others follow in their
    order: the order of SACK blocks (RFC 2018, 4). What would need a range too many is not taken
    (RFC 2018, 8 allows it), nor is what ends at or before `following`: then nothing changes.

    The caller holds all inputs for two cycles; the outputs are good in the second one. No state, no
    handshake. It guarantees that ranges are not empty, do not touch each other, and come after
    `following`, as the outputs do; that `first` is before `end`; and that all numbers are within a
    quarter of all numbers from `following`: windows have at most 2^30 octets (RFC 7323, 2.3).

    Parameters
    ----------
    bits: width of a sequence number. count: ranges.

    Members
    -------
    following: RCV.NXT. first, end: of the new octets. ranges: those of the connection.
    following_after, ranges_after: the same with the new octets. taken: whether they are kept.
    """

    def __init__(self, bits: int = SEQUENCE_BITS, count: int = RANGES):
        if count < 1:
            raise ValueError(f"Ranges count is {count!r}; allowed: 1 and more")
        self._count = count
        layout = ranges_layout(bits, count)
        super().__init__(
            {
                "following": In(bits),
                "first": In(bits),
                "end": In(bits),
                "ranges": In(layout),
                "following_after": Out(bits),
                "ranges_after": Out(layout),
                "taken": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = self._count
        first, end = self.first, self.end

        # First cycle: the comparisons. All that touch the new octets are disjoint, so at most one
        # of them begins before these, and at most one ends after them.
        useful, in_order = Signal(), Signal()
        touched, begins_before, ends_after = Signal(count), Signal(count), Signal(count)
        m.d.sync += [
            useful.eq(before(self.following, end)),
            in_order.eq(~before(self.following, first)),
        ]
        for number in range(count):
            each = self.ranges.list[number]
            touches = ~before(end, each.first) & ~before(each.end, first)
            m.d.sync += [
                touched[number].eq((number < self.ranges.used) & touches),
                begins_before[number].eq(before(each.first, first)),
                ends_after[number].eq(before(end, each.end)),
            ]

        # Second cycle: what was chosen.
        new_first, new_end = Signal.like(first), Signal.like(end)
        m.d.comb += [new_first.eq(first), new_end.eq(end)]
        for number in range(count):
            each = self.ranges.list[number]
            with m.If(touched[number] & begins_before[number]):
                m.d.comb += new_first.eq(each.first)
            with m.If(touched[number] & ends_after[number]):
                m.d.comb += new_end.eq(each.end)
        full = (self.ranges.used == count) & ~touched.any()
        m.d.comb += [
            self.taken.eq(useful & (in_order | ~full)),
            self.following_after.eq(self.following),
            self.ranges_after.eq(self.ranges),
        ]
        others = _remaining(m, self.ranges, touched, count)
        left = Signal.like(self.ranges.used)  # ranges that are not touched
        m.d.comb += left.eq(self.ranges.used - sum(touched[number] for number in range(count)))
        with m.If(self.taken & in_order):
            m.d.comb += [self.following_after.eq(new_end), self.ranges_after.used.eq(left)]
            for number in range(count):
                m.d.comb += self.ranges_after.list[number].eq(others[number])
        with m.Elif(self.taken):
            newest = self.ranges_after.list[0]
            m.d.comb += [
                newest.first.eq(new_first),
                newest.end.eq(new_end),
                self.ranges_after.used.eq(left + 1),
            ]
            for number in range(1, count):
                m.d.comb += self.ranges_after.list[number].eq(others[number - 1])
        return m


def _remaining(m: Module, ranges: data.View, touched: Value, count: int) -> list[Value]:
    """Return the ranges that are not touched, in their order, from number 0 on."""
    found = []
    for place in range(count):
        chosen = Signal.like(ranges.list[0].as_value(), name=f"remaining_{place}")
        # Range number `place + n` stands here if n of those before it are gone.
        for number in range(place, count):
            gone = sum(touched[earlier] for earlier in range(number)) if number else Value.cast(0)
            with m.If(~touched[number] & (gone == number - place)):
                m.d.comb += chosen.eq(ranges.list[number].as_value())
        found.append(chosen)
    return found
