"""FPDUs are freed in the order of their commits, each once, and none that is not released.

All numbers are followed, of which there are few. The deframer commits for 8 cycles at most after
`full` rose, and after a reset not before it falls. The placer releases what stands in the store.
"""

from amaranth.hdl import Array, Mux, Signal

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.mpa.release_order import MARGIN_FPDUS, ReleaseOrder
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import Mutation, Property, in_harness


class _Few(RnicConfig):
    """A device with fewer numbers than there are: each has its own invariants."""

    store_number_bits = 5


CONFIG = _Few(qps=4)
COUNT = 1 << CONFIG.store_number_bits
LATE = 8
"""Cycles after `full` rose in which FPDUs may still be committed."""


def _order(h: Harness) -> None:
    m = h.m
    dut = ReleaseOrder(CONFIG)
    inside = h.block(dut)
    commit, number, full = dut.numbers.commit, dut.numbers.number, dut.numbers.full
    oldest, clean = inside.signal("oldest"), inside.signal("clean")
    bits = len(number)

    # Distances from the oldest number
    def distance(of: Signal | int) -> Signal:
        result = Signal(bits)
        m.d.comb += result.eq(of - oldest)
        return result

    standing, cleaned = distance(number), distance(clean)
    released = distance(dut.released.number)
    since = Signal(range(LATE + 1), init=LATE)  # cycles that `full` was high before this one
    with m.If(~full):
        m.d.sync += since.eq(0)
    with m.Elif(since != LATE):
        m.d.sync += since.eq(since + 1)
    h.assume(~commit | ~full | (since < LATE))

    # What was released since its commit, and the end of one of them, any
    gone = Signal(COUNT)
    followed = h.constant(bits, "followed")
    end = Signal.like(dut.free_end)
    h.assume(~dut.release | ((released < standing) & ~Array(gone)[dut.released.number]))
    for place in range(COUNT):
        with m.If(dut.release & (dut.released.number == place)):
            m.d.sync += gone[place].eq(1)
        with m.If(commit & (number == place)):
            m.d.sync += gone[place].eq(0)
    with m.If(dut.release & (dut.released.number == followed)):
        m.d.sync += end.eq(dut.released.end)

    was_oldest = h.past(oldest)
    was_standing = h.past(standing)
    frees = dut.free & h.started
    h.check("only what stands is freed", ~frees | (was_standing != 0))
    h.check("only what is released is freed", ~frees | h.past(Array(gone)[oldest]))
    h.check("in order, each once", ~h.started | (oldest == (was_oldest + dut.free)[:bits]))
    its = frees & (was_oldest == followed)
    h.check("up to its end", ~its | (dut.free_end == end))
    used_up = commit & (standing == COUNT - 1)
    h.check("a number is not used again before it is free", ~used_up)

    # The rows, with what is being written
    memory = inside.memory("rows")
    (write,), (read, *_) = memory.write_ports, memory.read_ports
    row = inside.view("row", write.data.shape())
    for place in range(COUNT):
        kept, away = h.word(memory, place), distance(place)
        coming = write.en & (write.addr == place)
        says = Mux(coming, write.data.released, kept.released)
        h.invariant(f"row {place}", (away >= cleaned) | (says == ((away < standing) & gone[place])))
        ended = Mux(coming, write.data.end, kept.end) == end
        h.invariant(f"end {place}", (followed != place) | ~gone[place] | ended | (away >= standing))

    # What was read, as long as it counts: of the oldest number, and of the one after it
    look, looked = inside.signal("look"), inside.signal("looked")
    clashed = inside.signal("clashed")
    first, second = looked[1], looked[0]
    h.invariant("look", look == (oldest + first + second)[:bits])
    for stage, (data, place) in enumerate(((read.data, oldest + first), (row, oldest))):
        place = place[:bits]
        counts = looked[stage] & ~clashed[stage] & data.released
        there = ((place - oldest)[:bits] < standing) & Array(gone)[place]
        h.invariant(f"read {stage}", ~counts | there)
        right = (place != followed) | (data.end == end)
        h.invariant(f"end read {stage}", ~counts | right)

    # Room: rows are clean ahead of the numbers, as many as may be used.
    ahead = (clean - number)[:bits]
    late = inside.signal("ahead")
    h.invariant("clean", (standing <= cleaned) & (cleaned <= COUNT - 3))
    h.invariant("may clean", ~inside.signal("may_clean") | (cleaned <= COUNT - 4))
    # `late` is that of the cycle before, and `full` of the one before it.
    h.invariant("late", ahead + 1 >= late)
    h.invariant("room", full | (late + 1 >= MARGIN_FPDUS))
    closed = full & (since == LATE)
    h.invariant("room while full", closed | ~full | (ahead + 3 + since >= MARGIN_FPDUS))
    h.invariant("since", since <= LATE)
    opened = Signal()  # `full` was low since the reset
    with m.If(~full):
        m.d.sync += opened.eq(1)
    idle = (since == LATE) & (standing == 0) & (looked == 0) & ~inside.signal("stands")
    h.invariant("closed", Mux(opened, ahead >= MARGIN_FPDUS - 3 - LATE, idle))


PROPERTIES = (
    Property(
        "mpa.release_order.ReleaseOrder",
        "FPDUs are freed in order, each once, and none that is not released",
        in_harness(_order),
        mutations=tuple(
            Mutation("stagecoach.gateware.mpa.release_order", *change)
            for change in (
                ("looked[-1] & ~clashed[-1] & row.released", "looked[-1] & row.released"),
                ("looked[-1] & ~clashed[-1] & row.released", "looked[-1] & ~clashed[-1]"),
                ("cleans.eq(may_clean & ~self.release)", "cleans.eq(may_clean)"),
                ("full.eq(ahead < MARGIN_FPDUS)", "full.eq(ahead < 2)"),
                ("< count - 4)", "< count)"),
                ("[looked.eq(0), look.eq(oldest)]", "look.eq(oldest)"),
            )
        ),
        depth=1,
    ),
)
