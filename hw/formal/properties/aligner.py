"""The aligner cuts what is received into words, none lost, as ULPDU_Length and Markers say.

One unit of 4 bytes, any, is followed from the beats to the words; the rest is counted. What it has
to be is written from RFC 5044, 4.1 to 4.3, with the word that came out alone. Beats pass a buffer,
of which the rows of FIFOs speak.
"""

from typing import Any

from amaranth.hdl import Cat, Mux, Signal, Value

from stagecoach.gateware.config import MAX_ULPDU_LENGTH
from stagecoach.gateware.mpa.aligner import _BEAT, _UNIT, Aligner
from stagecoach.gateware.mpa.layouts import ANSWER
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.invariants import invariants
from stagecoach.hw.formal.property import Mutation, Property, in_harness

NAME = "mpa.aligner.Aligner"
NUMBER_BITS = 6
"""Units are numbered modulo a power of two: no more than four of them are under way."""
MARKER_UNITS = 128
"""A Marker stands in every 128th unit of the stream: 512 bytes."""


def _ulpdu_length(unit: Any) -> Value:
    return Cat(unit[8:16], unit[:8])


def _fpdu_units(length: Value) -> Value:
    """Of ULPDU_Length, ULPDU, PAD and CRC."""
    return ((2 + length + 3) >> 2) + 1


class _Words:
    """The words of a visit: what was counted before each, and what is to come after it.

    `size` units are in the word; after it, `left` units without Markers are to come of the FPDU if
    it is `inside` one. What ends with `_after` counts the word as well, if there is one.
    """

    def __init__(self, h: Harness, aligner: Aligner) -> None:
        m, word, valid = h.m, aligner.word, aligner.valid
        self.markers = Signal(name="with_markers")
        self.dead = Signal(name="dead", init=1)  # before the first visit, and once it is killed
        self.closed = Signal(name="closed", init=1)  # its last beat was used
        place, number = Signal(range(MARKER_UNITS), name="place"), Signal(NUMBER_BITS, name="out")
        inside, left = Signal(name="inside_fpdu"), Signal(17, name="left_of_fpdu")
        self.place, self.number, self.inside = place, number, inside
        self.size = Mux(word.half, 1, 2)
        due = (self.markers & (place == 0), self.markers & (place == MARKER_UNITS - 1))
        self.due = Cat(due[0], due[1] & ~word.half)
        length = _ulpdu_length(Mux(due[0], word.data[32:], word.data[:32]))
        self.oversize = ~inside & (length > MAX_ULPDU_LENGTH)
        self.units = _fpdu_units(length)
        self.to_come = Mux(inside, left, self.units)
        self.counted = self.size - self.due[0] - self.due[1]
        self.left_after = Mux(valid, self.to_come - self.counted, left)[:17]
        self.inside_after = Mux(valid, ~word.final, inside)
        self.place_after = Mux(valid, place + self.size, place)[:7]
        self.number_after = Mux(valid, number + self.size, number)[:NUMBER_BITS]
        m.d.sync += [
            place.eq(self.place_after),
            number.eq(self.number_after),
            inside.eq(self.inside_after),
            left.eq(self.left_after),
        ]
        with m.If(aligner.kill):
            m.d.sync += self.dead.eq(1)
        with m.If(aligner.start):
            m.d.sync += [
                self.dead.eq(0),
                self.closed.eq(0),
                self.markers.eq(aligner.markers),
                place.eq(aligner.position[2:9]),
                number.eq(0),
                inside.eq(0),
            ]
        self.marker_next = self.markers & (self.place_after == 0)


def _is_described(unit: Any) -> Value:
    """What is said of a unit, should it start an FPDU, is right."""
    length = _ulpdu_length(unit.data)
    units = _fpdu_units(length)
    right = (unit.units == units[:15]) & (unit.oversize == (length > MAX_ULPDU_LENGTH))
    for name, count in (("two", 2), ("three", 3), ("four", 4)):
        right &= unit[name] == (units == count)
    return right


def _needs(h: Harness, aligner: Aligner, words: _Words) -> None:
    """`deframer_words`."""
    h.assume(~aligner.start | (aligner.ended & ~aligner.kill))
    h.assume(~h.past(aligner.kill) | aligner.kill | aligner.ended)
    h.assume(aligner.ended | (aligner.markers == words.markers))


