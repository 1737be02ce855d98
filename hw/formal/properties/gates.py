"""Gates of the queues, at their ports: nothing passes before what it waits for has ended."""

from collections.abc import Callable

from amaranth.hdl import Mux, Signal

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.queues.invalidation_gate import InvalidationGate
from stagecoach.gateware.queues.transmit_drain import TransmitDrain
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.invariants import invariants
from stagecoach.hw.formal.properties.drain import Followed
from stagecoach.hw.formal.property import Mutation, Property, in_harness
from stagecoach.hw.interface.queue_entries import SendOpcode

CONFIG = RnicConfig(qps=4)
COUNT_BITS = 2
BUFFERED = 2
"""Reports that may be in the invalidation gate."""

Build = Callable[[Harness], None]


def _transmit(h: Harness) -> None:
    """A visit, any, is followed, and then a job that begins in it, any.

    Of the environment: what `Drain` asks for; no job begins after the end of its visit.
    """
    drain = TransmitDrain(COUNT_BITS)
    inside = h.block(drain)
    begins, makes = h.free(1, "begins"), h.free(1, "makes")
    visit = Followed(h, inside.child("visits"), COUNT_BITS, begins, "visit_")
    job = Followed(h, inside.child("jobs"), COUNT_BITS, makes & visit.inside, "job_")
    # One job is followed at a time, with or without its visit.
    alive = visit.inside | visit.begins | job.inside
    over = (visit.ends | ~visit.inside) & ~visit.begins & ~job.begins & (job.ends | ~job.inside)
    waited = Signal()  # `passed` has to wait for it
    h.m.d.sync += waited.eq(alive & ~over & (waited | (drain.mark & drain.passed)))
    # What is waited for is not begun anew
    h.assume(~(visit.begins & (waited | job.inside)))
    h.check("low until it has ended", ~drain.passed | ~waited)
    one_left = Signal()
    h.m.d.sync += one_left.eq((one_left | (waited & job.ends)) & ~drain.passed)
    h.cover("a job was waited for", one_left & drain.passed)

    visits, left = inside.in_state("VISITS"), inside.in_state("LEFT")
    h.invariant("legal", inside.legal_state())
    h.invariant("waited for", ~waited | visit.inside | job.inside)
    h.invariant("visits first", ~(waited & visit.inside) | (visits & visit.owed))
    h.invariant("then jobs", ~(waited & ~visit.inside) | visits | (left & job.owed))


def _invalidation(h: Harness) -> None:
    """A use of a host address, any, is followed: by the receiver, a placement, or an atomic.

    It is over before any LOCAL_INVALIDATE leaves whose report came after it had begun. Of the
    environment: what `Drain` asks for; `placing` is high while the receiver holds an address, in
    the cycle in which its placement begins, too; `passed` is low from the cycle after `mark` on
    until the atomics that were under way have ended.
    """
    m = h.m
    gate = InvalidationGate(CONFIG, COUNT_BITS)
    inside = h.block(gate)
    buffer = inside.child("buffer")
    invariants(h, "stream.buffer.StreamBuffer", buffer)

    # The reports inside
    items = [Signal(gate.i.payload.shape(), name=f"item_{n}") for n in range(BUFFERED)]
    count = Signal(range(BUFFERED + 1))
    comes, leaves = gate.i.valid & gate.i.ready, gate.o.valid & gate.o.ready
    m.d.sync += count.eq(count + comes - leaves)
    with m.If(leaves):
        m.d.sync += items[0].eq(items[1])
    for place, item in enumerate(items):
        with m.If(comes & (count - leaves == place)):
            m.d.sync += item.eq(gate.i.payload)
    h.invariant("room", ~comes | (count < BUFFERED))
    h.check("in order", ~gate.o.valid | (count != 0))
    oldest = items[0].as_value()
    h.check("as it came", ~gate.o.valid | (gate.o.payload.as_value() == oldest))
    shown = buffer.ports.o
    spare = buffer.signal("spare")
    h.invariant("count", count == shown.valid + buffer.signal("spare_full"))
    h.invariant("oldest", (count == 0) | (shown.payload.as_value() == oldest))
    h.invariant("next", (count < BUFFERED) | (spare == items[1].as_value()))

    # The use, and how many of the reports inside came before it
    held, atomic, asked = Signal(), Signal(), Signal()
    begins, is_atomic = h.free(1, "begins"), h.free(1, "is_atomic")
    places, drops = h.free(1, "places"), h.free(1, "drops")
    placement = Followed(h, inside.child("placements"), COUNT_BITS, held & places, "placement_")
    alive = held | atomic | placement.inside
    h.assume(~held | gate.placing)
    h.assume(~(atomic & asked & gate.passed))
    earlier = Signal(range(BUFFERED + 1))
    fresh = begins & ~alive
    atomic_stays = (atomic & ~drops) | (fresh & is_atomic)
    m.d.sync += [
        held.eq((held & ~placement.begins & ~drops) | (fresh & ~is_atomic)),
        atomic.eq(atomic_stays),
        asked.eq(atomic_stays & (asked | gate.mark)),
        earlier.eq(Mux(fresh, count + comes - leaves, Mux(earlier != 0, earlier - leaves, 0))),
    ]
    invalidates = items[0].opcode == SendOpcode.LOCAL_INVALIDATE
    behind = alive & (count != 0) & (earlier == 0) & invalidates
    h.check("over before it leaves", ~gate.o.valid | ~behind)

    h.invariant("legal", inside.legal_state())
    h.invariant("one at a time", held + atomic + placement.inside <= 1)
    h.invariant("report", inside.in_state("IDLE") | (count != 0))
    h.invariant("one that waits", ~inside.in_state("RECEIVER", "PLACED") | invalidates)
    h.invariant("earlier", ~alive | (earlier <= count))
    owed = (atomic & asked) | placement.owed
    h.invariant("waited for", ~(behind & inside.in_state("PLACED")) | owed)


def _property(
    block: str, module: str, name: str, build: Build, *changes: tuple[str, str], covered: int = 0
) -> Property:
    mutations = tuple(
        Mutation(f"stagecoach.gateware.queues.{module}", *change) for change in changes
    )
    return Property(
        f"queues.{module}.{block}", name, in_harness(build), mutations=mutations, covered=covered
    )


PROPERTIES = (
    _property(
        "TransmitDrain",
        "transmit_drain",
        "low until what was read or asked for at the mark has left",
        _transmit,
        ("jobs.mark.eq(visits.passed)", "jobs.mark.eq(self.mark)"),
        ("with m.If(jobs.passed):", "with m.If(1):"),
        covered=11,
    ),
    _property(
        "InvalidationGate",
        "invalidation_gate",
        "a LOCAL_INVALIDATE leaves when no address is used that was before; reports keep order",
        _invalidation,
        ("with m.If(~self.placing):", "with m.If(1):"),
        ("placements.passed & self.passed", "placements.passed"),
        ("placements.passed & self.passed", "self.passed"),
        ("item.ready.eq(passing & self.o.ready)", "item.ready.eq(self.o.ready)"),
    ),
)
