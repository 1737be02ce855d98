"""The driver's queue: an entry is written when its frame is stored, to a place that was freed.

The lists of commands and of stored frames have 3 places here. The block is enabled at all times;
its rings are any, and the driver frees nothing that it was not given.
"""

from typing import Any

from amaranth.hdl import Cat, Mux, Signal, Value

from stagecoach.gateware.ethernet.layouts import NetworkKind
from stagecoach.gateware.ethernet.raw_receive import ENTRY, ENTRY_BITS, RawReceive
from stagecoach.hw.formal.harness import Harness, Inside
from stagecoach.hw.formal.invariants import invariants
from stagecoach.hw.formal.properties.fifos import prompt_fifo_contents
from stagecoach.hw.formal.property import Mutation, Property, in_harness

DEPTH = 3
SLOT_BITS = 11
NAME = "ethernet.raw_receive.RawReceive"


class _Begun:
    """A block, and what it has begun: entries, frames, and entries of frames."""

    def __init__(self, h: Harness) -> None:
        m = h.m
        self.dut = dut = RawReceive(frames=DEPTH, commands=DEPTH)
        self.inside: Inside = h.block(dut)
        invariants(h, NAME, self.inside)
        for each in (dut.raw, dut.notice):
            h.assume(h.held(each))
        h.assume(dut.raw.p.octets != 0)
        h.assume(dut.enable)
        for name in ("queue", "slots"):
            base, log2 = h.constant(64, f"{name}_base"), h.constant(4, f"{name}_log2")
            ring = getattr(dut, name)
            h.assume((ring.base == base) & (ring.log2 == log2))
        self.starts, is_entry = self.inside.signal("starts"), self.inside.signal("is_entry")
        self.frame, self.entry = self.starts & ~is_entry, self.starts & is_entry
        self.tells: Any = self.entry & self.inside.child("stored").ports.o.valid
        self.frames, self.entries, self.told = (
            Signal(16, name=name) for name in ("frames", "entries", "told")
        )
        m.d.sync += [
            self.frames.eq(self.frames + self.frame),
            self.entries.eq(self.entries + self.entry),
            self.told.eq(self.told + self.tells),
        ]
        self.writing = self.inside.in_state("ENTRY") & self.inside.signal("tells")
        h.invariant("placed", self.inside.signal("placed") == self.entries)
        h.invariant("slot numbers", self.inside.signal("slot") == self.frames)
        entered = self.inside.signal("entered")
        h.invariant("entered", entered == (self.told - self.writing)[:16])


def _placed(h: Harness) -> None:
    begun = _Begun(h)
    dut, inside = begun.dut, begun.inside
    command = dut.write.command
    stored = inside.child("stored").ports
    chooses, writes = inside.in_state("CHOOSE"), inside.in_state("ENTRY")
    # After a reset the places are not right yet, and nothing can be begun.
    new = ~inside.signal("queue_room") & ~stored.o.valid & ~stored.i.valid
    for name, starts, ring, number, bits in (
        ("entry", begun.entry, dut.queue, begun.entries, ENTRY_BITS),
        ("slot", begun.frame, dut.slots, begun.frames, SLOT_BITS),
    ):
        low = Cat(bit < ring.log2 + bits for bit in range(64))  # of an address in the ring
        place = (ring.base & ~low) | ((number << bits) & low)
        right = command.valid & (command.p.address == h.past(place))
        h.check(f"address of {name}", ~h.past(starts) | right)
        known = inside.signal(f"{name}_place")
        h.invariant(f"place of {name}", ~chooses | new | (known == place))
    words = inside.view("entry", ENTRY)
    turn = (begun.entries - 1)[:16].bit_select(dut.queue.log2, 1)
    h.check("phase", ~writes | (words.phase == ~turn))
    of_frame = words.kind == Value.cast(NetworkKind.FRAME)
    h.check("slot", ~begun.writing | (of_frame & (words.slot == (begun.told - 1)[:16])))


