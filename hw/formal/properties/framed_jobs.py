"""A job of the framer finishes once, and is reported before that.

The queue of beats that wait for the LLP is any that keeps all items, in order.
"""

from amaranth.hdl import Signal, Value
from amaranth.lib import data

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ddp.assembler import Assembler
from stagecoach.gateware.mpa.framer import BEATS_AHEAD, BEATS_MARGIN, SENT_DEPTH, Framer
from stagecoach.gateware.mpa.marker_insert import _FLAGS
from stagecoach.hw.formal.harness import Harness, Inside
from stagecoach.hw.formal.property import Mutation, Property, in_harness

CONFIG = RnicConfig(qps=4)
COUNT = 8
"""Bits of what is counted."""


def _total(values: list[Value]) -> Value:
    return Value.cast(sum(values, start=0))


def _finishes(h: Harness) -> None:
    m = h.m
    framer = Framer(CONFIG)
    inside = h.block(framer)
    outgoing = h.free_fifo(inside, "outgoing")
    inserter, reports = inside.child("inserter"), inside.child("reports")
    jobs, sent = framer.job, framer.sent
    taken = jobs.valid & jobs.ready

    # The queue of beats, by how many there are that end a job with a report, one without, and none
    comes, head = (data.View(framer._outgoing, word) for word in (outgoing.w_data, outgoing.r_data))
    held = [Signal(COUNT, name=f"held_{number}") for number in range(3)]
    level = _total(held)
    for number, count in enumerate(held):
        is_one = [
            Value.cast((beat.last & (beat.report == (number == 0))) if number < 2 else ~beat.last)
            for beat in (comes, head)
        ]
        shown = outgoing.r_rdy & is_one[1]
        m.d.sync += count.eq(count + (outgoing.w_en & is_one[0]) - (shown & outgoing.r_en))
        h.assume(~shown | (count != 0))
    h.assume(outgoing.level == level)

    under_way, reported = Signal(COUNT), Signal(COUNT)
    m.d.sync += [
        under_way.eq(under_way + taken - framer.finished.valid),
        reported.eq(reported + framer.reported - (sent.valid & sent.ready)),
    ]
    h.check("finished after it was taken", ~framer.finished.valid | (under_way != 0))
    h.check("few jobs", under_way <= 2 * BEATS_AHEAD)
    h.check("sent after it was reported", ~sent.valid | (reported != 0))
    h.check("few reports", reported <= SENT_DEPTH)
    h.check("reported before it is finished", ~h.past(framer.reported) | framer.finished.valid)
    h.check("room for each beat", ~outgoing.w_en | (level < BEATS_AHEAD))
    h.cover("two reports", reported == 2)

    room = inside.signal("room")
    h.invariant("room", ~room | (level <= BEATS_AHEAD - BEATS_MARGIN + 1))
    ends, ends_report, beats = _inside(inserter, inside)
    h.invariant("beats", level + beats <= BEATS_AHEAD)
    job, busy = inside.view("job", jobs.p.shape()), inside.signal("busy")
    next_job = inside.view("next_job", jobs.p.shape())
    next_valid = inside.signal("next_valid")
    h.invariant("next", ~next_valid | busy)
    h.invariant("takes beats", ~inside.signal("takes_beats") | busy)
    here = next_valid + busy
    h.invariant("under way", under_way == here + ends + held[0] + held[1] + framer.finished.valid)
    of_report = (next_valid & next_job.report) + (busy & job.report) + ends_report + held[0]
    kept, released = reports.signal("kept"), reports.signal("released")
    h.invariant("kept", kept == of_report + released + sent.valid)
    h.invariant("released", reported == released + sent.valid)
    h.invariant("places", kept <= SENT_DEPTH)
    second, third = inserter.signal("$signal", 2), inserter.signal("third")
    flags, fresh = inserter.view("second_flags", _FLAGS), inserter.signal("fresh")
    h.invariant("ready", ~inserter.ports.ready | ~(second | third))
    h.invariant("second or third", ~(second & third) & (~third | fresh))
    over = flags.last | flags.covered_end
    h.invariant("second", ~second | (over == fresh))


def _inside(inserter: Inside, framer: Inside) -> tuple[Value, Value, Value]:
    """Ends of jobs between the word and the queue, those of jobs with a report, and all beats."""
    second, third = inserter.signal("$signal", 2), inserter.signal("third")
    flags = inserter.view("second_flags", _FLAGS)
    tag_layout = framer.ports._tag
    tag = inserter.view("tag", tag_layout)
    owes = (second & inserter.signal("fresh")) | third
    first = inserter.view("flags", _FLAGS)
    beat = inserter.ports.o
    checked = framer.view("checked", beat.shape())
    item = framer.view("item", framer.ports._outgoing, 1)
    stages = (
        (inserter.signal("valid"), first.last, tag.report),
        (inserter.ports.o_valid, beat.flags.last, beat.tag.report),
        (framer.signal("checked_valid"), checked.flags.last, checked.tag.report),
        (framer.signal("item_valid"), item.last, item.report),
    )
    ends = owes + _total([valid & last for valid, last, _ in stages])
    ends_report = (owes & tag.report) + _total([v & last & report for v, last, report in stages])
    more = second & flags.covered_end & ~flags.last
    return ends, ends_report, second + more + third + _total([valid for valid, *_ in stages])


def _passes_on(h: Harness) -> None:
    """The assembler before it has one job at most whose copy the framer has not taken."""
    assembler = Assembler(CONFIG)
    h.block(assembler)
    job, copy = assembler.job, assembler.framer_job
    waiting = Signal(COUNT)
    h.m.d.sync += waiting.eq(waiting + (job.valid & job.ready) - (copy.valid & copy.ready))
    h.check("a copy of each job", copy.valid == (waiting != 0))
    h.check("one at most", waiting <= 1)


FRAMER = "stagecoach.gateware.mpa.framer"

PROPERTIES = (
    Property(
        "mpa.framer.Framer",
        "a job finishes once, after it was reported, and few are under way",
        in_harness(_finishes),
        mutations=(
            Mutation(
                FRAMER, "outgoing.r_rdy & outgoing.r_en & item.last", "outgoing.r_rdy & item.last"
            ),
            Mutation(FRAMER, "outgoing.w_en.eq(item_valid)", "outgoing.w_en.eq(1)"),
            Mutation(
                FRAMER, "fetch.eq(~self.o.valid & (released != 0))", "fetch.eq(~self.o.valid)"
            ),
            Mutation(FRAMER, "self.finished.valid.eq(left)", "self.finished.valid.eq(item.last)"),
        ),
        depth=1,
        reached=12,
    ),
    Property(
        "ddp.assembler.Assembler",
        "the framer has a copy of each job, once",
        in_harness(_passes_on),
        mutations=(
            Mutation(
                "stagecoach.gateware.ddp.assembler",
                "self.job.ready.eq(~active & ~self.framer_job.valid)",
                "self.job.ready.eq(~active)",
            ),
        ),
        depth=1,
    ),
)
