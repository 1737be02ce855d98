"""Fence: when busy falls, all that had begun when it was started has ended, wherever it went.

One item, any, is followed. It begins at any pair, or is an atomic (counted elsewhere), and when it
ends in a stage it may be handed to the next one, where it begins at some pair 15 cycles later at
most; 13 cycles if `passed_<s>` told of its end, which may be in the cycle after it. If it had
begun when the fence was started, or begins in the 11 cycles after, `busy` stays until it has ended
in the last stage that it came to. So it does for what begins in a stage before the fence comes
there: all that comes of an item in the next stage with its end, or before (`under_way`).

Of the environment: what `Drain` asks for; `passed_<s>` is low from the cycle after `mark_<s>` on
until what was under way has ended.
"""

from amaranth.hdl import Mux, Signal, Value

from stagecoach.gateware.queues.fence import SETTLE, Fence
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.properties.drain import Followed
from stagecoach.hw.formal.property import Mutation, Property, in_harness

STAGES = (2, 1)
COUNT_BITS = 2

LATEST = 15
"""Cycles after its end in a stage at which an item begins in the next one."""

EARLIER = 2
"""Cycles that `passed_<s>` may be ahead of a drain."""


def _busy(h: Harness) -> None:
    m = h.m
    fence = Fence(STAGES, COUNT_BITS)
    inside = h.block(fence)
    begins = h.free(1, "begins")
    stays = h.free(1, "stays")  # it does not go on to the next stage
    atomic_ends = h.free(1, "atomic_ends")
    # Where it begins first, and the pair at which it begins in each stage; atomics come after them.
    first = h.constant(range(len(STAGES)), "first")
    places = [h.constant(range(n + 1), f"place_{s}") for s, n in enumerate(STAGES)]

    for place, pairs in zip(places, STAGES, strict=True):
        h.assume(place <= pairs)

    alive, between = Signal(), Signal()
    at = Signal(range(len(STAGES)))  # the stage where it is, or to which it is on its way
    age = Signal(range(LATEST + 1))  # cycles since its end in the stage before
    marking = inside.in_state("MARK")
    begun, over, not_waited_for = Signal(), Signal(), Signal()
    early = Signal()  # it begins in a stage to which the fence has not come
    stage, wait = inside.signal("stage"), inside.signal("wait")
    for number, pairs in enumerate(STAGES):
        comes = begins & Mux(alive, between & (at == number), first == number)
        for pair in range(pairs):
            drain = inside.child(f"drain_{number}_{pair}")
            here = comes & (places[number] == pair)
            item = Followed(h, drain, COUNT_BITS, here, f"pair_{number}_{pair}_")
            with m.If(item.begins):
                m.d.comb += [begun.eq(1), early.eq(fence.busy & (stage < number))]
                m.d.sync += at.eq(number)
            with m.If(item.ends):
                m.d.comb += over.eq(1)
                m.d.sync += age.eq(1)
            _is_here(h, item.inside, alive & ~between & (at == number) & (places[number] == pair))
            with m.If(item.inside & ~item.owed):
                m.d.comb += not_waited_for.eq(1)
        # An atomic
        atomic, asked = Signal(name=f"atomic_{number}"), Signal(name=f"asked_{number}")
        passed, mark = (getattr(fence, f"{name}_{number}") for name in ("passed", "mark"))
        h.assume(~(atomic & asked & passed))
        starts = comes & (places[number] == pairs)
        ends = atomic & atomic_ends
        m.d.sync += [
            atomic.eq(starts | (atomic & ~ends)),
            asked.eq((starts | (atomic & ~ends)) & (asked | mark)),
        ]
        with m.If(starts):
            m.d.comb += [begun.eq(1), early.eq(fence.busy & (stage < number))]
            m.d.sync += at.eq(number)
        with m.If(ends):
            m.d.comb += over.eq(1)
            m.d.sync += age.eq(1 + EARLIER)
        _is_here(h, atomic, alive & ~between & (at == number) & (places[number] == pairs))
        with m.If(atomic & ~asked):
            m.d.comb += not_waited_for.eq(1)

    goes_on = over & ~stays & (at != len(STAGES) - 1)
    with m.If(begun):
        m.d.sync += [alive.eq(1), between.eq(0)]
    with m.Elif(over):
        m.d.sync += [alive.eq(goes_on), between.eq(goes_on), at.eq(at + goes_on)]
    with m.Elif(between):
        m.d.sync += [age.eq(age + 1), between.eq(age != LATEST), alive.eq(age != LATEST)]
    dies = (over & ~goes_on) | (between & ~begun & (age == LATEST))
    there = (alive | begun) & ~dies
    waited = Signal()  # `busy` has to wait for it
    hands_over = inside.in_state("HAND_OVER")
    soon = (hands_over | marking) & (stage == 0)
    started = fence.start & ~fence.busy
    m.d.sync += waited.eq(there & (waited | started | (soon & begun) | early))
    after = Signal(range(SETTLE + 3))  # cycles since the start, 0 for many
    with m.If(started | (after != 0)):
        m.d.sync += after.eq(Mux(after == SETTLE + 2, 0, after + 1))
    h.invariant("soon", soon == (after != 0))
    h.invariant("how soon", ~soon | (after == Mux(marking, SETTLE + 2, SETTLE + 1 - wait)))

    h.check("busy until it has ended", fence.busy | ~waited)

    h.invariant("legal", inside.legal_state() & (stage <= len(STAGES)))
    h.invariant("settles", ~hands_over | (wait <= SETTLE))
    looks = inside.in_state("MARKED", "ENDED")
    h.invariant("stage", hands_over | (stage < len(STAGES)) | ~fence.busy)
    h.invariant("it is somewhere", alive | ~(between | waited))
    h.invariant("it ended before", ~between | ((at != 0) & (age != 0)))
    h.invariant("one stage after the other", ~waited | (stage <= at))
    h.invariant("it is owed", ~(waited & looks & (stage == at)) | (~between & ~not_waited_for))
    late = (hands_over & (age + wait >= LATEST - 1)) | (marking & (age >= LATEST))
    h.invariant("in time", ~(waited & between & (stage == at)) | late)


def _is_here(h: Harness, inside: Signal, here: Value) -> None:
    """The item is inside one place at most, and there if it is anywhere."""
    h.invariant(f"in {inside.name}", inside == here)


PROPERTIES = (
    Property(
        "queues.fence.Fence",
        f"busy stays until all that had begun has ended (stages of {STAGES} pairs)",
        in_harness(_busy),
        mutations=tuple(
            Mutation("stagecoach.gateware.queues.fence", *change)
            for change in (
                ("SETTLE = 9", "SETTLE = 8"),
                ('m.next = "MARKED"', 'm.next = "ENDED"'),
                ("Cat(passed).all()", "Cat(passed).any()"),
                ("take & (stage == number)", "take & (stage != number)"),
            )
        ),
        depth=6,
        mutant_cycles=26,
    ),
)