def _told_when_stored(h: Harness) -> None:
    m = h.m
    begun = _Begun(h)
    dut, inside = begun.dut, begun.inside
    frames, entries, told = begun.frames, begun.entries, begun.told
    command, done = dut.write.command, dut.write.done
    stored = inside.child("stored")

    # Commands that are not answered, the oldest one first: whether they are of a frame. Stored
    # frames without an entry.
    kinds = [Signal(name=f"kind_{place}") for place in range(DEPTH + 1)]
    count, answered, pending = (Signal(4, name=name) for name in ("count", "answered", "pending"))
    h.assume(~done | (pending != 0))
    m.d.sync += [
        pending.eq(pending + (command.valid & command.ready) - done),
        count.eq(count + begun.starts - done),
        answered.eq(answered + (done & kinds[0]) - begun.tells),
    ]
    for place in range(DEPTH + 1):
        following = kinds[place + 1] if place < DEPTH else 0
        after = Mux(done, following, kinds[place])
        comes = begun.starts & (count - done == place)
        m.d.sync += kinds[place].eq(Mux(comes, begun.frame, after))
    h.check("after its frame is stored", ~begun.tells | (answered != 0))

    # The driver frees in order, and no more than it was told.
    promised = inside.signal("promised")
    for name, ring, consumer, next_one, given, starts in (
        ("queue", dut.queue, dut.queue_consumer, promised, entries, begun.entry),
        ("slots", dut.slots, dut.slot_consumer, frames, told, begun.frame),
    ):
        places = Signal(16, name=f"{name}_places")
        freed = Signal(16, name=f"{name}_freed")  # a cycle ago
        m.d.comb += places.eq(1 << ring.log2)
        m.d.sync += freed.eq(consumer)
        h.assume((consumer - freed)[:16] <= (given - freed)[:16])
        number = entries if name == "queue" else frames
        used = (number - consumer)[:16]
        h.check(f"{name}: a place that was freed", ~starts | (used < places))
        out = (next_one - freed)[:16]
        room = inside.signal(f"{name}_room")
        h.invariant(f"{name} not overfull", out <= places)
        h.invariant(f"{name} room", ~(inside.in_state("CHOOSE") & room) | (out < places))
        h.invariant(f"{name} given", (given - freed)[:16] <= places)

    # What the block knows of it.
    waiting = inside.signal("waiting")
    without = (frames - told)[:16]
    h.invariant("promised", promised == (entries + without)[:16])
    held = (frames - inside.signal("entered"))[:16]
    h.invariant("as many as may wait", (held <= DEPTH) & (waiting <= DEPTH))
    late = (waiting == held) | (waiting == held + 1)
    h.invariant("waiting", ~inside.in_state("CHOOSE") | late)
    level, items = prompt_fifo_contents(h, inside.child("commanded"))
    h.invariant("commands", (level == count) & (count == pending + command.valid))
    for number_of, item in enumerate(items):
        h.invariant(
            f"command {number_of}", (level <= number_of) | ((item != 0) == kinds[number_of])
        )
    of_frames = sum((kinds[each] & (count > each) for each in range(DEPTH)), start=0)
    h.invariant("frames without an entry", without == (of_frames + answered)[:16])
    level, _ = prompt_fifo_contents(h, stored)
    h.invariant("stored", level == answered + begun.writing)
    notices = inside.in_state("ENTRY") & ~inside.signal("tells")
    h.invariant("a notice waits", ~notices | dut.notice.valid)


def _mutations(*changes: tuple[str, str]) -> tuple[Mutation, ...]:
    return tuple(Mutation("stagecoach.gateware.ethernet.raw_receive", *each) for each in changes)


PROPERTIES = (
    Property(
        NAME,
        "entries and frames go to the next place of their ring, with its phase and its number",
        in_harness(_placed),
        mutations=_mutations(
            ("Mux(is_entry, entry_place, slot_place)", "entry_place"),
            ("entered.eq(entered + tells)", "entered.eq(entered + 1)"),
            ("~placed.bit_select(self.queue.log2, 1)", "~placed[15]"),
        ),
        depth=1,
    ),
    Property(
        NAME,
        "an entry is written after its frame is stored, and only to places that the driver freed",
        in_harness(_told_when_stored),
        mutations=_mutations(
            ("promised.eq(promised + ~stored.o.valid)", "promised.eq(promised)"),
            ("has_place & slots_room", "has_place"),
            ("self.write.done & (octets != 0)", "octets != 0"),
        ),
        depth=1,
    ),
)