def _cuts(h: Harness) -> None:
    m = h.m
    aligner = Aligner()
    inside = h.block(aligner)
    invariants(h, NAME, inside)
    words = _Words(h, aligner)
    _needs(h, aligner, words)
    word, valid, dead = aligner.word, aligner.valid, words.dead
    beats = inside.child("beats")
    o = beats.ports.o
    beat, used = o.p, o.valid & o.ready & ~o.p.empty

    # One unit of the beats
    n = h.constant(NUMBER_BITS, "n")
    number, unit = Signal(NUMBER_BITS, name="in"), Signal(32, name="unit")
    with m.If(used):
        m.d.sync += number.eq(number + Mux(beat.half, 1, 2))
        with m.If(number == n):
            m.d.sync += unit.eq(beat.lower.data)
        with m.Elif(((number + 1)[:NUMBER_BITS] == n) & ~beat.half):
            m.d.sync += unit.eq(beat.upper.data)
    with m.If(o.valid & o.ready & beat.end):
        m.d.sync += words.closed.eq(1)
    with m.If(aligner.start):
        m.d.sync += number.eq(0)

    h.check("no word of a killed visit", ~valid | ~dead)
    lower, upper = valid & (words.number == n), valid & ((words.number + 1)[:NUMBER_BITS] == n)
    h.check("the unit is there, below", ~lower | (word.data[:32] == unit))
    h.check("the unit is there, above", ~upper | word.half | (word.data[32:] == unit))
    h.check("an FPDU after the other", ~valid | (word.first == ~words.inside))
    h.check("Markers", ~valid | (word.markers == words.due))
    h.check("oversize", ~valid | (word.oversize == words.oversize))
    fits = words.counted <= words.to_come
    h.check("no word beyond the FPDU", ~valid | words.oversize | fits)
    is_last = words.oversize | (words.left_after == 0)
    h.check("the FPDU ends as ULPDU_Length says", ~valid | (word.final == is_last))
    h.check("it ends with no Marker", ~(valid & word.final) | ~word.markers[1] | word.oversize)
    whole_end = word.final & ~word.markers.any()
    h.check("half a word ends it, and is no Marker", ~(valid & word.half) | whole_end)
    first = valid & word.first & ~word.oversize
    h.check("its length", ~first | (aligner.fpdu_units == words.units[:15]))
    until = (-words.place)[:7]
    h.check("the next Marker", ~first | (aligner.until_marker == until))
    ended, whole = aligner.ended & ~dead, aligner.whole
    kept = (number - words.number_after)[:NUMBER_BITS]
    h.check("no beat after the last one", ~(o.valid & o.ready) | ~words.closed)
    h.check("ended after the last beat", ~aligner.ended | words.closed)
    h.check("whole", ~ended | (whole == ((kept == 0) & ~words.inside_after)))
    ends = words.inside_after & (words.left_after == 1) & ~words.marker_next
    h.check("what is kept is no whole word", ~ended | (kept == 0) | ((kept == 1) & ~ends))
    h.cover("Marker inside", valid & word.markers[1] & ~word.first)
    h.cover("half with Markers", valid & word.half & words.markers)
    h.cover("Marker first", valid & word.markers[0] & word.first)

    holding, hold = inside.signal("holding"), inside.view("hold", _UNIT)
    alive = ~dead
    h.invariant("aligned", inside.signal("aligned") == ~holding)
    h.invariant("closing", inside.signal("closing") == words.closed)
    h.invariant("numbers", dead | (number == (words.number_after + holding)[:NUMBER_BITS]))
    is_held = alive & holding & ((number - 1)[:NUMBER_BITS] == n)
    h.invariant("held", ~is_held | (hold.data == unit))
    need_half, need_whole = inside.signal("need_half"), inside.signal("need_whole")
    h.invariant("need", need_half == ~need_whole)
    h.invariant("inside", dead | (aligner.inside == words.inside_after))
    goes_on = alive & words.inside_after
    one, two, left = inside.signal("$signal", 1), inside.signal("two"), inside.signal("left")
    h.invariant("left", ~goes_on | ((left == words.left_after) & (left != 0)))
    h.invariant("one", ~goes_on | ((one == (left == 1)) & (two == (left == 2))))
    h.invariant("half", dead | (need_half == ends))
    h.invariant("place", dead | (inside.signal("position") == words.place_after))
    due = inside.signal("due")
    last = words.markers & (words.place_after == MARKER_UNITS - 1)
    h.invariant("due", dead | (due == Cat(words.marker_next, last)))
    spare = beats.view("spare", _BEAT)
    for name, there, each in (
        ("beat", o.valid, beat),
        ("spare", beats.signal("spare_full"), spare),
    ):
        h.invariant(f"{name} whole", ~there | (each.whole == ~each.half))
        for part in ("lower", "upper"):
            h.invariant(f"{name} {part}", ~there | each.empty | _is_described(each[part]))
    h.invariant("hold", dead | ~holding | _is_described(hold))
    h.invariant("killed", ~h.past(aligner.kill) | dead)
    h.invariant("stays dead", ~dead | aligner.ended | h.past(aligner.kill))


