"""An entry stands in its place of its ring, with the phase of its turn, and over none not consumed.

One ring, any, is followed: its numbers are those of entries and doorbells since it was enabled.
"""

from amaranth.hdl import Signal, Value
from amaranth.lib import data

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.queues.entries import COMPLETION_LAYOUT
from stagecoach.gateware.queues.ring_writer import ENTRY_BITS, RingWriter
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import Mutation, Property, in_harness

CONFIG = RnicConfig(qps=2, cqs=2)
RINGS = CONFIG.cqs + 1
PHASE = COMPLETION_LAYOUT["phase"].offset


def _placed(h: Harness) -> None:
    m = h.m
    rings = RingWriter(CONFIG)
    inside = h.block(rings)
    writer = inside.child("writer").ports
    command, doorbell = rings.cq_command, rings.cq_doorbell
    h.assume(h.held(command))
    h.assume(~command.valid | (command.p.cq < RINGS))
    followed = h.constant(range(RINGS), "ring_followed")
    h.assume(followed < RINGS)

    # The ring as commands, entries and doorbells made it; `known`: what the host had consumed when
    # the entry at work was taken.
    enabled, base, log2 = Signal(), Signal(64 - ENTRY_BITS), Signal(4)
    produced, consumed, known = Signal(16), Signal(16), Signal(16)
    entry = writer.i
    issued = entry.valid & entry.ready & (entry.p.tag.ring == followed)
    with m.If(issued):
        m.d.sync += produced.eq(produced + 1)
    with m.If(doorbell.valid & doorbell.ready & (doorbell.p.cq == followed)):
        m.d.sync += consumed.eq(doorbell.p.consumer)
    with m.If(inside.in_state("TAKE")):
        m.d.sync += known.eq(consumed)
    with m.If(command.valid & command.ready & (command.p.cq == followed)):
        m.d.sync += [
            enabled.eq(command.p.enable),
            base.eq(command.p.base[ENTRY_BITS:]),
            log2.eq(command.p.log2),
            produced.eq(0),
            consumed.eq(0),
        ]

    size = Signal(16)
    m.d.comb += size.eq(1 << log2)
    held = (produced - known)[:16]
    here = inside.signal("ring") == followed
    issue = inside.in_state("ISSUE") & here
    place = base + (produced & (size - 1))
    h.check("only with room", ~issue | ~entry.valid | (enabled & (held < size)))
    dropped = issue & inside.signal("dropped")
    h.check("dropped without room", ~dropped | ~enabled | (held >= size))
    h.check("place", ~(issue & entry.valid) | (entry.p.address[ENTRY_BITS:] == place[: len(base)]))
    turn = (produced & size) == 0
    phase = entry.p.entry[PHASE]
    h.check("phase", ~(issue & entry.valid) | (phase == turn))

    # The memories, which are wiped after a reset, and what was read of them.
    ring = inside.signal("ring")
    wiped = ~(inside.in_state("FORGET_ALL") & (ring <= followed))
    context = h.word(inside.memory("contexts"), followed)
    now = inside.signal("issued") & here
    counted = h.word(inside.memory("produced"), followed) + now
    layout = context.shape()

    def same(of: Value) -> Value:
        seen = data.View(layout, of)
        return (seen.enabled == enabled) & (seen.base == base) & (seen.log2 == log2)

    after = (inside.signal("number") + 1)[:16]
    h.invariant("counts", ~now | (after == produced))
    h.invariant("states", inside.legal_state())
    h.invariant("ring", inside.in_state("IDLE") | (ring < RINGS))
    h.invariant("context", ~wiped | same(Value.cast(context)))
    h.invariant("produced", ~wiped | (counted[:16] == produced))
    h.invariant("consumed", ~wiped | (h.word(inside.memory("consumed"), followed) == consumed))
    wanted = data.View(layout, inside.signal("wanted"))
    h.invariant("none is enabled", ~inside.in_state("FORGET_ALL") | ~(wanted.enabled | enabled))
    fresh = inside.in_state("FORGET_ALL")
    h.invariant("anew", ~fresh | ((Value.cast(wanted) == 0) & (produced == 0) & (consumed == 0)))
    h.invariant("nothing yet", ~fresh | ((base == 0) & (log2 == 0) & ~now))
    h.invariant("held", ~inside.signal("commanded") | command.valid)
    commanded = command.valid & (command.p.cq == ring)
    right = (wanted.enabled == command.p.enable) & (wanted.log2 == command.p.log2)
    right &= wanted.base == command.p.base[ENTRY_BITS:]
    h.invariant("command", ~inside.in_state("DRAIN", "FORGET") | (commanded & right))
    working = inside.in_state("LATCH", "COMPARE", "ISSUE")
    h.invariant("tag", ~working | (entry.p.tag.ring == ring))
    h.invariant("issued before", ~inside.signal("issued") | inside.in_state("IDLE"))
    for name, what in (("contexts", None), ("produced", produced), ("consumed", known)):
        port, *_ = inside.memory(name).read_ports
        read = Value.cast(port.data)
        good = same(read) if what is None else read == what
        latched = working if what is not known else inside.in_state("LATCH")
        h.invariant(f"read {name}", ~(latched & here) | good)
    later = inside.in_state("COMPARE", "ISSUE") & here
    h.invariant("context here", ~later | same(inside.signal("context")))
    h.invariant("number here", ~later | (inside.signal("number") == produced))
    compares = inside.in_state("COMPARE") & here
    h.invariant("room here", ~compares | (inside.signal("room_taken") == held))
    full = ~enabled | (held >= size)
    h.invariant("full here", ~issue | (inside.signal("full") == full))
    h.invariant("phase here", ~issue | (inside.signal("phase") == turn))
    h.invariant("address here", ~issue | (inside.signal("address") == place[: len(base)]))
    h.invariant("no phase of its own", ~inside.signal("entry")[PHASE])


PROPERTIES = (
    Property(
        "queues.ring_writer.RingWriter",
        "entries go to their place, with the phase of their turn, and only where there is room",
        in_harness(_placed),
        mutations=tuple(
            Mutation("stagecoach.gateware.queues.ring_writer", *change)
            for change in (
                ("mask = Signal.like(number)", "mask = Signal(15)"),
                ("(room_taken & ~mask).any() | ~context.enabled", "(room_taken & ~mask).any()"),
                ("~number.bit_select(context.log2, 1)", "~number[15]"),
                ("Mux(wipe, 0, number + 1)", "number + 1"),
                ("context.base + (number & mask)", "context.base + number"),
                ('notifier.busy.eq(fsm.ongoing("TAKE"))', "notifier.busy.eq(0)"),
            )
        ),
        depth=1,
    ),
)
