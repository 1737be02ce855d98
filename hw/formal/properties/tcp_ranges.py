"""Ranges out of order: of any sequence of segments, all that is taken is kept, and nothing else.

At 8 bits: the comparisons are those of `tcp.sequence`, which are shown at 32.
"""

from collections.abc import Callable
from typing import Any

from amaranth.hdl import Array, Cat, Mux, Value

from stagecoach.gateware.tcp.ranges import RANGES, Ranges, ranges_layout
from stagecoach.gateware.tcp.sequence import before, distance
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import UNROLLED, Mutation, Property, in_harness

BITS = 8
QUARTER = 1 << (BITS - 2)


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


def _in_order(following: Value, ranges: Any) -> Value:
    """Whether ranges are as the block wants them, and leaves them."""
    good: Value = ranges.used <= RANGES
    for place in range(RANGES):
        each = ranges.list[place]
        first, end = distance(each.first, following), distance(each.end, following)
        alone = (first > 0) & (first < end) & (end < QUARTER)
        for other_place in range(place):
            other = ranges.list[other_place]
            apart = (distance(other.end, following) < first) | (
                end < distance(other.first, following)
            )
            alone = alone & (apart | ~_holds(ranges, other_place))
            good = good & (ranges.order[place] != ranges.order[other_place])
        good = good & (alone | ~_holds(ranges, place))
    return good


class _Step:
    """The block, a connection as the block wants it, and a segment: any, held for two cycles.

    The environment keeps segments within a quarter of RCV.NXT, as a window of 2^30 does of 2^32.
    A connection begins without ranges and is then what the block leaves, so what holds of one step
    holds of all.
    """

    def __init__(self, h: Harness):
        self.block = block = Ranges(bits=BITS)
        h.block(block)
        self.following = following = h.constant(BITS, "following")
        self.first, self.end = first, end = h.constant(BITS, "first"), h.constant(BITS, "end")
        self.ranges = h.constant(ranges_layout(BITS), "ranges")
        h.m.d.comb += [
            block.following.eq(following),
            block.first.eq(first),
            block.end.eq(end),
            block.ranges.eq(self.ranges),
        ]
        near = (distance(end, following) < QUARTER) | (distance(following, end) < QUARTER)
        h.assume(before(first, end) & (distance(end, first) <= QUARTER) & near)
        h.assume(_in_order(following, self.ranges))
        self.out_of_order = block.taken & before(following, first)


def _apart(h: Harness) -> None:
    """What is left is what the next step may begin with."""
    step = _Step(h)
    block = step.block
    h.check("in order", ~h.started | _in_order(block.following_after, block.ranges_after))
    moved = distance(block.following_after, step.following)
    h.check("never back", ~h.started | (moved < QUARTER))
    h.check("moves", ~h.started | (moved == 0) | (block.taken & ~step.out_of_order))
    joined = Mux(h.started & block.taken, step.ranges.used - block.ranges_after.used, 0)
    h.cover("three ranges are joined", joined == 2)


def _kept(h: Harness) -> None:
    """A number, any one in the quarter after RCV.NXT, is there afterwards if it has to be."""
    step = _Step(h)
    block, following, after = step.block, step.following, step.block.ranges_after
    number = h.constant(BITS, "number")
    h.assume(distance(number, following) < QUARTER)
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
