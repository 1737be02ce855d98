"""What the deframer does with an FPDU is that of its own visit, and so is what a visit came to.

One visit, any, is followed, from the cycle in which it is taken until its end was told. Its words
are those that the aligner cuts between then and the next visit that is taken.
"""

from amaranth.hdl import Cat, Mux, Signal, Value

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.mpa.deframer import Deframer
from stagecoach.hw.formal.harness import Harness, Inside
from stagecoach.hw.formal.property import Mutation, Property, in_harness

STAGES = 4
"""Of the pipeline: words are cut in the first one, and an FPDU is done in the last one."""


class _Followed:
    """The visit: what it is, what its words and commits say, and where the next `ended` is its own.

    words, cuts, there: of each stage, whether it has words of the visit, a word, and both.
    """

    def __init__(self, h: Harness, deframer: Deframer, inside: Inside) -> None:
        m = h.m
        port, payload = deframer.visit, deframer.visit.visit.payload
        self.taken = port.visit.valid & port.visit.ready
        cut, half = inside.child("aligner").ports.valid, inside.child("aligner").ports.word.half
        self.visit = Signal(payload.shape(), name="followed")
        self.chosen = Signal(name="chosen")
        self.busy, self.aligning = Signal(name="busy"), Signal(name="aligning")
        self.position, self.consumed = Signal(32, name="position"), Signal(32, name="consumed")
        self.dead = Signal(name="dead")
        self.pending, self.before = Signal(2, name="pending"), Signal(2, name="before")
        self.ended = port.ended & self.busy & (self.before == 0)

        self.words, self.cuts, self.positions = [self.aligning], [cut], [self.position]
        for stages in (self.words, self.cuts, self.positions):
            for _ in range(STAGES - 1):
                stages.append(h.past(stages[-1]))
        self.there = [word & is_cut for word, is_cut in zip(self.words, self.cuts, strict=True)]

        m.d.sync += self.pending.eq(self.pending + self.taken - port.ended)
        with m.If(port.ended):
            m.d.sync += self.before.eq(self.before - 1)
        with m.If(self.ended):
            m.d.sync += [self.busy.eq(0), self.aligning.eq(0)]
        with m.If(self.aligning & cut):
            m.d.sync += self.position.eq(self.position + Mux(half, 4, 8))
        done = self.there[3] & inside.signal("done", 0)
        with m.If(done & deframer.store.commit):
            m.d.sync += self.consumed.eq(self.positions[2])
        with m.If(done & ~deframer.store.commit):
            m.d.sync += self.dead.eq(1)
        with m.If(self.taken):
            m.d.sync += self.aligning.eq(0)
            with m.If(~self.chosen & h.free(1, "follow")):
                m.d.sync += [
                    self.chosen.eq(1),
                    self.busy.eq(1),
                    self.aligning.eq(1),
                    self.visit.eq(payload),
                    self.position.eq(payload.position),
                    self.consumed.eq(payload.position),
                    self.dead.eq(0),
                    self.before.eq(self.pending - port.ended),
                ]


