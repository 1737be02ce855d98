"""What was received out of order: ranges of sequence numbers after RCV.NXT, and SACK's order."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal, Value
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
    """Adds the bytes [first, end) to those received: moves RCV.NXT, or adds and joins ranges.

    Ranges that the new bytes overlap or touch become one with them. If that begins at or before
    `following`, RCV.NXT moves to its end; otherwise it is the first range, and the others follow in
    their order: the order of SACK blocks (RFC 2018, 4). What would need a range too many is not
    taken (RFC 2018, 8 allows it), nor is what ends at or before `following`: then nothing changes.

    The caller holds all inputs for four cycles, `adds` from the second one on. `following_after`
    and `taken` are good from the third one on, `ranges_after` in the fourth. No handshake.
    It guarantees that ranges are not empty, do not touch each other, and come after
    `following`, as the outputs do; that `first` is before `end`; and that all numbers are within a
    quarter of all numbers from `following`: windows have at most 2^30 octets (RFC 7323, 2.3).

    Parameters
    ----------
    bits: width of a sequence number. count: ranges.

    Members
    -------
    following: RCV.NXT. first, end: of the new bytes. ranges: those of the connection. adds: there
        are new bytes; without it nothing changes, and `first` and `end` mean nothing.
    following_after, ranges_after: the same with the new bytes. taken: whether they are kept.
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
                "adds": In(1),
                "following_after": Out(bits),
                "ranges_after": Out(layout),
                "taken": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = self._count
        first, end = self.first, self.end

        order, used = self.ranges.order, self.ranges.used

        # First cycle: the comparisons; which places hold ranges. All that touch the new bytes are
        # disjoint, so at most one of them begins before these, and at most one ends after them.
        useful, in_order = Signal(), Signal()
        touches, begins_before, ends_after, held = (Signal(count) for _ in range(4))
        m.d.sync += [
            useful.eq(before(self.following, end)),
            in_order.eq(~before(self.following, first)),
        ]
        for number in range(count):
            each = self.ranges.list[number]
            holds = [(place < used) & (order[place] == number) for place in range(count)]
            m.d.sync += [
                touches[number].eq(~before(end, each.first) & ~before(each.end, first)),
                begins_before[number].eq(before(each.first, first)),
                ends_after[number].eq(before(end, each.end)),
                held[number].eq(Cat(holds).any()),
            ]

        # Second cycle: what the new bytes become one with; which ranges stay, in their order.
        joined = Signal.like(self.ranges.list[0])
        joined_end = Signal.like(end)
        stays = Signal(count)
        firsts = [self.ranges.list[number].first for number in range(count)]
        ends = [self.ranges.list[number].end for number in range(count)]
        m.d.comb += joined_end.eq(_either(touches & held & ends_after, ends, end))
        m.d.sync += [
            joined.first.eq(_either(touches & held & begins_before, firsts, first)),
            joined.end.eq(joined_end),
            self.following_after.eq(Mux(self.adds & useful & in_order, joined_end, self.following)),
        ]
        for number in range(count):
            m.d.sync += stays[number].eq((number < used) & ~touches.bit_select(order[number], 1))

        # Third cycle: places whose range stays come before those that are free then; of these the
        # first one is that of the joined range.
        place = Signal(range(count))
        for number in reversed(range(count)):
            with m.If(~stays[number]):
                m.d.comb += place.eq(order[number])
        m.d.comb += self.taken.eq(self.adds & useful & (in_order | ~stays.all()))
        staying = Signal.like(used)
        parted = Signal.like(order)
        joined_place, puts = Signal.like(place), Signal(count)
        m.d.sync += [
            staying.eq(sum(stays[number] for number in range(count))),
            Value.cast(parted).eq(Cat(_parted(order, stays, count))),
            joined_place.eq(place),
        ]
        for number in range(count):
            m.d.sync += puts[number].eq(self.taken & ~in_order & (place == number))

        # Fourth cycle.
        after = self.ranges_after
        m.d.comb += after.eq(self.ranges)
        for number in range(count):
            with m.If(puts[number]):
                m.d.comb += after.list[number].eq(joined)
        with m.If(self.taken & in_order):
            m.d.comb += [after.used.eq(staying), after.order.eq(parted)]
        with m.Elif(self.taken):
            m.d.comb += [after.used.eq(staying + 1), after.order[0].eq(joined_place)]
            for number in range(1, count):
                earlier = Mux(number <= staying, parted[number - 1], parted[number])
                m.d.comb += after.order[number].eq(earlier)
        return m


def _either(chosen: Value, values: list[Value], otherwise: Value) -> Value:
    """Return the value whose bit is set in `chosen`, at most one is, or another one."""
    masked = (Mux(chosen[number], value, 0) for number, value in enumerate(values))
    return Mux(chosen.any(), reduce(or_, masked), otherwise)


def _parted(order: data.View, stays: Value, count: int) -> list[Value]:
    """Return the places of `order`: those that stay, then the others, each in their order.

    Neighbours change places where the second one stays and the first one does not.
    """
    places = [order[number] for number in range(count)]
    stay = [stays[number] for number in range(count)]
    for turn in range(count):
        for number in range(turn % 2, count - 1, 2):
            one, two = number, number + 1
            change = ~stay[one] & stay[two]
            places[one], places[two] = (
                Mux(change, places[two], places[one]),
                Mux(change, places[one], places[two]),
            )
            stay[one], stay[two] = stay[one] | stay[two], stay[one] & stay[two]
    return places
