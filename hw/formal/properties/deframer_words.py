"""What the deframer makes of words: its parts get them as they need, a segment names its own.

With the store, as in `mpa/receiver.py`; a visit may be dropped at any time.
"""

from collections.abc import Callable

from amaranth.hdl import Mux, Signal

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import SegmentKind
from stagecoach.gateware.mpa.deframer import Deframer
from stagecoach.hw.formal import receiver
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.properties.deframer import Visits
from stagecoach.hw.formal.property import Mutation, Property, in_harness

OUTCOMES_LATE = 5
"""Cycles after the room of the segment queue has fallen in which outcomes may still come."""

WORDS_LATE = 4
"""The same of words."""


def _needs(h: Harness) -> None:
    """Of the aligner (`aligner`) and the Marker remover (`marker_remove`)."""
    deframer = Deframer(RnicConfig(qps=4))
    inside = h.block(deframer)
    for name in ("count", "segments"):
        h.free_part(inside, name)
    aligner, remover = inside.child("aligner").ports, inside.child("remover").ports
    visit = deframer.visit.visit
    begins, kill = aligner.start, aligner.kill
    h.check("a visit begins when none goes on", ~begins | (aligner.ended & ~kill))
    given = (aligner.position == visit.p.position) & (aligner.markers == visit.p.markers)
    h.check("where it begins, and whether with Markers", ~begins | (visit.valid & given))
    markers = Signal(name="with_markers")
    with h.m.If(begins):
        h.m.d.sync += markers.eq(aligner.markers)
    h.check("Markers as it began", aligner.ended | (aligner.markers == markers))
    h.check("killed until its end", ~h.past(kill) | kill | aligner.ended)
    cleared = remover.clear | h.past(remover.clear)
    h.check("no word in the cycles of a clear", ~(remover.valid & cleared))
    h.check("the words of the aligner", (remover.valid == aligner.valid))
    h.check("as they are", remover.word.as_value() == aligner.word.as_value())

    visiting, started = inside.signal("visiting"), inside.signal("started")
    h.invariant("visiting", visiting | aligner.ended)
    own = inside.view("_visit", visit.p.shape()).markers == markers
    h.invariant("with Markers", ~visiting | own)
    h.invariant("a word", ~aligner.valid | ~h.past(aligner.ended))
    h.invariant("clear", ~remover.clear | h.past(kill) | aligner.ended)
    h.invariant("begun", ~started[0] | ~aligner.valid)


