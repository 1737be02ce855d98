"""Ranges out of order: of any sequence of segments, all that is taken is kept, and nothing else.

At 8 bits: the comparisons are those of `tcp.sequence`, which are shown at 32.
"""

from typing import Any

from amaranth.hdl import Mux, Signal, Value

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
        found = found | ((place < ranges.used) & inside)
    return found


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
            alone = alone & apart
        good = good & ((place >= ranges.used) | alone)
    return good


def _kept(h: Harness) -> None:
    """A connection: RCV.NXT and its ranges, and segments one after another.

    A number, any one in the quarter after RCV.NXT, is followed through one step. The environment
    keeps segments within a quarter of RCV.NXT, as a window of 2^30 does of 2^32.
    """
    m = h.m
    block = Ranges(bits=BITS)
    h.block(block)
    following, ranges = Signal(BITS), Signal(ranges_layout(BITS))
    first, end, number = Signal(BITS), Signal(BITS, init=1), Signal(BITS)
    ready = Signal()  # the second cycle of a step
    new_first, new_end = h.free(BITS, "new_first"), h.free(BITS, "new_end")
    new_number = h.free(BITS, "new_number")
    m.d.sync += ready.eq(~ready)
    m.d.comb += [
        block.following.eq(following),
        block.first.eq(first),
        block.end.eq(end),
        block.ranges.eq(ranges),
    ]
    with m.If(ready):
        m.d.sync += [
            following.eq(block.following_after),
            ranges.eq(block.ranges_after),
            first.eq(new_first),
            end.eq(new_end),
            number.eq(new_number),
        ]
    after, moved = block.ranges_after, block.following_after
    legal = before(first, end) & (distance(end, first) <= QUARTER)
    near = (distance(end, following) < QUARTER) | (distance(following, end) < QUARTER)
    h.assume(legal & near)
    h.assume(distance(number, following) < QUARTER)

    h.invariant("before", _in_order(following, ranges))
    h.check("in order", ~ready | _in_order(moved, after))
    known = _inside(number, ranges)
    new = distance(number, first) < distance(end, first)
    passed = distance(number, following) < distance(moved, following)
    kept = passed | _inside(number, after)
    h.check("kept", ~ready | (kept == (known | (new & block.taken))))
    h.check("never back", ~ready | (distance(moved, following) < QUARTER))
    touching = Value.cast(0)
    for place in range(RANGES):
        each = ranges.list[place]
        apart = before(end, each.first) | before(each.end, first)
        touching = touching | ((place < ranges.used) & ~apart)
    past = before(following, end)
    room = ~before(following, first) | touching | (ranges.used < RANGES)
    h.check("taken", ~ready | (block.taken == (past & room)))
    out_of_order = block.taken & before(following, first)
    newest = after.list[0]
    holds = ~before(first, newest.first) & ~before(newest.end, end)
    h.check("newest first", ~ready | ~out_of_order | ((after.used != 0) & holds))
    h.check("moves", ~ready | out_of_order | (moved == following) | block.taken)
    joined = Mux(ready & block.taken, ranges.used - after.used, 0)
    h.cover("three ranges are joined", joined == 2)


def _mutation(old: str, new: str) -> Mutation:
    return Mutation("stagecoach.gateware.tcp.ranges", old, new)


PROPERTIES = (
    Property(
        "tcp.ranges.Ranges",
        "what is taken is kept, and nothing else; ranges stay apart, the newest first (8 bits)",
        in_harness(_kept),
        mutations=(
            _mutation("~before(end, each.first) & ~", "before(each.first, end) & ~"),
            _mutation("touched[number] & begins_before[number]", "begins_before[number]"),
            _mutation("touched[number] & ends_after[number]", "ends_after[number]"),
            _mutation("useful & (in_order | ~full)", "useful & ~full"),
            _mutation("useful & (in_order | ~full)", "in_order | ~full"),
            _mutation("self.ranges_after.used.eq(left + 1)", "self.ranges_after.used.eq(left)"),
            _mutation("others[number - 1]", "others[number]"),
        ),
        depth=2,
        engine=UNROLLED,
        covered=16,
    ),
)
