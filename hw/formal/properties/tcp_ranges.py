"""Ranges out of order: of any sequence of segments, all that is taken is kept, and nothing else.

At 8 bits: the comparisons are those of `tcp.sequence`, which are shown at 32.
"""

from collections.abc import Callable
from typing import Any

from amaranth.hdl import Array, Cat, Mux, Signal, Value, signed

from stagecoach.gateware.tcp.ranges import RANGES, Ranges, ranges_layout
from stagecoach.gateware.tcp.sequence import before, distance
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import UNROLLED, Mutation, Property, in_harness

BITS = 8
QUARTER_BITS = BITS - 2
QUARTER = 1 << QUARTER_BITS


def _inside(number: Value, ranges: Any) -> Value:
    """Whether a number is in one of the ranges."""
    found: Value = Value.cast(0)
    for place in range(RANGES):
        each = ranges.list[place]
        inside = distance(number, each.first) < distance(each.end, each.first)
        found = found | (_holds(ranges, place) & inside)
    return found


def _holds(ranges: Any, place: int) -> Value:
    """Whether a place has a range."""
    held = [(at < ranges.used) & (ranges.order[at] == place) for at in range(RANGES)]
    return Cat(held).any()


def _alone(following: Value, ranges: Any, place: int) -> Value:
    """Whether a place has no range, or one after RCV.NXT that touches no other."""
    each = ranges.list[place]
    first, end = distance(each.first, following), distance(each.end, following)
    alone = (first > 0) & (first < end) & (end < QUARTER)
    for other_place in range(RANGES):
        other = ranges.list[other_place]
        other_first, other_end = (distance(it, following) for it in (other.first, other.end))
        apart = (other_end < first) | (end < other_first)
        if other_place != place:
            alone = alone & (apart | ~_holds(ranges, other_place))
    return alone | ~_holds(ranges, place)


class _Step:
    """The block, a connection as it wants it, and a segment near: any, held for two cycles.

    The environment keeps segments within a quarter of RCV.NXT, as a window of 2^30 does of 2^32.
    A connection begins without ranges and is then what the block leaves, so what holds of one step
    holds of all.
    """

    def __init__(self, h: Harness):
        self.block = block = Ranges(bits=BITS)
        h.block(block)
        m = h.m
        self.following = following = h.constant(BITS, "following")
        # Everything by its distance from RCV.NXT, so that few values have to be looked at.
        start = h.constant(signed(QUARTER_BITS + 1), "start")
        stop = h.constant(signed(QUARTER_BITS + 1), "stop")
        h.assume(start < stop)
        self.first, self.end = Signal(BITS), Signal(BITS)
        m.d.comb += [self.first.eq(following + start), self.end.eq(following + stop)]
        self.ranges = Signal(ranges_layout(BITS))
        edges = [
            [h.constant(QUARTER_BITS, f"{name}_{place}") for name in ("first", "end")]
            for place in range(RANGES)
        ]
        order = h.constant(len(Value.cast(self.ranges.order)), "order")
        used = h.constant(range(RANGES + 1), "used")
        m.d.comb += [self.ranges.order.eq(order), self.ranges.used.eq(used)]
        for place, (first, end) in enumerate(edges):
            each = self.ranges.list[place]
            m.d.comb += [each.first.eq(following + first), each.end.eq(following + end)]
            for other_place in range(place):
                other_first, other_end = edges[other_place]
                apart = (other_end < first) | (end < other_first)
                both = _holds(self.ranges, place) & _holds(self.ranges, other_place)
                h.assume(apart | ~both)
                h.assume(self.ranges.order[place] != self.ranges.order[other_place])
            h.assume(((first > 0) & (first < end)) | ~_holds(self.ranges, place))
        h.assume(used <= RANGES)
        m.d.comb += [
            block.following.eq(following),
            block.first.eq(self.first),
            block.end.eq(self.end),
            block.ranges.eq(self.ranges),
        ]
        self.out_of_order = block.taken & before(following, self.first)


def _apart(h: Harness) -> None:
    """What is left is what the next step may begin with."""
    step = _Step(h)
    block = step.block
    after = block.ranges_after
    h.check("used", ~h.started | (after.used <= RANGES))
    for place in range(RANGES):
        alone = _alone(block.following_after, after, place)
        h.check(f"alone {place}", ~h.started | alone)
        for other_place in range(place):
            differ = after.order[place] != after.order[other_place]
            h.check(f"order {place} {other_place}", ~h.started | differ)
    moved = distance(block.following_after, step.following)
    h.check("never back", ~h.started | (moved < QUARTER))
    h.check("moves", ~h.started | (moved == 0) | (block.taken & ~step.out_of_order))
    joined = Mux(h.started & block.taken, step.ranges.used - after.used, 0)
    h.cover("three ranges are joined", joined == 2)


def _kept(h: Harness) -> None:
    """A number, any one in the quarter after RCV.NXT, is there afterwards if it has to be."""
    step = _Step(h)
    block, following, after = step.block, step.following, step.block.ranges_after
    number = Signal(BITS)
    h.m.d.comb += number.eq(following + h.constant(QUARTER_BITS, "place"))
    known = _inside(number, step.ranges)
    new = distance(number, step.first) < distance(step.end, step.first)
    passed = distance(number, following) < distance(block.following_after, following)
    kept = passed | _inside(number, after)
    h.check("kept", ~h.started | (kept == (known | (new & block.taken))))


def _taken(h: Harness) -> None:
    """What has room is taken, and stands first."""
    step = _Step(h)
    block, after = step.block, step.block.ranges_after
    touching = Value.cast(0)
    for place in range(RANGES):
        each = step.ranges.list[place]
        apart = before(step.end, each.first) | before(each.end, step.first)
        touching = touching | (_holds(step.ranges, place) & ~apart)
    past = before(step.following, step.end)
    room = ~before(step.following, step.first) | touching | (step.ranges.used < RANGES)
    h.check("taken", ~h.started | (block.taken == (past & room)))
    newest = Array(after.list[place] for place in range(RANGES))[after.order[0]]
    holds = ~before(step.first, newest.first) & ~before(newest.end, step.end)
    h.check("newest first", ~h.started | ~step.out_of_order | ((after.used != 0) & holds))


def _mutation(old: str, new: str) -> Mutation:
    return Mutation("stagecoach.gateware.tcp.ranges", old, new)


def _property(
    name: str, build: Callable[[Harness], None], *mutations: Mutation, covered: int = 0
) -> Property:
    return Property(
        "tcp.ranges.Ranges",
        f"{name} (8 bits)",
        in_harness(build),
        mutations=mutations,
        covered=covered,
        engine=UNROLLED,
    )


PROPERTIES = (
    _property(
        "ranges stay apart and after RCV.NXT, which never goes back",
        _apart,
        _mutation("~before(end, each.first) & ~", "before(each.first, end) & ~"),
        _mutation("Mux(number <= staying, parted[number - 1], parted[number])", "parted[number]"),
        covered=4,
    ),
    _property(
        "what is taken is kept, and nothing else",
        _kept,
        _mutation("touched[number] & begins_before[number]", "begins_before[number]"),
        _mutation("touched[number] & ends_after[number]", "ends_after[number]"),
        _mutation("after.used.eq(staying + 1)", "after.used.eq(staying)"),
    ),
    _property(
        "what has room is taken, and the newest range is the first",
        _taken,
        _mutation("useful & (in_order | (staying != count))", "useful & (staying != count)"),
        _mutation("useful & (in_order | (staying != count))", "in_order | (staying != count)"),
        _mutation("after.order[0].eq(place)", "after.order[0].eq(parted[0])"),
    ),
)