def _asked(h: Harness) -> None:
    """Each answer has the beats that were asked for, and what it says stands at the last one."""
    m = h.m
    aligner = Aligner()
    inside = h.block(aligner)
    invariants(h, NAME, inside)
    comes, beat = aligner.answer, inside.child("beats").ports.i
    taken, beat_taken = comes.valid & comes.ready, beat.valid & beat.ready
    # The answer of which beats come, and the one after it
    now, next_ = (Signal(ANSWER, name=name) for name in ("now", "next"))
    valid, next_valid = Signal(name="now_valid"), Signal(name="next_valid")
    beats = Signal(len(now.last_beat), name="came")
    last = now.empty | (beats == now.last_beat)
    free = ~valid | (beat_taken & last)
    with m.If(beat_taken):
        m.d.sync += beats.eq(Mux(last, 0, beats + 1))
    with m.If(free):
        m.d.sync += [
            now.eq(Mux(next_valid, next_.as_value(), comes.p.as_value())),
            valid.eq(next_valid | taken),
        ]
    with m.If(taken & (next_valid | ~free)):
        m.d.sync += [next_.eq(comes.p), next_valid.eq(1)]
    with m.Elif(free):
        m.d.sync += next_valid.eq(0)

    h.check("an answer was asked for", ~beat_taken | valid)
    rx_taken = aligner.rx.valid & aligner.rx.ready
    h.check("each beat of the LLP is one", rx_taken == (beat_taken & ~now.empty))
    octets = Cat(beat.p.lower.data, beat.p.upper.data) == aligner.rx.payload
    h.check("as it came", ~rx_taken | octets)
    h.check("empty", ~beat_taken | (beat.p.empty == now.empty))
    is_half = now.half & last
    h.check("half", ~beat_taken | beat.p.empty | (beat.p.half == is_half))
    h.check("the end of the visit", ~beat_taken | (beat.p.end == (last & now.end)))
    h.check("both are kept", ~(taken & next_valid) | free)
    h.cover("two answers", beat_taken & next_valid & last)

    waits, active = inside.signal("answer_valid"), inside.signal("active")
    answer = inside.view("answer", ANSWER)
    h.invariant("one", valid == (active | waits))
    h.invariant("two", next_valid == (active & waits))
    waiting = Mux(active, next_.as_value(), now.as_value())
    h.invariant("waits", ~waits | (answer.as_value() == waiting))
    h.invariant("not begun", active | (beats == 0))
    flags = Cat(*(inside.signal(name) for name in ("half", "end", "empty")))
    h.invariant("flags", ~active | (flags == Cat(now.half, now.end, now.empty)))
    h.invariant("last", ~active | (inside.signal("last") == last))
    more = inside.signal("more")
    h.invariant("more", ~active | now.empty | (more == now.last_beat - beats))
    h.invariant("count", ~active | now.empty | (beats <= now.last_beat))
    h.invariant("empty is one", ~now.empty | (beats == 0))


def _property(name: str, build: Any, reached: int, *changes: tuple[str, str]) -> Property:
    mutations = tuple(Mutation("stagecoach.gateware.mpa.aligner", old, new) for old, new in changes)
    return Property(NAME, name, in_harness(build), mutations, depth=1, reached=reached)


PROPERTIES = (
    _property(
        "words are the received bytes in order, from FPDU to FPDU as ULPDU_Length says",
        _cuts,
        4,
        ("holds = Mux(need_half, ~beat.half, holding ^ beat.half)", "holds = holding ^ beat.half"),
        ("hold.eq(Mux(beat.whole, beat.upper, beat.lower))", "hold.eq(beat.upper)"),
        ("ends.eq(Mux(marked, left == 2, left == 3))", "ends.eq(left == 3)"),
        ("need_half.eq(ends & ~marker_next)", "need_half.eq(ends)"),
        ("start.oversize | (start.two & ~marked)", "start.two & ~marked"),
        ("start.eq(Mux(due[0], upper, lower))", "start.eq(lower)"),
        ("Mux(need_half, interval - 1 - index, interval - 2 - index)", "interval - 2 - index"),
        ("self.ended.eq(closing & ~from_hold)", "self.ended.eq(closing)"),
    ),
    _property(
        "each answer has the beats that were requested, and ends with what it says",
        _asked,
        3,
        ("last.eq((answer.last_beat == 0) | answer.empty)", "last.eq(answer.last_beat == 0)"),
        ("beats.payload.end.eq(last & end)", "beats.payload.end.eq(end)"),
        ("self.answer.ready.eq(~answer_valid)", "self.answer.ready.eq(1)"),
        ("last.eq(more == 1)", "last.eq(more == 0)"),
    ),
)
