"""The placer: a command for each placement with bytes, its words, its data, its release.

One placement, any, is followed from when it is taken until its last word is put into the FIFO, and
of it one byte, any. `PromptFifo` hands on what is put into it (`fifos.py`); that nothing is put
into a full one is shown here.

The environment: a placement has at most 65,535 bytes, and the store shows the word at the address
of three cycles ago (`fpdu_store.py`).
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from amaranth.hdl import Array, Cat, Mux, Signal, Value
from amaranth.lib import data

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.dma.lanes import lanes_below
from stagecoach.gateware.dma.placer import READS_AHEAD, WORDS_AHEAD, Placer
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.mpa.ports import StorePort
from stagecoach.hw.formal.harness import Harness, Inside
from stagecoach.hw.formal.invariants import invariants
from stagecoach.hw.formal.property import Mutation, Property, in_harness

CONFIG = RnicConfig(qps=4)
BLOCK = "dma.placer.Placer"
STORE = CONFIG.store_address_bits
STORED = Layouts(CONFIG).stored
MOST_OCTETS = 65535

PLANNED = data.StructLayout(
    {
        "more_reads": 14,
        "primes": 1,
        "writes": 1,
        "reversed": 1,
        "release": 1,
        "store_address": STORE,
        "stored": STORED,
        "rotation": 3,
    }
)
MARK = data.StructLayout(
    {
        "valid": 1,
        "write": 1,
        "last": 1,
        "reversed": 1,
        "release": 1,
        "stored": STORED,
        "rotation": 3,
    }
)

Check = Callable[[str, Any], None]


def _sum(bits: Sequence[Any]) -> Any:
    return sum(bits[1:], start=bits[0])


def _commands(h: Harness) -> None:
    dut = Placer(CONFIG)
    inside = h.block(dut)
    placement, command = dut.placement, dut.write.command
    taken = placement.valid & placement.ready & (placement.payload.octets != 0)
    held = Signal()
    address, octets = Signal(64), Signal(17)
    with h.m.If(taken):
        h.m.d.sync += [
            held.eq(1),
            address.eq(placement.payload.address),
            octets.eq(placement.payload.octets),
        ]
    with h.m.Elif(command.ready):
        h.m.d.sync += held.eq(0)
    h.check("none is taken before the command of the one before", ~placement.ready | ~held)
    h.check("a command for each with bytes, and none else", command.valid == held)
    same = (command.payload.address == address) & (command.payload.octets == octets)
    h.check("its address and bytes", ~held | same)
    h.invariant("free", inside.signal("command_free") == ~command.valid)


def _reads(h: Harness, inside: Inside, check: Check) -> list[Any]:
    """What the reads on their way are for, the latest one first: three stages, and `rotated`.

    That of a read which was made before its plan was there is the plan's.
    """
    begun, active = inside.signal("begun"), inside.signal("active")
    planned = inside.view("planned", PLANNED)
    planned_valid = inside.signal("planned_valid")
    stages = [
        inside.view("fetched", MARK),
        *(inside.view(f"fetched_{number}", MARK) for number in range(1, StorePort.LATENCY)),
        inside.view("rotated", MARK),
    ]
    check("begun", ~begun | (planned_valid & ~active))
    none_left = inside.signal("more_reads") == 0
    check("last read", ~active | (inside.signal("last_read") == none_left))
    primes = planned_valid & planned.primes & planned.writes
    check("one more read", ~primes | (planned.more_reads != 0))
    last, store = stages[-1], inside.ports.store
    check("released after the last read", store.release == (last.valid & last.release))
    check(
        "end that is released",
        ~store.release | (Value.cast(store.released) == last.stored.as_value()),
    )
    level, under_way = inside.child("words").ports.level, _sum([mark.valid for mark in stages])
    check("room for all", level + under_way < WORDS_AHEAD - 1)
    check("step", ~inside.signal("step") | (level <= WORDS_AHEAD - READS_AHEAD + 1))
    return stages


class _Followed:
    """One placement, any, once: from when it is taken until its last word was put into the FIFO."""

    def __init__(self, h: Harness, check: Check):
        m = h.m
        dut = Placer(CONFIG)
        self.inside = inside = h.block(dut)
        invariants(h, BLOCK, inside)
        place = dut.placement.payload
        taken = dut.placement.valid & dut.placement.ready
        h.assume(place.octets <= MOST_OCTETS)
        self.word = word = inside.child("words").ports.i
        ends = word.valid & word.payload.last
        release = dut.store.release

        # All placements whose last word, or whose release, is to come
        owed_words, owed_releases = Signal(4), Signal(4)
        m.d.sync += [
            owed_words.eq(owed_words + (taken & (place.octets != 0)) - ends),
            owed_releases.eq(owed_releases + (taken & place.release) - release),
        ]

        # One of them, and of all these those before it
        follows, seen = h.free(1, "follows"), Signal()
        self.place, self.seen = place, seen
        self.taken = taken & follows & ~seen
        self.its = its = Signal(place.shape(), name="its")
        self.count, self.put = count, put = Signal(14), Signal(14)  # its words; those in the FIFO
        before, releases_before, released = Signal(4), Signal(4), Signal()
        self.puts = seen & (before == 0) & (put != count) & word.valid
        self.releases = seen & its.release & (releases_before == 0) & ~released & release
        with m.If(seen):
            m.d.sync += [
                before.eq(before - (ends & (before != 0))),
                releases_before.eq(releases_before - (release & (releases_before != 0))),
                put.eq(put + self.puts),
                released.eq(released | self.releases),
            ]
        words = (place.address[:3] + place.octets + 7) >> 3
        with m.If(self.taken):
            m.d.sync += [
                seen.eq(1),
                its.eq(place),
                count.eq(Mux(place.octets == 0, 0, words)),
                before.eq(owed_words - ends),
                releases_before.eq(owed_releases - release),
            ]

        check("no word without a placement", ~word.valid | (owed_words != 0))
        check("no word without room", ~word.valid | word.ready)
        last = word.payload.last == (put == count - 1)
        check("the last word is marked", ~self.puts | last)
        check("no release without a placement", ~release | (owed_releases != 0))
        check(
            "its end is released",
            ~self.releases | (Value.cast(dut.store.released) == its.stored.as_value()),
        )
        all_read = (before == 0) & ((put + self.puts) == count)
        check("its words have left the store when it is released", ~self.releases | all_read)

        # Where it is: a plan, its reads under way, or all of them made
        IDLE, PLAN, READS, MADE = range(4)
        where = Signal(2)
        planned, now = inside.view("planned", PLANNED), inside.view("now", MARK)
        planned_valid, active = inside.signal("planned_valid"), inside.signal("active")
        single = planned.more_reads == 0
        last_read = active & inside.signal("step") & inside.signal("last_read")
        with m.If(self.taken):
            m.d.sync += where.eq(PLAN)
        with m.Elif((where == PLAN) & inside.signal("begin")):
            m.d.sync += where.eq(Mux(single, MADE, READS))
        with m.Elif((where == READS) & last_read):
            m.d.sync += where.eq(MADE)

        # Its reads among those on their way: 0 before it, 1 its own, 2 after it
        stages = _reads(h, inside, check)
        OTHER, OWN = 0, 1
        turns = [Signal(2, name=f"turn_{stage}") for stage in range(len(stages))]
        turn = Array([0, ~active, 1, 2])[where]
        m.d.sync += turns[0].eq(Mux(inside.signal("early") & self.taken, OWN, turn))
        m.d.sync += [late.eq(soon) for soon, late in pairwise(turns)]
        places = list(zip(stages, turns, strict=True))
        self.own = own = [mark.valid & (each == OWN) for mark, each in places]
        other = [mark.valid & (each == OTHER) for mark, each in places]

        # How many there are, have come out of the store, and were made
        self.total, self.fetched = total, fetched = Signal(14), Signal(14)
        made = Signal(14)
        # What the plan says of it
        self.primes, self.rotation, self.writes = primes, rotation, writes = (
            Signal(name="its_primes"),
            Signal(3, name="its_rotation"),
            Signal(name="its_writes"),
        )
        begins = place.address[:3] < place.store_octet
        with m.If(self.taken):
            m.d.sync += [
                total.eq(Mux(place.octets == 0, 1, words + begins)),
                primes.eq(begins),
                rotation.eq(place.address[:3] - place.store_octet),
                writes.eq(place.octets != 0),
            ]
        m.d.sync += fetched.eq(fetched + own[-2])
        m.d.comb += made.eq(fetched + _sum(own[:-1]))
        self.reads, self.made = where == READS, made
        self.gone = gone = fetched - own[-1]  # after `rotated`

        check("where", (where != IDLE) == seen)
        for soon, late in pairwise(turns):
            check(f"order of {soon.name}", soon >= late)
        check("latest turn", turns[0] <= turn)
        check("nothing of it", seen | (Cat(each != OTHER for each in turns) == 0))
        check("nothing done", seen | ((fetched == 0) & (put == 0) & ~released))
        check("reads", ~seen | (total == Mux(writes, count + primes, 1)))
        check("words", ~seen | (writes == (count != 0)))
        check("most words", count <= MOST_OCTETS // 8 + 2)

        about = {
            "reversed": its.reversed,
            "release": its.release,
            "stored": its.stored,
            "rotation": rotation,
            "writes": writes,
            "write": writes,
            "store_address": its.store_address,
            "primes": primes,
            "more_reads": total - 1,
        }

        def same(mark: Any, *names: str) -> Value:
            return Cat(Value.cast(mark[name]) == Value.cast(about[name]) for name in names).all()

        common = ("reversed", "release", "stored", "rotation")
        plan = planned_valid & same(planned, *(name for name, _ in PLANNED))
        check("plan", (where != PLAN) | plan)
        check("begun reads", (where != PLAN) | (made == inside.signal("begun")))
        check("active", (where != READS) | (active & same(now, *common, "write")))
        more_reads = inside.signal("more_reads")
        right = (more_reads == total - 1 - made) & (made < total) & (made != 0)
        check("more reads", (where != READS) | right)
        check("all are made", (where != MADE) | (made == total))
        check("not more", ~seen | ((fetched <= made) & (made <= total)))

        # The numbers of the reads at each stage
        self.numbers = [
            *(fetched + _sum([0, *own[stage + 1 : -1]]) for stage in range(len(stages) - 1)),
            gone,
        ]
        for stage, number in enumerate(self.numbers):
            mark, is_last = stages[stage], number == total - 1
            right = (
                (mark.write == (writes & ~(primes & (number == 0))))
                & (mark.last == is_last)
                & (mark.release == (its.release & is_last))
                & same(mark, "reversed", "stored", "rotation")
            )
            check(f"read at {stage}", ~own[stage] | right)
        check("at the last stage", ~own[-1] | (fetched != 0))
        check("none after those of others", (fetched == 0) | (turns[-1] != OTHER))
        check("put", ~seen | (put == Mux((gone == 0) | ~writes, 0, gone - primes)))
        check("put so far", put <= count)
        check("released once", ~seen | (released == (its.release & (gone == total))))

        # The ends and releases to come: of all, and of those before it
        to_begin = planned_valid & ~(inside.signal("begun") & single)
        ends_to_come = [
            to_begin & planned.writes,
            active & now.write,
            *(mark.valid & mark.write & mark.last for mark in stages),
        ]
        releases_to_come = [
            to_begin & planned.release,
            active & now.release,
            *(mark.valid & mark.release for mark in stages),
        ]
        check("owed words", owed_words == _sum(ends_to_come))
        check("owed releases", owed_releases == _sum(releases_to_come))
        ahead = [where == PLAN, *(each == OTHER for each in turns)]
        ends_before = [a & e for a, e in zip(ahead, ends_to_come[1:], strict=True)]
        of_those = [a & e for a, e in zip(ahead, releases_to_come[1:], strict=True)]
        check("before", ~seen | (before == _sum(ends_before)))
        check("releases before", ~seen | (releases_before == _sum(of_those)))
        for stage, mark in enumerate(stages):
            goes_on = mark.valid & mark.write & ~mark.last
            to_come = Cat(ends_to_come[: 2 + stage]).any()
            check(f"last to come after {stage}", ~goes_on | to_come)
            to_come = Cat(ends_before[: 1 + stage]).any()
            check(f"last before it after {stage}", ~(seen & other[stage] & goes_on) | to_come)


CLAIMS = (
    "no word without a placement",
    "no word without room",
    "the last word is marked",
    "no release without a placement",
    "its end is released",
    "its words have left the store when it is released",
)
"""What is claimed of the words; the others are invariants."""


def _words(h: Harness) -> None:
    def say(name: str, condition: Any) -> None:
        (h.check if name in CLAIMS else h.invariant)(name, condition)

    one = _Followed(h, say)
    h.cover("two words", one.puts & (one.put == 1) & one.word.payload.last)
    h.cover("released", one.releases & (one.count == 2))


def _octets(h: Harness) -> None:
    """Of the placement a byte, any: `lane` of host word `number`, and where it comes from.

    What `_words` proves is assumed.
    """
    m = h.m
    one = _Followed(h, lambda _, condition: h.assume(condition))
    place, its, inside = one.place, one.its, one.inside
    number, lane = h.constant(14, "number"), h.constant(3, "lane")
    store_word, store_lane = h.constant(STORE, "store_word"), h.constant(3, "store_lane")
    octet = h.constant(8, "octet")
    offset = (number << 3) + lane - place.address[:3]  # in the placement
    source = place.store_octet + offset
    read = (source >> 3)[:14]  # the read that brings it
    stands = (
        (offset >= 0)
        & (offset < place.octets)
        & (store_word == (place.store_address + read)[:STORE])
        & (store_lane == Mux(place.reversed, 7 - source[:3], source[:3]))
    )
    h.assume(~one.taken | (place.octets == 0) | stands)

    # What the store gives, while it keeps the words of the placement
    store = inside.ports.store
    asked = Signal(StorePort.LATENCY)
    kept = one.taken | (one.seen & (one.put != one.count))
    m.d.sync += asked.eq(Cat(kept & (store.address == store_word), asked))
    h.assume(~asked[-1] | (store.data.word_select(store_lane, 8) == octet))

    there = one.word.payload.data.word_select(lane, 8) == octet
    h.check("each byte is its byte of the store", ~(one.puts & (one.put == number)) | there)
    h.cover("second word", one.puts & (one.put == number) & (number == 1))

    bringing = Signal(14)
    with m.If(one.taken):
        m.d.sync += bringing.eq(read)
    known = one.seen & one.writes
    in_word = bringing + (lane < one.rotation) == number + one.primes
    h.invariant("brings", ~known | in_word)
    h.invariant("store word", ~known | (store_word == (its.store_address + bringing)[:STORE]))
    turned = Mux(its.reversed, 7 - store_lane, store_lane)
    h.invariant("store lane", ~known | ((turned + one.rotation)[:3] == lane))
    address = inside.signal("address") == (its.store_address + one.made)[:STORE]
    h.invariant("address", ~one.reads | address)
    for stage, here in enumerate(one.own[:-1]):
        is_read = here & one.writes & (one.numbers[stage] == bringing)
        h.invariant(f"asked at {stage}", ~is_read | asked[stage])
    rotated, at_rotated = inside.signal("rotated_data").word_select(lane, 8), one.own[-1]
    last = one.writes & (one.fetched != 0) & (one.fetched - 1 == bringing)
    stays = (one.fetched < one.total) | at_rotated
    h.invariant("rotated", ~(last & stays) | (rotated == octet))
    previous = inside.signal("previous_data").word_select(lane, 8)
    behind = at_rotated & one.writes & (one.gone == bringing + 1)
    h.invariant("previous", ~behind | (previous == octet))
    from_previous = inside.signal("from_previous")
    h.invariant("from previous", ~at_rotated | (from_previous == lanes_below(one.rotation)))


MODULE = "stagecoach.gateware.dma.placer"

PROPERTIES = (
    Property(
        BLOCK,
        "a command for each placement with bytes, in order, and none else",
        in_harness(_commands),
        mutations=(
            Mutation(MODULE, "~planned_valid & command_free", "~planned_valid"),
            Mutation(MODULE, "[command.valid.eq(~empty), ", "[command.valid.eq(1), "),
            Mutation(MODULE, "with m.If(~command.valid):", "with m.If(1):"),
        ),
        depth=1,
    ),
    Property(
        BLOCK,
        "each command has its words, and each placement its release when they left the store",
        in_harness(_words),
        mutations=(
            Mutation(MODULE, "word.last.eq(rotated.last)", "word.last.eq(0)"),
            Mutation(MODULE, "words.i.valid.eq(rotated.valid & ", "words.i.valid.eq("),
            Mutation(
                MODULE, "(fetched.valid & fetched.release)", "(reading.valid & reading.release)"
            ),
            Mutation(MODULE, "released.eq(fetched.stored)", "released.eq(reading.stored)"),
            Mutation(MODULE, "end.eq(lane + place.octets - 1)", "end.eq(lane + place.octets)"),
            Mutation(MODULE, "WORDS_AHEAD - READS_AHEAD)", "WORDS_AHEAD)"),
            Mutation(MODULE, "release.eq(planned.release & single)", "release.eq(planned.release)"),
        ),
        depth=1,
        covered=12,
    ),
    Property(
        BLOCK,
        "each byte of a word is its byte of the store",
        in_harness(_octets),
        mutations=(
            Mutation(
                MODULE,
                "choose_lanes(from_previous, previous",
                "choose_lanes(~from_previous, previous",
            ),
            Mutation(MODULE, "lanes_below(fetched.rotation)", "lanes_below(rotated.rotation)"),
            Mutation(MODULE, "Mux(fetched.reversed, ", "Mux(~fetched.reversed, "),
            Mutation(MODULE, "previous_data.eq(rotated_data)", "previous_data.eq(store_data)"),
            Mutation(MODULE, "address.eq(address + 1)", "address.eq(address)"),
        ),
        depth=1,
        covered=12,
    ),
)
