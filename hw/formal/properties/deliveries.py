"""What the gates of the queues need of the blocks before them (`gates`, `queue_gates`)."""

from amaranth.hdl import Signal

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import DeliveryKind
from stagecoach.gateware.queues.delivery_gate import DeliveryGate
from stagecoach.gateware.rdmap.receive.access import ReceiveAccess
from stagecoach.gateware.rdmap.receive.record import ReceiveRecord
from stagecoach.hw.formal import receiver, rfc_checks
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import Mutation, Property, in_harness
from stagecoach.hw.interface.causes import Cause

CONFIG = RnicConfig(qps=4)


def _after(h: Harness) -> None:
    """Of the environment: each piece that is to be placed has bytes."""
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
    h.check("all placements with bytes before it", ~delivery.valid | (delivery.p.after == count))
    kinds = delivery.p.kind.as_value() < len(DeliveryKind)
    h.check("one of three kinds", ~delivery.valid | kinds)
    coming, owes = access.record, Signal()
    with h.m.If(access.error.valid | (delivery.valid & delivery.ready)):
        h.m.d.sync += owes.eq(0)
    with h.m.If(coming.valid & coming.ready):
        good = ~coming.p.dropped & (coming.p.cause == Cause.NONE)
        h.m.d.sync += owes.eq(coming.p.delivers & good)
    h.check("delivered before the next record", ~coming.ready | ~(owes | delivery.valid))
    h.invariant("counted", inside.signal("placements") == count)
    record = inside.view("record", access.record.p.shape())
    start, ends = inside.in_state("START"), inside.in_state("ERROR")
    kept = ~inside.in_state("IDLE") & ~ends
    h.invariant("owes", ~owes | (kept & record.delivers & ~record.dropped) | ends)
    h.invariant("good", ~(owes & start) | (record.cause == Cause.NONE))
    before = inside.in_state("IDLE", "START", "DELIVER")
    h.invariant("of an FPDU", before | ~has_octets | record.fpdu)
    h.invariant("releases", before | has_octets | placement.p.release)
    h.invariant("no bytes", has_octets | (placement.p.octets == 0))
    h.invariant("legal", inside.legal_state())
    h.cover("a delivery after a placement", delivery.valid & (count == 2))


def _placing(h: Harness) -> None:
    """Host addresses are held from two cycles after a lookup was accepted, until a failure is told
    or a cycle after the last placement, in which `PlacementGate` tells that it has begun.
    """
    access = ReceiveAccess(CONFIG)
    inside = h.block(access)
    for _, condition in receiver.access_needs(h, inside):
        h.assume(condition)
    for name, condition in receiver.access(h, inside):
        h.invariant(name, condition)
    request, placement = access.stag.request, access.placement
    invalidates = request.p.exclusive
    held, places = Signal(), placement.valid & placement.ready
    with h.m.If(request.valid & request.ready & ~invalidates):
        h.m.d.sync += held.eq(1)
    with h.m.Elif(access.error.valid | (places & placement.p.release)):
        h.m.d.sync += held.eq(0)
    h.check("placing while it is held", ~h.past(held & ~access.error.valid) | access.placing)
    octets = h.past(placement.p.octets != 0)
    h.check("placing when one begins", ~(h.past(places) & octets) | access.placing)
    h.cover("held", held & places)
    h.invariant("legal", inside.legal_state())
    invalidates_now = inside.in_state("INVALIDATE_LOOKUP")
    h.invariant("invalidates", ~invalidates_now | inside.signal("invalidating"))
    none = inside.in_state("IDLE", "START", "DELIVER")
    record = inside.view("record", access.record.p.shape())
    h.invariant("held", ~held | (~none & record.fpdu))


def _answers(h: Harness) -> None:
    """The end of the first step, and the second one. What kind a segment is of is its opcode."""
    first, access = ReceiveRecord(CONFIG), ReceiveAccess(CONFIG)
    h.block(first, "first")
    inside = h.block(access, "access")
    m, record, kind = h.m, first.record, first.kind
    m.d.comb += [
        access.record.payload.eq(record.payload),
        access.record.valid.eq(record.valid),
        record.ready.eq(access.record.ready),
    ]
    for _, condition in receiver.access_needs(h, inside):
        h.assume(condition)
    for name, condition in receiver.access(h, inside):
        h.invariant(name, condition)
    h.assume(kind.response == rfc_checks.is_any(kind.opcode, receiver.RESPONSES))

    # A pop is told a cycle after its record was taken, and no delivery comes as early.
    owed, qp, delivery = Signal(), Signal(CONFIG.qp_bits), access.delivery
    with m.If(access.delivery.valid & access.delivery.ready):
        m.d.sync += owed.eq(0)
    with m.If(record.valid & record.ready):
        m.d.sync += [owed.eq(0), qp.eq(record.p.qp)]
    with m.If(first.pop):
        m.d.sync += owed.eq(1)
    answers = delivery.valid & (delivery.p.kind == DeliveryKind.READ)
    h.check("an answer of a request that was popped", ~answers | (owed & (delivery.p.qp == qp)))
    h.cover("answer", answers)

    at_work = inside.view("record", record.p.shape())
    here = ~inside.in_state("IDLE")
    response = rfc_checks.is_any(at_work.opcode, receiver.RESPONSES)
    good = at_work.delivers & ~at_work.dropped & response
    before = inside.in_state("START") & first.pop
    over = inside.in_state("ERROR")
    h.invariant("legal", inside.legal_state())
    h.invariant("its QP", ~here | (at_work.qp == qp))
    asks = inside.in_state("START") & inside.signal("asking")
    h.invariant("asks", ~asks | ~at_work.dropped)
    later = here & ~inside.in_state("START")
    h.invariant("not dropped", ~later | ~(at_work.delivers & at_work.dropped))
    h.invariant("popped", ~(here & good) | owed | before | over)


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
        "a delivery tells how many placements with bytes came before it, and is of three kinds",
        in_harness(_after),
        mutations=(
            Mutation(
                "stagecoach.gateware.rdmap.receive.access",
                "delivery.after.eq(placements)",
                "delivery.after.eq(placements + 1)",
            ),
            Mutation(
                "stagecoach.gateware.rdmap.receive.access",
                "with m.If(record.delivers):",
                "with m.If(record.delivers & record.fpdu & has_octets):",
            ),
        ),
        depth=1,
        reached=6,
    ),
    Property(
        "rdmap.receive.access.ReceiveAccess",
        "placing is high while an address is held, and when its placement begins",
        in_harness(_placing),
        mutations=(
            Mutation("stagecoach.gateware.rdmap.receive.access", '    "INVALIDATE_CHECK",\n', ""),
            Mutation("stagecoach.gateware.rdmap.receive.access", '    "PLACE",\n', ""),
        ),
        depth=1,
        reached=6,
    ),
    Property(
        "rdmap.receive.access.ReceiveAccess",
        "an answer is delivered only for a request that was popped, once",
        in_harness(_answers),
        mutations=(
            Mutation(
                "stagecoach.gateware.rdmap.receive.record",
                "self.pop.eq(consumed & kind.response)",
                "self.pop.eq(consumed & kind.atomic_response)",
            ),
            Mutation(
                "stagecoach.gateware.rdmap.receive.access",
                "Mux(is_any(opcode, RESPONSE_OPCODES), DeliveryKind.READ, DeliveryKind.REQUEST)",
                "DeliveryKind.READ",
            ),
        ),
        depth=1,
        reached=8,
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
