"""The deframer commits a word to the store only if the CRC of its FPDU was found good.

With the store, as in `mpa/receiver.py`. One word of the store, any, is followed: it is pending when
it was written, and good when the verdict over its FPDU was.
"""

from collections.abc import Callable

from amaranth.hdl import Cat, Const, Mux, Signal
from amaranth.lib import wiring

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.mpa.crc32c import (
    INITIAL_STATE,
    RESIDUE,
    RESIDUE_AND_ZEROS,
    state_part,
    word_part,
)
from stagecoach.gateware.mpa.deframer import Deframer
from stagecoach.gateware.mpa.fpdu_store import MARGIN_WORDS, FpduStore
from stagecoach.hw.formal.harness import Harness, Inside
from stagecoach.hw.formal.property import Mutation, Property, in_harness

CONFIG = RnicConfig(qps=4)
# Smaller than a device may have: the words at reset are a list for z3.
object.__setattr__(CONFIG, "fpdu_store_octets", 512)
Build = Callable[[Harness], None]
WORDS = CONFIG.fpdu_store_octets // 8
END_GAP = 4
"""Cycles from the end of a visit to the next one at the least."""
LATE = 8
"""Cycles after `full` rose in which words may still come."""


def _connected(h: Harness) -> tuple[Deframer, FpduStore, Inside, Inside]:
    deframer, store = Deframer(CONFIG), FpduStore(CONFIG)
    inside, store_inside = h.block(deframer), h.block(store, "store")
    wiring.connect(h.m, deframer.store, store.writer)
    return deframer, store, inside, store_inside


def _all(inside: Inside, name: str) -> list[Signal]:
    """Signals of one name in the order in which they are driven; in a pair made in one line, the
    first one is `$signal`."""
    return [signal for signal in inside.module._driving if signal.name == name]


class Visits:
    """Deframer and store. Words of a visit that ends inside an FPDU have left before it is cleared.

    The block that drives it may drop any visit at any time.
    """

    def __init__(self, h: Harness) -> None:
        deframer, self.store, inside, self.store_inside = _connected(h)
        self.deframer, self.inside = deframer, inside
        aligner, self.remover = inside.child("aligner"), inside.child("remover")
        self.cut, self.word, self.out = aligner.ports.valid, aligner.ports.word, self.remover.ports
        cut, out = self.cut, self.out
        kill, flush = inside.signal("killed"), inside.signal("flush")
        self.cleared, self.dropping = inside.signal("cleared"), inside.signal("dropping")
        self.last, _ = _all(inside, "last")
        # In the one, two and three cycles before
        one = h.past(cut)
        two = h.past(one)
        three = h.past(two)
        self.cut_one, self.cut_two = one, two
        killed, failed = h.past(kill), h.past(inside.signal("failed"))
        started = inside.signal("started")
        recent, quiet = inside.signal("recent"), inside.signal("quiet")

        h.invariant("cleared", self.cleared == (killed | h.past(flush)))
        h.invariant("dropping", self.dropping == (killed | failed))
        h.invariant("a failure kills", ~failed | kill)
        h.invariant("no word is cut when it is cleared", ~(cut & self.cleared))
        ended = aligner.ports.ended
        before = h.past(self.cleared)
        h.invariant("recent", (recent[0] == one) & (recent[1] == (two & ~before)))
        h.invariant("quiet", ~quiet | ~(cut | one | two))
        h.invariant("closing", ~h.past(ended & ~inside.signal("begins")) | ended)
        h.invariant("visiting", inside.signal("visiting") | ended)
        h.invariant("started", ~started[0] | inside.signal("visiting"))
        h.invariant("complete", ~self.remover.signal("complete") | one)
        h.invariant("out", ~out.o_valid | one | two)
        h.invariant("last out", ~self.last | two | three)
        h.invariant("cleared before", ~h.past(self.cleared) | ~out.o_valid)
        h.invariant("dropped before", ~h.past(self.dropping) | ~self.last)
        moves = out.o_valid | self.last
        h.invariant("nothing moves when it is cleared", ~self.cleared | self.dropping | ~moves)


