"""FPDUs leave the Marker remover as they came, but without Markers, which are checked.

One unit of 4 bytes that is no Marker, any, is followed. Units are numbered as they come; each FPDU
begins with an even one, as it begins with a word of its own when it leaves.
"""

from amaranth.hdl import Cat, Mux, Signal

from stagecoach.gateware.mpa.marker_remove import MarkerRemover
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import Mutation, Property, in_harness

NUMBER_BITS = 4
"""Units are numbered modulo a power of two: no more than six of them are under way."""


def _units(h: Harness) -> None:
    m = h.m
    remover = MarkerRemover()
    inside = h.block(remover)
    word, valid, clear = remover.word, remover.valid, remover.clear
    markers = word.markers
    begins = Signal(init=1, name="begins")
    with m.If(valid):
        m.d.sync += begins.eq(word.final)
    with m.If(clear):
        m.d.sync += begins.eq(1)
    # `aligner`; of `clear`, `deframer_words`
    h.assume(~valid | (word.first == begins))
    h.assume(~(markers[0] & markers[1]))
    h.assume(~word.half | (word.final & ~markers.any()))
    h.assume(~valid | ~(clear | h.past(clear)))

    # The units that are none, and one of them
    n = h.constant(NUMBER_BITS, "n")
    number, out = Signal(NUMBER_BITS, name="in"), Signal(NUMBER_BITS, name="out")
    unit, there = Signal(32, name="unit"), Signal(name="there")
    comes = Signal(NUMBER_BITS, name="comes")
    lower, upper = word.data[:32], word.data[32:]
    counted = 2 - word.half - markers[0] - markers[1]
    m.d.comb += comes.eq(number + counted)
    even = comes + (word.final & comes[0])
    first = number == n
    second = (number + 1)[:NUMBER_BITS] == n
    with m.If(valid):
        m.d.sync += number.eq(even)
        with m.If(first):
            m.d.sync += [unit.eq(Mux(markers[0], upper, lower)), there.eq(1)]
        with m.Elif(second & (counted == 2)):
            m.d.sync += [unit.eq(upper), there.eq(1)]
        with m.Elif(word.final & (comes == n)):
            m.d.sync += there.eq(0)  # a place that is left empty
    o, o_valid = remover.o, remover.o_valid
    fresh = Signal(init=1, name="fresh_out")
    fresh_after = Mux(o_valid, o.last, fresh)
    m.d.sync += fresh.eq(fresh_after)
    with m.If(o_valid):
        m.d.sync += out.eq(out + 2)
    with m.If(clear):
        m.d.sync += [number.eq(0), out.eq(0), fresh.eq(1)]

    left = (n - out)[:NUMBER_BITS]
    below = ~o_valid | ~there | (left != 0) | (o.data[:32] == unit)
    above = ~o_valid | ~there | (left != 1) | (o.data[32:] == unit)
    h.check("the unit is there, below", below)
    h.check("the unit is there, above", above)
    ended = h.past(valid & word.final)
    h.check("an FPDU leaves after its last word", ~h.past(ended) | o_valid | h.past(clear))
    ends = o_valid & o.last
    h.check("the last one is told", ~o_valid | (o.last == h.past(ended)))
    h.check("all of it", ~ends | ((out + 2)[:NUMBER_BITS] == h.past(number)))
    h.check("the first one is told", ~o_valid | (o.first == fresh))

    h.check("nothing leaves after it is cleared", ~h.past(clear) | ~o_valid)

    # Octets from ULPDU_Length to a Marker, in units, with other Markers (RFC 5044, 4.3)
    distance, wrong = Signal(14, name="octets"), Signal(name="is_wrong")
    marker = Mux(markers[0], lower, upper)
    pointer = Cat(marker[24:32], marker[16:24])[2:]  # big endian
    with m.If(valid):
        m.d.sync += [
            distance.eq(distance + Mux(word.first & markers[0], 1, 2)),
            wrong.eq(
                (wrong & ~word.first) | (markers.any() & (pointer != (distance + markers[1])[:14]))
            ),
        ]
    with m.If(clear | (valid & word.final)):
        m.d.sync += distance.eq(0)
    h.check("a wrong Marker is told", ~ends | (remover.wrong == h.past(wrong)))
    h.cover("wrong", ends & remover.wrong)
    h.cover("an FPDU after the other", ends & h.past(o_valid & o.last))

    complete, single = inside.signal("complete"), inside.signal("single")
    waiting = inside.signal("waiting")
    h.invariant("one of them", ~(complete & single))
    total = out + 2 * o_valid + 2 * complete + single
    h.invariant("numbers", number == total[:NUMBER_BITS])
    h.invariant("even", ~out[0])
    kept = (left - 2 * o_valid)[:NUMBER_BITS]
    h.invariant("kept", ~there | ~(complete | single) | (kept != 0) | (waiting[:32] == unit))
    h.invariant("kept above", ~there | ~complete | (kept != 1) | (waiting[32:] == unit))
    h.invariant("ended", inside.signal("ended") == (ended & ~h.past(clear)))
    h.invariant("ends", ~inside.signal("ended") | complete)
    h.invariant("fresh", inside.signal("fresh") == fresh_after)
    h.invariant("begins", ~(begins & single))
    cleared = h.past(clear)
    h.invariant("clear", ~cleared | ~(o_valid | complete | single | ended))
    h.invariant("begins again", (~cleared | begins) & (~begins | (distance == 0)))
    h.invariant("distance", cleared | (inside.signal("distance") == distance))
    h.invariant("cleared", inside.signal("cleared") == cleared)
    seen = (remover.wrong & ~inside.signal("first")) | (
        inside.signal("found") & (inside.signal("pointer") != inside.signal("expected"))
    )
    h.invariant("wrong", seen == wrong)


MODULE = "stagecoach.gateware.mpa.marker_remove"

PROPERTIES = (
    Property(
        "mpa.marker_remove.MarkerRemover",
        "FPDUs leave without Markers, all else in order; a wrong Marker is told",
        in_harness(_units),
        mutations=tuple(
            Mutation(MODULE, old, new)
            for old, new in (
                (
                    "both.eq(~(self.word.half | self.word.markers.any()))",
                    "both.eq(~self.word.half)",
                ),
                ("waiting[1].eq(Mux(single & ~leading, lower, upper))", "waiting[1].eq(upper)"),
                ("waiting[0].eq(Mux(single | leading, upper, lower))", "waiting[0].eq(lower)"),
                ("fresh.eq(ended)", "fresh.eq(0)"),
                ("Mux(self.word.first & markers[0], 1, 2)", "2"),
                ("expected.eq(distance + markers[1])", "expected.eq(distance)"),
                ("(self.wrong & ~first) |", "self.wrong |"),
            )
        ),
        depth=1,
        reached=4,
    ),
)