def _own(h: Harness) -> None:
    deframer = Deframer(RnicConfig(qps=4))
    inside = h.block(deframer)
    h.free_part(inside, "count")
    segments = h.free_part(inside, "segments")
    outcome = segments.outcome
    aligner, remover = inside.child("aligner").ports, inside.child("remover")
    port, end = deframer.visit, deframer.visit.end
    h.assume(h.held(port.visit))  # `receive_visits`, by the streams
    visit = _Followed(h, deframer, inside)
    words, there = visit.words, visit.there

    out = remover.ports
    ends = out.o_valid & out.o.last
    done = inside.signal("done", 0)
    crc, qp, consumed = (inside.signal(name) for name in ("_crc", "_qp", "_consumed"))
    h.check("the CRC flag of its visit", ~(ends & there[2]) | (crc == visit.visit.crc))
    h.check("the QP of its visit", ~(done & there[3]) | (outcome.qp == visit.visit.qp))
    h.check("nothing is done after the end", ~(done & there[3]) | visit.busy)
    h.check("the end of a visit that was taken", ~port.ended | (visit.pending != 0))
    h.check("the QP of the end", ~visit.ended | (end.qp == visit.visit.qp))
    h.check("a wrong FPDU is told", ~visit.ended | (end.dead == visit.dead))
    h.check("what was committed is told", ~visit.ended | (end.consumed == visit.consumed))
    h.cover("a commit is told", visit.ended & (end.consumed != visit.visit.position))
    h.cover("a wrong one is told", visit.ended & end.dead)

    # Where words, and what was begun and left, can be in the pipeline
    started, left, visiting = (inside.signal(name) for name in ("started", "_left", "visiting"))
    cut = aligner.valid
    h.invariant("taken", ~started[0] | port.visit.valid)
    h.invariant("visiting", visiting | aligner.ended)
    h.invariant("begun", ~started[:3].any() | visiting)
    h.invariant("a word", ~cut | ~h.past(aligner.ended))
    h.invariant("one begin in four cycles", sum(started[:4], start=0) <= 1)
    h.invariant("one end in four cycles", sum(left, start=0) <= 1)
    for late in range(3):
        again = ~left[late] | ~visiting | started[: late + 1].any()
        h.invariant(f"left {late}", again)
    for late, last in enumerate((remover.signal("ended"), ends, inside.signal("last", 0)), 1):
        h.invariant(f"last word {late}", ~last | visit.cuts[late])

    # The visit itself
    is_left = visit.busy & ~(visit.aligning & visiting & ~started[0])
    gone = left.any()
    h.invariant("pending", visit.pending + started[0] == visiting + gone)
    for late, own in enumerate(words):
        h.invariant(f"chosen {late}", ~own | visit.chosen)
    h.invariant("busy", ~visit.busy | visit.chosen)
    h.invariant("aligning", ~visit.aligning | visit.busy)
    before = Mux(is_left, 0, gone)
    h.invariant("before", ~visit.busy | (visit.before == before))
    h.invariant("to end", ~is_left | gone)
    for late in range(STAGES):
        leaving = is_left & left[late]
        h.invariant(f"left at {late}", ~leaving | Cat(words[late:]).all())
        h.invariant(f"no word left at {late}", ~leaving | ~Cat(there[: late + 1]).any())
        h.invariant(f"no word of a visit that is taken {late}", ~(visit.cuts[late] & started[late]))
        h.invariant(f"word {late} of it", ~there[late] | visit.busy)
    for late in range(STAGES - 1):
        newer, older = words[late], words[late + 1]
        h.invariant(f"begin at {late}", ~newer | older | started[late + 1])
        h.invariant(f"once at {late}", ~(newer & started[late + 1]) | ~Cat(words[late + 1 :]).any())
        h.invariant(f"word before {late}", ~there[late + 1] | newer)
        h.invariant(f"begun at {late}", ~(newer & started[late + 1]) | Cat(words[: late + 1]).all())
        first = (visit.positions[late] == visit.consumed) & ~visit.dead
        h.invariant(f"first at {late}", ~(newer & started[late + 1]) | first)
    now = inside.signal("_visit")
    h.invariant("next", ~started[0] | (now == Value.cast(port.visit.payload)))
    current = ~visit.aligning | started[0] | (now == visit.visit.as_value())
    h.invariant("current", current)
    positions = (
        inside.signal("position", 1),
        inside.signal("good_end"),
        inside.signal("verified_end"),
    )
    for late, (position, own) in enumerate(zip(positions, visit.positions[:3], strict=True)):
        h.invariant(f"position {late}", ~words[late] | (position == own))
    h.invariant("CRC flag", ~words[2] | (crc == visit.visit.crc))
    h.invariant("QP", ~words[3] | (qp == visit.visit.qp))
    h.invariant("dead", ~words[3] | (inside.signal("dead") == visit.dead))
    h.invariant("consumed", ~words[3] | (consumed == visit.consumed))


DEFRAMER = "stagecoach.gateware.mpa.deframer"

PROPERTIES = (
    Property(
        "mpa.deframer.Deframer",
        "an FPDU has the CRC flag and the QP of its visit, whose end tells what was committed",
        in_harness(_own),
        mutations=tuple(
            Mutation(DEFRAMER, old, new)
            for old, new in (
                ("with m.If(started[2]):", "with m.If(started[1]):"),
                ("with m.If(started[3]):", "with m.If(started[2]):"),
                ("self.visit.ended.eq(self._left[3])", "self.visit.ended.eq(self._left[2])"),
                (
                    "with m.If(commit):\n            m.d.sync += self._consumed",
                    "with m.If(done):\n            m.d.sync += self._consumed",
                ),
                (
                    "with m.If(failed):\n            m.d.sync += dead.eq(1)",
                    "with m.If(failed & ~aligner.ended):\n            m.d.sync += dead.eq(1)",
                ),
                ("position + Mux(word.half, 4, 8)", "position + 8"),
                ("valid_crc, SegmentKind.MARKER_ERROR", "valid_crc, 3"),
            )
        ),
        depth=1,
        reached=8,
    ),
)