def _committed(h: Harness) -> None:
    m = h.m
    visits = Visits(h)
    inside, store, store_inside = visits.inside, visits.store, visits.store_inside
    cleared, dropping, last, out = visits.cleared, visits.dropping, visits.last, visits.out
    cut = visits.cut
    *_, good = _all(inside, "$signal")
    ends = out.o_valid & out.o.last
    verdict = inside.signal("crc_good")

    # One word of the store.
    a = h.constant(CONFIG.store_address_bits, "a")
    NONE, PENDING, GOOD = range(3)
    kind = Signal(range(3))
    written = store.writer.write & ~store.writer.rewind & (store.writer.address == a)
    with m.If(written):
        m.d.sync += kind.eq(PENDING)
    with m.If(ends & (written | (kind == PENDING))):
        m.d.sync += kind.eq(Mux(verdict & ~dropping, GOOD, NONE))
    with m.If(store.writer.rewind & (kind == PENDING)):
        m.d.sync += kind.eq(NONE)

    freed = store_inside.signal("freed")
    bits = len(freed)
    used = Signal(bits)
    verified, offset = Signal(bits), Signal(bits)
    m.d.comb += [
        used.eq(store.writer.address - freed),
        verified.eq(store_inside.signal("verified") - freed),
        offset.eq(a - freed),
    ]
    # Only what is verified is freed.
    free_end = (store.free_end - freed)[:bits]
    h.assume(~store.free | (free_end <= verified))

    committed = offset < verified
    h.check("what is committed has a good CRC", ~committed | (kind == GOOD))
    h.invariant("committed was written", verified <= used)
    end = (inside.signal("last_address") + 1 - freed)[:bits]
    alive = ~dropping & ~cleared
    open_ = alive & (offset >= verified) & (offset < used)
    h.invariant("pending", ~open_ | last | (kind == PENDING))
    h.invariant("ended", ~(open_ & last & good & (offset < end)) | (kind == GOOD))
    h.invariant("after it", ~(open_ & last & (offset >= end)) | (kind == PENDING))
    h.invariant("end", ~(alive & last) | ((end > verified) & (end == used)))
    h.invariant("kinds", kind <= GOOD)

    # What the store asks of the deframer.
    commit = store.writer.commit
    h.check("commits what was written", ~commit | ((end > verified) & (end <= used)))
    h.check("commits without a rewind", ~(commit & store.writer.rewind))
    full, room = store.writer.full, inside.child("aligner").ports.room
    since = Signal(range(LATE + 1))
    with m.If(~full):
        m.d.sync += since.eq(0)
    with m.Elif(since != LATE):
        m.d.sync += since.eq(since + 1)
    h.check("writes in time", ~store.writer.write | ~full | (since < LATE))
    # Of the numbers of FPDUs, too; after a reset none is used before `full` falls.
    numbers_full, since_numbers = (
        visits.deframer.numbers.full,
        Signal(range(LATE + 1), init=LATE),
    )
    with m.If(~numbers_full):
        m.d.sync += since_numbers.eq(0)
    with m.Elif(since_numbers != LATE):
        m.d.sync += since_numbers.eq(since_numbers + 1)
    h.check("commits in time", ~commit | ~numbers_full | (since_numbers < LATE))
    h.check("each commit has a number", commit == visits.deframer.numbers.commit)
    h.invariant("room", ~room | ((since == 0) & (since_numbers == 0)))
    for late, there in enumerate((cut, visits.cut_one, visits.cut_two), 1):
        soon = (since <= late) & (since_numbers <= late)
        h.invariant(f"cut with room {late}", ~there | soon)
    before, limit = store_inside.signal("used"), WORDS - MARGIN_WORDS
    h.invariant("used", used <= before + 1)
    h.invariant("room in the store", full | (before <= limit))
    h.invariant("room while full", ~full | (used <= limit + 2 + since))
    h.invariant("cycles", since <= LATE)


