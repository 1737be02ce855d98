"""What was received out of order: ranges of sequence numbers after RCV.NXT, and SACK's order."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.tcp.sequence import before

RANGES = 4
"""Ranges of a connection, as many as a SACK option has blocks (RFC 2018, 3)."""

SEQUENCE_BITS = 32


def ranges_layout(bits: int = SEQUENCE_BITS, count: int = RANGES) -> data.StructLayout:
    """Return the layout of the ranges of a connection.

    list: places, each from `first` up to before `end`. order: all places; the first `used` of them
    hold ranges, the one that was received last first. A place keeps its range until that is gone.
    """
    one = data.StructLayout({"first": bits, "end": bits})
    return data.StructLayout(
        {
            "list": data.ArrayLayout(one, count),
            "order": data.ArrayLayout(range(count), count),
            "used": range(count + 1),
        }
    )


def no_ranges(count: int = RANGES) -> dict[str, object]:
    """Return the ranges of a new connection, as a value of their layout."""
    return {"order": list(range(count)), "used": 0}


class Ranges(wiring.Component):
    """Adds the octets [first, end) to those received: moves RCV.NXT, or adds and joins ranges.

    Ranges that the new octets overlap or touch become one with them. If that begins at or before
    `following`, RCV.NXT moves to its end; otherwise it is the first range, and the others follow in
    their order: the order of SACK blocks (RFC 2018, 4). What would need a range too many is not
    taken (RFC 2018, 8 allows it), nor is what ends at or before `following`: then nothing changes.

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
        touches, begins_before, ends_after = Signal(count), Signal(count), Signal(count)
        m.d.sync += [
            useful.eq(before(self.following, end)),
            in_order.eq(~before(self.following, first)),
        ]
        for number in range(count):
            each = self.ranges.list[number]
            m.d.sync += [
                touches[number].eq(~before(end, each.first) & ~before(each.end, first)),
                begins_before[number].eq(before(each.first, first)),
                ends_after[number].eq(before(end, each.end)),
            ]

        # Second cycle: places whose range stays come before those that are free then.
        order, used = self.ranges.order, self.ranges.used
        touched, stays = Signal(count), Signal(count)  # by place; by its number in the order
        staying = Signal.like(used)
        for number in range(count):
            m.d.comb += stays[number].eq((number < used) & ~touches.bit_select(order[number], 1))
        for number in range(count):
            holds = [(place < used) & (order[place] == number) for place in range(count)]
            m.d.comb += touched[number].eq(touches[number] & Cat(holds).any())
        m.d.comb += staying.eq(sum(stays[number] for number in range(count)))
        parted = _parted(m, order, stays, staying, count)

        joined = Signal.like(self.ranges.list[0])
        m.d.comb += [joined.first.eq(first), joined.end.eq(end)]
        for number in range(count):
            each = self.ranges.list[number]
            with m.If(touched[number] & begins_before[number]):
                m.d.comb += joined.first.eq(each.first)
            with m.If(touched[number] & ends_after[number]):
                m.d.comb += joined.end.eq(each.end)
        place = Signal(range(count))  # of the joined range, the first one that is free then
        m.d.comb += [
            place.eq(parted[staying]),
            self.taken.eq(useful & (in_order | (staying != count))),
            self.following_after.eq(self.following),
            self.ranges_after.eq(self.ranges),
        ]
        after = self.ranges_after
        with m.If(self.taken & in_order):
            m.d.comb += [self.following_after.eq(joined.end), after.used.eq(staying)]
            m.d.comb += [after.order[number].eq(parted[number]) for number in range(count)]
        with m.Elif(self.taken):
            m.d.comb += [after.used.eq(staying + 1), after.order[0].eq(place)]
            for number in range(count):
                with m.If(place == number):
                    m.d.comb += after.list[number].eq(joined)
            for number in range(1, count):
                earlier = Mux(number <= staying, parted[number - 1], parted[number])
                m.d.comb += after.order[number].eq(earlier)
        return m


def _parted(m: Module, order: data.View, stays: Value, staying: Value, count: int) -> Array[Value]:
    """Return the places of `order`: those that stay, then the others, each in their order."""
    parted = [Signal(range(count), name=f"parted_{number}") for number in range(count)]
    for number in range(count):
        before_it = sum((stays[earlier] for earlier in range(number)), start=Value.cast(0))
        target = Mux(stays[number], before_it, staying + number - before_it)
        for place in range(count):
            with m.If(target == place):
                m.d.comb += parted[place].eq(order[number])
    return Array(parted)
