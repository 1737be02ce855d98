"""What the drains of a device count has begun before it ends, and there is little of it.

A drain, and a stage of the fence, counts what begins and ends at two places. Each property here is
about the blocks between two of them: an end comes for what has begun, so few are under way that
the counts never wrap, and what one stage hands to the next begins there when it ends, or before.
"""

from amaranth.hdl import Signal

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.dma.host_errors import PLACEMENTS_AHEAD, HostErrors
from stagecoach.gateware.dma.placement_gate import PlacementGate
from stagecoach.gateware.queues.drain import MOST
from stagecoach.gateware.queues.entry_writer import OUTSTANDING
from stagecoach.gateware.queues.ring_writer import RingWriter
from stagecoach.gateware.rdmap.receive.access import ReceiveAccess
from stagecoach.hw.formal import receiver
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.invariants import invariants, needs
from stagecoach.hw.formal.property import Mutation, Property, in_harness

CONFIG = RnicConfig(qps=4)

DONE_AFTER = 4
"""Cycles after a placement left its gate in which memory answers at the earliest."""


def _entries(h: Harness) -> None:
    """An entry begins in the cycle in which it is taken."""
    rings = RingWriter(CONFIG)
    inside = h.block(rings)
    for _, condition in needs(h, "queues.ring_writer.RingWriter", inside):
        h.assume(condition)
    invariants(h, "queues.ring_writer.RingWriter", inside)
    under_way = Signal(8)
    h.m.d.sync += under_way.eq(under_way + rings.accepted - rings.finished)
    taken = [port.valid & port.ready for port in (rings.send, rings.receive, rings.event)]
    h.assume(h.held(rings.send))
    h.assume(h.held(rings.event))
    h.assume(h.held(rings.receive))
    h.check("accepted with each that is taken", rings.accepted == sum(taken, start=0))
    h.check("finished after it was accepted", ~rings.finished | (under_way != 0))
    h.check("few", under_way <= OUTSTANDING + 1)
    h.cover("two", rings.finished & (under_way == 2))

    writer = inside.child("writer")
    made = inside.in_state("LATCH", "COMPARE", "ISSUE")
    handed = writer.signal("outstanding") + writer.signal("taken")
    h.invariant("counted", under_way == handed + made + rings.finished)
    source = inside.signal("source")
    offered = sum(
        (
            (source == n) & port.valid
            for n, port in enumerate((rings.send, rings.receive, rings.event))
        ),
        start=0,
    )
    h.invariant("offered", ~inside.in_state("TAKE") | offered)
    h.invariant("sends", ~inside.signal("$signal", 0) | rings.send.valid)
    h.invariant("tells", ~inside.signal("$signal", 1) | rings.event.valid)


def _placements(h: Harness) -> None:
    """The placement gate with `HostErrors`; placements end when they have begun."""
    gate, errors = PlacementGate(CONFIG), HostErrors(CONFIG)
    h.block(gate, "gate")
    inside = h.block(errors, "errors")
    h.free_part(inside, "reads")
    h.free_part(inside, "writes")
    begun, done = gate.begun.valid, errors.placement_done
    under_way, left = Signal(8), Signal(8)
    has_octets = gate.o.payload.octets != 0
    leaves = gate.o.valid & gate.o.ready & has_octets
    h.m.d.comb += [
        gate.room.eq(errors.room),
        errors.placement_begun.valid.eq(begun),
        errors.placement_begun.qp.eq(gate.begun.qp),
    ]
    # Memory answers four cycles after a placement left the gate, at the earliest.
    late = [leaves]
    for _ in range(DONE_AFTER - 1):
        late.append(h.past(late[-1]))
    h.m.d.sync += [
        under_way.eq(under_way + begun - done),
        left.eq(left + late[-1] - done),
    ]
    h.assume(~done | (left != 0))
    on_their_way = sum(late[:-1], start=left)
    h.check("begun when it leaves, or before", on_their_way + late[-1] <= under_way + begun)
    h.check("done after it has begun", ~done | (under_way != 0))
    h.check("few", under_way <= PLACEMENTS_AHEAD)
    h.check("fewer than a drain counts", under_way < MOST)
    h.cover("room falls", ~errors.room & done)

    owners = inside.child("owners")
    level, inner = owners.ports.level, owners.signal("inner_level")
    arrives = owners.ports.w_en
    placed = inside.signal("$signal")
    h.check("its QP is kept", ~arrives | owners.ports.w_rdy)
    h.invariant("owners", level + arrives == under_way + placed)
    h.invariant(
        "shown", (inner + owners.ports.r_rdy == level) & (owners.ports.r_rdy | (inner <= 1))
    )
    h.invariant("late", ~(arrives & h.past(arrives)))
    waits = gate.o.valid & has_octets & ~begun
    h.invariant("left", on_their_way + late[-1] - leaves + waits == under_way)


