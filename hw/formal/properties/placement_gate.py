"""The placement gate hands on each placement once, in order, and none that there is no room for."""

from collections.abc import Callable

from amaranth.hdl import Signal, Value

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.dma.placement_gate import PlacementGate
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import Mutation, Property, in_harness

CONFIG = RnicConfig(qps=4)
BLOCK = "dma.placement_gate.PlacementGate"

Build = Callable[[Harness], None]


def _order(h: Harness) -> None:
    gate = PlacementGate(CONFIG)
    h.block(gate)
    taken = gate.i.valid & gate.i.ready
    item = Signal(gate.i.payload.shape())
    held = Signal()
    with h.m.If(taken):
        h.m.d.sync += [item.eq(gate.i.payload), held.eq(1)]
    with h.m.Elif(gate.o.ready):
        h.m.d.sync += held.eq(0)
    h.check("none before the one inside has left", ~gate.i.ready | ~held)
    h.check("what was taken is offered", gate.o.valid == held)
    same = Value.cast(gate.o.payload) == Value.cast(item)
    h.check("as it was taken", ~held | same)


def _room(h: Harness) -> None:
    gate = PlacementGate(CONFIG)
    h.block(gate)
    h.check("nothing is taken without room", ~gate.i.ready | h.past(gate.room))


def _begun(h: Harness) -> None:
    gate = PlacementGate(CONFIG)
    inside = h.block(gate)
    taken = gate.i.valid & gate.i.ready
    octets, qp = h.past(gate.i.p.octets), h.past(gate.i.p.qp)
    begun = h.past(taken) & (octets != 0)
    h.invariant("free", ~gate.i.ready | ~gate.o.valid)
    h.invariant("taken", inside.signal("taken") == h.past(taken))
    h.check("begun", gate.begun.valid == begun)
    h.check("of this QP", ~begun | (gate.begun.qp == qp))


def _property(name: str, build: Build, *changes: tuple[str, str]) -> Property:
    mutations = tuple(
        Mutation("stagecoach.gateware.dma.placement_gate", *change) for change in changes
    )
    return Property(BLOCK, name, in_harness(build), mutations=mutations, depth=1)


PROPERTIES = (
    _property(
        "each placement leaves once, in order",
        _order,
        ("self.room & ~takes & (~self.o.valid | self.o.ready)", "self.room & ~takes"),
        ("with m.If(~self.o.valid):", "with m.If(self.o.ready):"),
    ),
    _property(
        "nothing is taken in the cycle after one without room",
        _room,
        ("self.room & ~takes", "~takes"),
    ),
    _property(
        "begun tells of each placement with bytes",
        _begun,
        ("taken & (item.octets != 0)", "taken"),
    ),
)