def _verdict(h: Harness) -> None:
    """All words of an FPDU go into the CRC before the verdict over it, once and in order.

    As `Aligner` cuts them: from the first one, with the Marker before it if there is one, to the
    final one; Markers are included, and so is the CRC field (RFC 5044, 4.4). What a step of the
    register and its residue are is in `crc32c`.
    """
    m = h.m
    deframer = Deframer(CONFIG)
    inside = h.block(deframer)
    aligner, remover = inside.child("aligner").ports, inside.child("remover")
    cut, word = aligner.valid, aligner.word
    cleared = inside.signal("cleared")

    # What the word of the cycle before adds to the register; a half word has zeros after it.
    lower, upper = Signal(32), Signal(32)
    m.d.sync += [
        lower.eq(word_part(Cat(word.data[:32], Const(0, 32)))),
        upper.eq(word_part(Cat(Const(0, 32), word.data[32:]))),
    ]
    with m.If(word.half):
        m.d.sync += upper.eq(0)
    waits, crc = inside.signal("crc_v"), inside.signal("crc")
    after, lower_part, checked_half, _ = _all(inside, "$signal")
    came, first = h.past(cut), h.past(word.first)
    final, half, oversize = h.past(cut & word.final), h.past(word.half), h.past(word.oversize)

    # The register after the words so far, and after a final one in the cycle that follows it
    behind, started = Signal(32), Signal()
    with m.If(came):
        m.d.sync += behind.eq(after)
    with m.If(cut):
        m.d.sync += started.eq(~word.final)
    with m.If(cleared):
        m.d.sync += started.eq(0)
    final_2, half_2, oversize_2 = (h.past(each) for each in (final, half, oversize))
    expected = behind == Mux(half_2, RESIDUE_AND_ZEROS, RESIDUE)
    good = ~oversize_2 & (~inside.signal("_crc") | expected)

    ends = remover.ports.o_valid & remover.ports.o.last
    h.check("verdict after the final word", ~ends | final_2)
    h.check("of all words", ~ends | (inside.signal("crc_good") == good))
    h.check("one at a time", ~cut | (word.first == ~started))

    register = Mux(first, INITIAL_STATE, behind)
    h.check("each word once, in order", ~came | (crc == register))
    h.check("a step", ~came | (after == (lower ^ upper ^ state_part(crc, 64))))

    h.invariant("waits", (waits == came) & (came | ~final))
    h.invariant("parts", (lower_part == lower) & (inside.signal("upper_part") == upper))
    open_ = started & ~came
    h.invariant("register", came | cleared | (crc == Mux(open_, behind, INITIAL_STATE)))
    cut_end = Mux(cut, ~word.final, started)
    h.invariant("visiting", inside.signal("visiting") | aligner.ended)
    h.invariant("inside", (aligner.inside & inside.signal("visiting")) == (cut_end & ~cleared))
    h.invariant("cleared", ~(cut & cleared))
    for name, early in (("crc_f", final), ("crc_h", half), ("crc_o", oversize)):
        h.invariant(name, ~waits | (inside.signal(name) == early))
    h.invariant("started", ~came | (started == ~final))
    h.invariant("ended", ~remover.signal("ended") | final)
    h.invariant("last", ~ends | final_2)
    h.invariant("checked", ~final_2 | (inside.signal("checked") == behind))
    h.invariant("checked half", ~final_2 | (checked_half == half_2))
    h.invariant("checked size", ~final_2 | (inside.signal("checked_oversize") == oversize_2))


def _ends(h: Harness) -> None:
    """What `ReceiveVisits` is promised, which keeps one end at a time."""
    deframer = Deframer(CONFIG)
    inside = h.block(deframer)
    left, started = inside.signal("_left"), inside.signal("started")
    visiting = inside.signal("visiting")
    before = ended = deframer.visit.ended
    others = []
    for _ in range(END_GAP - 1):
        before = h.past(before)
        others.append(before)
    h.check("ends come apart", ~ended | ~Cat(others).any())

    # A visit that has begun since another one was left is not left yet.
    for late in range(END_GAP - 1):
        h.invariant(f"left {late}", ~left[late] | ~visiting | started[: late + 1].any())
    leaves = Cat(left, others)  # from one cycle ago to END_GAP - 1 cycles before an end
    for late in range(len(leaves) - 1):
        h.invariant(f"once {late}", ~leaves[late] | ~leaves[late + 1 : late + END_GAP].any())


def _property(name: str, build: Build, *changes: tuple[str, str, str]) -> Property:
    mutations = tuple(
        Mutation(f"stagecoach.gateware.mpa.{module}", *change) for module, *change in changes
    )
    return Property("mpa.deframer.Deframer", name, in_harness(build), mutations, depth=1)


PROPERTIES = (
    _property(
        "only words of an FPDU whose CRC was found good are committed",
        _committed,
        ("deframer", "commit.eq(done & good)", "commit.eq(done)"),
        ("deframer", "good.eq(crc_good & ~remover.wrong)", "good.eq(1)"),
        (
            "deframer",
            "dropping.eq(killed | failed)",
            "dropping.eq(killed)",
        ),
    ),
    _property(
        "the verdict over an FPDU is that of the CRC over all of its words",
        _verdict,
        ("deframer", "with m.If(cleared | (valid & final)):", "with m.If(cleared):"),
        (
            "deframer",
            "with m.If(valid):\n            m.d.sync += crc.eq(after)",
            "if 0:\n            pass",
        ),
        ("deframer", "checked.eq(after),", "checked.eq(crc),"),
        ("deframer", "            m.d.sync += upper_part.eq(0)", "            pass"),
        ("deframer", "~checked_oversize\n                & ", "1 & "),
        ("aligner", "self.word.first.eq(~self.inside)", "self.word.first.eq(0)"),
    ),
    _property(
        "ends of visits come four cycles apart at least",
        _ends,
        ("deframer", "may_turn.eq(~started[:3].any()", "may_turn.eq(~started[:2].any()"),
        ("deframer", "leave.eq(flush | (visiting & may_turn & whole))", "leave.eq(flush | whole)"),
    ),
)
