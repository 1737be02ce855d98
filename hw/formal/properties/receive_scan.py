"""The pieces of a Send lie in the elements of its receive entry, and are all of its payload.

One scan, any, is followed, of any entry: `mo` and `payload` are the bytes before the segment and
in it. Octet 0 of the message stands at the start of element 0, and element n + 1 goes on where
element n ends (RFC 5041, 5.3: MO is where the payload begins).
"""

from amaranth.hdl import Array, Cat, Mux, Signal, Value, signed
from amaranth.lib import data

from stagecoach.gateware.rdmap.receive.scan import ELEMENT, ENTRY_WORDS, LOAD_AT, ReceiveScan
from stagecoach.hw.formal import receiver
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import Mutation, Property, in_harness
from stagecoach.hw.interface.queue_entries import SCATTER_GATHER_ELEMENTS

PLACE = signed(37)
"""Of a byte before, in or after four elements of less than 2^32 bytes."""


def _pieces(h: Harness) -> None:
    m = h.m
    scan = ReceiveScan()
    inside = h.block(scan)
    entry = Array(h.constant(64, f"entry_{number}") for number in range(ENTRY_WORDS))
    mo, payload = h.constant(32, "mo"), h.constant(16, "payload")

    followed = Signal()
    with m.If(scan.restart):
        m.d.sync += followed.eq(h.free(1, "follow"))
    asked, comes = inside.signal("asked"), inside.signal("arriving")
    number_of_word = h.past(h.past(scan.word_address))
    h.assume(~(followed & comes) | (scan.word == entry[number_of_word]))
    h.assume(~followed | (asked != LOAD_AT) | ((scan.mo == mo) & (scan.payload == payload)))

    # One element after the other: where it begins, and where the next one does, from the first
    # byte of the segment on.
    kept = [inside.signal(f"word_{number}") for number in range(2)]
    collected, collects = data.View(ELEMENT, Cat(kept)), inside.signal("element_valid")
    gives, here = inside.signal("room_valid"), inside.signal("elements")
    element = Signal(ELEMENT)
    start, following = Signal(PLACE), Signal(PLACE)
    with m.If(collects):
        m.d.sync += [
            element.eq(collected),
            start.eq(following),
            following.eq(following + collected.length),
        ]
    with m.If(asked == LOAD_AT):
        m.d.sync += following.eq(-mo)

    # The piece of an element: where the bytes of the segment and those of the element meet.
    begun = followed & (asked > LOAD_AT)
    given = begun & gives
    first = Mux(start > 0, start, 0)
    last = Mux(following < payload, following, payload)
    piece, octets, into = scan.piece, Signal(PLACE), Signal(PLACE)
    m.d.comb += [octets.eq(last - first), into.eq(first - start)]
    h.check("a piece where they meet", ~given | (scan.piece_valid == (first < last)))
    h.check("none besides", ~(followed & scan.piece_valid) | given)
    its_own = (piece.stag == element.stag) & (piece.octets == octets)
    its_own &= piece.tagged_offset == (element.tagged_offset + into)[:64]
    h.check("of its element", ~(begun & scan.piece_valid) | its_own)
    words = [entry[(2 * here + number)[:3]] for number in range(2)]
    its_words = Value.cast(element) == Cat(words)
    h.check("of the entry, in order", ~given | (its_words & (here < SCATTER_GATHER_ELEMENTS)))
    reached = Mux(gives, start, following)
    h.check("all of it", ~(begun & scan.complete) | (payload == 0) | (reached >= payload))

    # How far it is.
    for name, condition in receiver.scan(h, inside):
        h.invariant(name, condition)
    coming = inside.signal("arriving_next")
    arrived = (asked - coming - comes)[:4]
    h.invariant("in order", ~(followed & comes) | (number_of_word == arrived))
    asked_for = h.past(scan.word_address) == (arrived + comes)[:4]
    h.invariant("asked in order", ~(followed & coming) | asked_for)
    one = kept[0] == entry[(arrived - 1)[:3]]
    h.invariant("first word", ~followed | ~arrived[0] | one)
    both = (kept[0] == entry[(arrived - 2)[:3]]) & (kept[1] == entry[(arrived - 1)[:3]])
    h.invariant("both words", ~(followed & collects) | both)
    h.invariant("whole", ~collects | ~arrived[0])
    h.invariant("one at a time", ~(collects & gives))
    h.invariant("its words", ~given | its_words)
    # Each element is shorter than 2^32, and the first one begins after -2^32.
    number = (here + gives)[:3]
    h.invariant("place", ~begun | (following <= (number << 32)))
    h.invariant("place of it", ~given | (start <= (here << 32)))
    h.invariant("least", ~begun | ((following > -(1 << 32)) & (~gives | (start > -(1 << 32)))))
    h.invariant("where it ends", ~given | (following == start + element.length))
    rest = Mux(following < 0, (-following)[:32], 0)
    h.invariant("skip", ~begun | (inside.signal("skip") == rest))
    before = Mux(reached > 0, reached, 0)
    left = Mux(before < payload, (payload - before)[:16], 0)
    h.invariant("left", ~begun | (inside.signal("left") == left))
    room = Mux(start >= 0, element.length, Mux(following > 0, following[:32], 0))
    same = (inside.signal("room") == room) & (inside.signal("stag") == element.stag)
    passed = Mux(start < 0, (-start)[:33], 0)
    same &= inside.signal("tagged_offset") == (element.tagged_offset + passed)[:64]
    h.invariant("room", ~given | same)


PROPERTIES = (
    Property(
        "rdmap.receive.scan.ReceiveScan",
        "pieces are where a segment meets the elements of its entry, in order, and all of it",
        in_harness(_pieces),
        mutations=tuple(
            Mutation("stagecoach.gateware.rdmap.receive.scan", *change)
            for change in (
                ("Mux(beyond[-1], left, room)", "left"),
                ("room.eq(Mux(behind[-1], 0, behind))", "room.eq(element.length)"),
                ("element.tagged_offset + skip", "element.tagged_offset"),
                ("left.eq(Mux(beyond[-1], 0, beyond))", "left.eq(0)"),
                ("Mux(behind[-1], skip - element.length, 0)", "skip"),
                ("self.complete.eq(left == 0)", "self.complete.eq(1)"),
            )
        ),
        depth=1,
        mutant_cycles=16,
    ),
)
