"""What the gates with a queue need of the blocks that fill them (`queue_gates`)."""

from amaranth.hdl import Signal

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import DeliveryKind
from stagecoach.gateware.queues.delivery_gate import DeliveryGate
from stagecoach.gateware.rdmap.receive.access import ReceiveAccess
from stagecoach.hw.formal import receiver
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import Mutation, Property, in_harness

CONFIG = RnicConfig(qps=4)


def _after(h: Harness) -> None:
    """Of the environment: each piece that is to be placed has octets."""
    access = ReceiveAccess(CONFIG)
    inside = h.block(access)
    placement, delivery = access.placement, access.delivery
    for _, condition in receiver.access_needs(h, inside):
        h.assume(condition)
    for name, condition in receiver.access(h, inside):
        h.invariant(name, condition)
    has_octets = inside.signal("has_octets")
    h.assume(~(placement.valid & has_octets) | (placement.p.octets != 0))
    count = Signal(16)
    places = placement.valid & placement.ready & (placement.p.octets != 0)
    h.m.d.sync += count.eq(count + places)
    h.check("all placements with octets before it", ~delivery.valid | (delivery.p.after == count))
    kinds = delivery.p.kind.as_value() < len(DeliveryKind)
    h.check("one of three kinds", ~delivery.valid | kinds)
    h.invariant("counted", inside.signal("placements") == count)
    record = inside.view("record", access.record.p.shape())
    before = inside.in_state("IDLE", "START", "DELIVER")
    h.invariant("of an FPDU", before | ~has_octets | record.fpdu)
    h.invariant("releases", before | has_octets | placement.p.release)
    h.invariant("no octets", has_octets | (placement.p.octets == 0))
    h.invariant("legal", inside.legal_state())
    h.cover("a delivery after a placement", delivery.valid & (count == 2))


def _requests(h: Harness) -> None:
    gate = DeliveryGate(CONFIG)
    inside = h.block(gate)
    released = gate.request_released.valid
    before = h.past(released)
    h.check("one every three cycles", ~released | ~(before | h.past(before)))
    h.check("none after a cycle without room", ~released | h.past(gate.request_room))
    idle, counts = inside.in_state("IDLE"), inside.in_state("COUNT")
    h.invariant("legal", inside.legal_state())
    h.invariant("released", ~released | idle)
    h.invariant("a cycle later", ~before | idle | counts)
    h.cover("request", released)


PROPERTIES = (
    Property(
        "rdmap.receive.access.ReceiveAccess",
        "a delivery tells how many placements with octets came before it, and is of three kinds",
        in_harness(_after),
        mutations=(
            Mutation(
                "stagecoach.gateware.rdmap.receive.access",
                "delivery.after.eq(placements)",
                "delivery.after.eq(placements + 1)",
            ),
        ),
        depth=1,
        reached=6,
    ),
    Property(
        "queues.delivery_gate.DeliveryGate",
        "a request leaves every three cycles at most, and none after a cycle without room",
        in_harness(_requests),
        mutations=(
            Mutation(
                "stagecoach.gateware.queues.delivery_gate",
                "with m.If(~completion.valid & self.request_room):",
                "with m.If(~completion.valid):",
            ),
            Mutation(
                "stagecoach.gateware.queues.delivery_gate",
                'm.next = "COUNT"',
                'm.next = "PLACED"',
            ),
        ),
        depth=1,
        reached=6,
    ),
)