def _named(h: Harness) -> None:
    m = h.m
    visits = Visits(h)
    inside, deframer, store = visits.inside, visits.deframer, visits.store.writer
    remover, dropping, cleared = visits.remover, visits.dropping, visits.cleared
    o, came = remover.ports.o, remover.ports.o_valid
    outcome = inside.child("segments").ports.outcome
    bits = len(store.address)

    # Of the FPDU that comes, and of the one that ended last: where its first word is, how many
    # there are, and whether one was not written.
    fresh, index, first = Signal(init=1), Signal(bits, name="index"), Signal(bits, name="first")
    missing = Signal(name="missing")
    begin, count, misses = Signal(bits, name="begin"), Signal(bits, name="count"), Signal()
    here = Mux(fresh, store.address, first)
    written = store.write & ~store.rewind
    with m.If(came):
        m.d.sync += [
            fresh.eq(o.last),
            index.eq(Mux(o.last, 0, index + 1)),
            first.eq(here),
            missing.eq((missing | ~written) & ~o.last),
        ]
        with m.If(o.last):
            m.d.sync += [begin.eq(here), count.eq(index + 1), misses.eq(missing | ~written)]
    with m.If(cleared):
        m.d.sync += [fresh.eq(1), index.eq(0), missing.eq(0)]

    place = (here + index)[:bits]
    h.check("words of an FPDU follow each other", ~written | missing | (store.address == place))
    h.check("as they came", ~written | (store.word == o.data))
    commit = store.commit
    own = (outcome.store_address == begin) & (outcome.stored.end == (begin + count)[:bits])
    h.check("it names the words of the FPDU", ~commit | own)
    h.check("all of them were written", ~commit | ~misses)
    h.check("they are committed", ~commit | (store.commit_end == outcome.stored.end))
    h.check("it has the number of the commit", outcome.stored.number == deframer.numbers.number)
    h.check("the commit has its number", commit == deframer.numbers.commit)
    is_fpdu = outcome.kind == SegmentKind.FPDU
    h.check("it is of a kind that there is", receiver.is_kind(outcome.kind))
    told = inside.child("segments").ports.done
    h.check("a segment of each commit", ~commit | told)
    closed = deframer.closed.taken
    h.check("and of no other FPDU", ~told | closed | (commit == is_fpdu))
    # What comes when the segment queue has no more room: as soon as it counts on.
    queue, since = inside.child("segments").ports, Signal(range(OUTCOMES_LATE + 1), name="since")
    with m.If(queue.room):
        m.d.sync += since.eq(0)
    with m.Elif(since != OUTCOMES_LATE):
        m.d.sync += since.eq(since + 1)
    h.check("outcomes come in time", ~told | queue.room | (since < OUTCOMES_LATE))
    h.check("words come in time", ~queue.valid | queue.room | (since < WORDS_LATE))
    # An FPDU is told of a cycle after its last word, or it is cleared before the next one is.
    ends, complete, stale = told & ~outcome.kind.as_value()[2], Signal(name="complete"), Signal()
    forgets = stale | (complete & ~ends)
    m.d.sync += [
        complete.eq(queue.valid & queue.last & ~forgets & ~queue.clear),
        stale.eq(forgets & ~queue.clear),
    ]
    h.check("told a cycle after its last word", ~ends | (complete & ~queue.clear))
    h.invariant("forgotten", ~stale | (dropping & cleared))
    h.invariant("dropped to its end", ~(dropping & remover.ports.o_valid) | inside.signal("killed"))
    h.invariant("ended", ~complete | visits.last | dropping)
    h.invariant("none closes", ~(complete & inside.signal("closes")))
    h.invariant("aligner with room", ~inside.child("aligner").ports.room | (since == 0))
    for late, there in enumerate((visits.cut, visits.cut_one, visits.cut_two), 1):
        h.invariant(f"cut with room {late}", ~there | (since <= late))
    h.invariant("last with room", ~visits.last | (since <= 4))
    h.invariant("room", ~inside.signal("room", 0) | (since == 0))
    h.invariant("closes with room", ~inside.signal("closes") | (since <= 1))
    h.cover("two words", commit & (count == 2))

    last = visits.last
    h.invariant("fresh", remover.signal("fresh") == Mux(came, o.last, fresh))
    h.invariant("first", ~came | (o.first == fresh))
    h.invariant("index", ~fresh | ((index == 0) & ~missing))
    h.invariant("missing", ~missing | dropping)
    h.invariant("end", ~last | (inside.signal("last_address") == (begin + count - 1)[:bits]))
    h.invariant("begin", ~last | ((inside.signal("first_address") == begin) & ~misses))
    going = ~fresh & ~missing
    h.invariant("place", ~going | (store.address == place))
    h.invariant("first address", ~going | (inside.signal("first_address") == first))
    h.invariant("no word after a clear", ~h.past(cleared) | fresh)


def _property(name: str, build: Callable[[Harness], None], *changes: tuple[str, str]) -> Property:
    mutations = tuple(
        Mutation("stagecoach.gateware.mpa.deframer", old, new) for old, new in changes
    )
    return Property("mpa.deframer.Deframer", name, in_harness(build), mutations, depth=1)


PROPERTIES = (
    _property(
        "aligner and Marker remover get words and visits as they need",
        _needs,
        (
            "Mux(aligner.ended, visit.visit.payload.markers, self._visit.markers)",
            "visit.visit.payload.markers",
        ),
        ("with m.If(~visiting & quiet):", "with m.If(quiet):"),
        ("may_turn & ~killed & (~visiting | whole)", "may_turn & (~visiting | whole)"),
        ("cleared.eq(killed | flush),", "cleared.eq(killed | flush | aligner.start),"),
    ),
    _property(
        "a segment names the words of its FPDU, which were written one after the other",
        _named,
        ("with m.If(remover.o_valid & word.first):", "with m.If(remover.o_valid & word.last):"),
        ("self.store.commit_end.eq(last_address + 1)", "self.store.commit_end.eq(last_address)"),
        ("room.eq(segments.room),", "room.eq(1),"),
        ("aligner.room.eq(segments.room & ~self", "aligner.room.eq(~self"),
        ("done.eq(last & ~dropping)", "done.eq(last)"),
        ("self.numbers.commit.eq(commit)", "self.numbers.commit.eq(done)"),
        ("SegmentKind.CLOSED_INSIDE, SegmentKind.CLOSED)", "7, SegmentKind.CLOSED)"),
    ),
)
