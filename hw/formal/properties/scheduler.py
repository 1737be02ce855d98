"""Scheduler: nobody starves. A kicked QP is picked after at most two picks of any other one.

`first`, any QP, is kicked; `other`, any other one, may be kicked at any time. Until `first` appears
at `pick`, `other` appears there twice at most.
"""

from collections.abc import Callable

from amaranth.hdl import Cat, Mux, Signal
from amaranth.utils import exact_log2

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.queues.scheduler import GROUP, Scheduler
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import Mutation, Property, in_harness

Build = Callable[[Harness], None]


def _fair(qps: int) -> Build:
    def build(h: Harness) -> None:
        m = h.m
        dut = Scheduler(RnicConfig(qps=qps), kicks=1)
        inside = h.block(dut)
        size = min(GROUP, qps)
        groups, bits = qps // size, exact_log2(size)
        first, other = (h.constant(range(qps), name) for name in ("first", "other"))
        h.assume(first != other)
        pick, (kick,) = dut.pick, dut.kicks
        appears = pick.valid & (~h.past(pick.valid) | h.past(pick.ready))
        first_appears = appears & (pick.payload.qp == first)
        other_appears = appears & (pick.payload.qp == other)

        waits, picks = Signal(), Signal(2)
        kicked = kick.valid & (kick.qp == first)
        m.d.sync += waits.eq(kicked | (waits & ~first_appears))
        with m.If(~waits | first_appears):
            m.d.sync += picks.eq(0)
        with m.Elif(picks != 3):
            m.d.sync += picks.eq(picks + other_appears)
        so_far = picks + other_appears
        h.check("twice at most", ~waits | (so_far <= 2))

        # What is queued, and what is picked in this visit of a group
        queued, waiting, turn, above = (
            inside.signal(name) for name in ("queued", "waiting", "turn", "above")
        )
        current, picked = inside.signal("current"), inside.signal("picked")
        picked_group = inside.signal("picked_group")
        member, group = inside.signal("member_0"), inside.signal("group_0")
        members = [queued[g * size : (g + 1) * size] for g in range(groups)]
        find, collect, rest = (inside.in_state(name) for name in ("FIND", "COLLECT", "REST"))
        visit = inside.in_state("PICK", "REST", "MORE")
        first_group, other_group = first >> bits, other >> bits
        first_member, other_member = first[:bits], other[:bits]
        h.invariant("legal", inside.legal_state() & (current < groups))
        h.invariant("waiting", waiting == Cat(vector.any() for vector in members))
        h.invariant("no turn", ~(find | collect | rest) | (turn == 0))
        h.invariant("turn", ~inside.in_state("PICK") | turn.any())
        h.invariant("queued in the group", ~collect | (waiting.bit_select(current, 1)))
        h.invariant("picked", ~(find | collect | inside.in_state("MORE")) | (picked == 0))
        h.invariant("above", Cat(above[n] & ~above[n + 1] for n in range(size - 1)) == 0)
        h.invariant("after the last pick", ~inside.in_state("MORE") | ((turn & ~above) == 0))
        clears = picked.bit_select(first_member, 1) & picked_group.bit_select(first_group, 1)
        h.invariant("cleared when it appears", ~clears | first_appears)
        decoded = member.bit_select(first_member, 1) & group.bit_select(first_group, 1)
        is_queued = queued.bit_select(first, 1)
        h.invariant("queued", ~waits | is_queued | decoded)
        h.invariant("queued by then", ~waits | (picks == 0) | is_queued)

        # How often `other` may be picked yet
        in_turn = turn.bit_select(first_member, 1) & (current == first_group)
        up_to = (turn & ((2 << other_member) - 1)[:size]) == 0
        passed = Mux(rest, ~above.bit_select(other_member, 1), up_to)
        may = visit & (current == other_group) & ~passed
        together = first_group == other_group
        before = turn.bit_select(other_member, 1) & (other_member < first_member)
        left = waits & ~first_appears
        h.invariant("in its turn", ~(left & together & in_turn) | (so_far + before <= 2))
        h.invariant("before its turn", ~(left & together & ~in_turn) | (so_far + may <= 1))
        apart = left & ~together
        here = current == first_group
        missed = here & ~in_turn & ~collect
        h.invariant("after its turn", ~(apart & missed) | (so_far <= 1))
        there = apart & (current == other_group)
        h.invariant("in the other group", ~(there & visit) | (so_far + may <= 2))
        h.invariant("before the other group", ~(there & collect) | (so_far <= 1))

    return build


def _property(qps: int, *changes: tuple[str, str]) -> Property:
    return Property(
        "queues.scheduler.Scheduler",
        f"a kicked QP is picked before another one is picked a third time ({qps} QPs)",
        in_harness(_fair(qps)),
        mutations=tuple(
            Mutation("stagecoach.gateware.queues.scheduler", *change) for change in changes
        ),
        depth=2,
    )


PROPERTIES = (
    _property(
        4,
        ("Array(members)[current] & above", "Array(members)[current]"),
        ("turn.eq(turn & ~lowest)", "turn.eq(turn)"),
    ),
    _property(
        2 * GROUP,
        ("with m.If(later.any()):", "with m.If(0):"),
    ),
)