def _segments(h: Harness) -> None:
    """Of a record the second step of the receiver tells the end, which is that of its segment."""
    access = ReceiveAccess(CONFIG)
    inside = h.block(access)
    for _, condition in receiver.access_needs(h, inside):
        h.assume(condition)
    invariants(h, "rdmap.receive.access.ReceiveAccess", inside)
    taken = access.record.valid & access.record.ready
    at_work = Signal()
    h.m.d.sync += at_work.eq(taken | (at_work & ~access.end))
    h.check("the end of a record", ~access.end | at_work)
    h.check("one at a time", ~taken | ~at_work | access.end)
    waits = access.placement.valid | access.delivery.valid
    h.check("what it places and delivers was taken before", ~access.end | ~waits)
    h.cover("two ends", access.end & taken)
    h.invariant("at work", at_work == (~inside.in_state("IDLE") | access.end))
    h.invariant("end", ~access.end | inside.in_state("IDLE"))


RING_WRITER = "stagecoach.gateware.queues.ring_writer"
ACCESS = "stagecoach.gateware.rdmap.receive.access"

PROPERTIES = (
    Property(
        "queues.ring_writer.RingWriter",
        "entries finish after they were accepted, and few are under way",
        in_harness(_entries),
        mutations=(
            Mutation(
                RING_WRITER,
                "self.finished.eq((done.valid & done.ready) | dropped)",
                "self.finished.eq(done.valid | dropped)",
            ),
            Mutation(RING_WRITER, "dropped.eq(full & writer.idle)", "dropped.eq(full)"),
            Mutation(
                RING_WRITER,
                "m.d.comb += self.accepted.eq(1)",
                "m.d.comb += self.accepted.eq(source != 2)",
            ),
            Mutation(
                "stagecoach.gateware.queues.entry_writer",
                "self.room.eq(outstanding < OUTSTANDING - 1)",
                "self.room.eq(1)",
            ),
        ),
        reached=12,
    ),
    Property(
        "dma.host_errors.HostErrors",
        "placements end after they have begun, and few are under way",
        in_harness(_placements),
        mutations=(
            Mutation(
                "stagecoach.gateware.dma.host_errors",
                "owners.level <= PLACEMENTS_AHEAD - ROOM_MARGIN",
                "1",
            ),
            Mutation(
                "stagecoach.gateware.dma.placement_gate",
                "taken.eq(takes),",
                "taken.eq(self.o.valid & self.o.ready),",
            ),
        ),
        depth=6,
        reached=8,
    ),
    Property(
        "rdmap.receive.access.ReceiveAccess",
        "each record ends once, after its placements and its delivery were taken",
        in_harness(_segments),
        mutations=(
            Mutation(
                ACCESS, "m.d.sync += self.end.eq(0)", "m.d.sync += self.end.eq(self.stop.valid)"
            ),
        ),
        depth=1,
        reached=8,
    ),
)
