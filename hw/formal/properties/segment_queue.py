"""Each outcome leaves the segment queue once, in order, as it came.

Its FIFO is any that keeps all items, in order.
"""

from amaranth.hdl import Signal, Value
from amaranth.lib import data

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.mpa.segment_queue import (
    OUTCOMES,
    OUTCOMES_MARGIN,
    SegmentQueue,
    outcome_layout,
)
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.properties.deframer_words import OUTCOMES_LATE
from stagecoach.hw.formal.property import Mutation, Property, in_harness

CONFIG = RnicConfig(qps=4)
COUNT = 6
"""Bits of the number of an outcome."""


def _outcomes(h: Harness) -> None:
    m = h.m
    queue = SegmentQueue(CONFIG)
    inside = h.block(queue)
    fifo = h.free_fifo(inside, "outcomes")
    layout = outcome_layout(CONFIG)
    since = Signal(range(OUTCOMES_LATE + 1))
    with m.If(queue.room):
        m.d.sync += since.eq(0)
    with m.Elif(since != OUTCOMES_LATE):
        m.d.sync += since.eq(since + 1)
    h.assume(~queue.done | queue.room | (since < OUTCOMES_LATE))

    # One outcome, any, is followed.
    came, gone, left = (Signal(COUNT, name=name) for name in ("came", "gone", "left"))
    gives = fifo.r_en & fifo.r_rdy
    leaves = queue.segment.valid & queue.segment.ready
    m.d.sync += [
        came.eq(came + queue.done),
        gone.eq(gone + gives),
        left.eq(left + leaves),
    ]
    number = h.constant(COUNT, "number")
    own = data.View(layout, Signal(layout.size, name="own"))
    with m.If(queue.done & (came == number)):
        m.d.sync += own.eq(queue.outcome)
    held = (came - gone)[:COUNT]
    h.assume(fifo.level == held)
    h.assume(~fifo.r_rdy | (held != 0))
    h.assume(~(fifo.r_rdy & (gone == number)) | (fifo.r_data == own.as_value()))

    h.check("room for each", ~queue.done | (held < OUTCOMES))
    taken = (fifo.w_en == queue.done) & (fifo.w_data == queue.outcome.as_value())
    h.check("each is kept", ~queue.done | taken)
    shown = queue.segment
    h.check("none that has not come", ~shown.valid | (came != left))
    for name in layout.members:
        same = Value.cast(shown.p[name]) == Value.cast(own[name])
        h.check(f"its {name}", ~(shown.valid & (left == number)) | same)
    h.cover("two", queue.done & (held == 2))

    h.invariant("given", gone == (left + shown.valid)[:COUNT])
    h.invariant("since", since <= OUTCOMES_LATE)
    h.invariant("few", held <= OUTCOMES - OUTCOMES_MARGIN + since + 1)
    given = inside.signal("given")
    h.invariant("as it came", ~(shown.valid & (left == number)) | (given == own.as_value()))


PROPERTIES = (
    Property(
        "mpa.segment_queue.SegmentQueue",
        "each outcome leaves once, in order, as it came",
        in_harness(_outcomes),
        mutations=tuple(
            Mutation("stagecoach.gateware.mpa.segment_queue", old, new)
            for old, new in (
                ("gives.eq(~segment.valid & outcomes.r_rdy", "gives.eq(outcomes.r_rdy"),
                ("(outcomes.level <= OUTCOMES - OUTCOMES_MARGIN)", "(outcomes.level < OUTCOMES)"),
                ("outcomes.w_en.eq(self.done)", "outcomes.w_en.eq(self.done & self.room)"),
            )
        ),
        depth=1,
        reached=3,
        mutant_cycles=12,
    ),
)
