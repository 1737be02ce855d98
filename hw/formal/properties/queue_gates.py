"""Gates with a queue: items leave once, in order, when what began before they came has ended.

One item, any, is followed. The gate's `QueueDrain` is replaced by any block that keeps its contract
(`drain.py`): of what is at the head `missing` says how many operations it waits for. What that
contract asks of the gate is asserted here.
"""

from typing import Any

from amaranth.hdl import Cat, Mux, Signal, Value

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import DeliveryKind
from stagecoach.gateware.queues import delivery_gate, request_gate
from stagecoach.gateware.queues.delivery_gate import DeliveryGate
from stagecoach.gateware.queues.drain import COUNT_BITS
from stagecoach.gateware.queues.request_gate import MARGIN, RequestGate
from stagecoach.hw.formal.harness import Harness, Inside
from stagecoach.hw.formal.property import Mutation, Property, in_harness
from stagecoach.hw.interface.queue_entries import CompletionOpcode

CONFIG = RnicConfig(qps=4)
MOST = (1 << COUNT_BITS) - 1
COUNT = COUNT_BITS + 1  # bits


class _Drain:
    """The drain of a gate, and an item, any, once, from its mark until it is loaded.

    `begin` pulses for each operation that begins; `drain.end` for each that ends. `owed` is the
    number of those that began before the followed item came and go on; `head_owed` is that of
    what is at the head.
    """

    def __init__(self, h: Harness, inside: Inside, depth: int, begin: Any):
        m = h.m
        self.ports = drain = h.free_part(inside, "drain")
        self.under_way, self.begun = under_way, begun = Signal(COUNT), Signal(COUNT_BITS)
        m.d.sync += [under_way.eq(under_way + begin - drain.end), begun.eq(begun + begin)]
        h.assume(~drain.end | (under_way != 0))
        h.assume(under_way + begin <= MOST)

        # Items that came and were not loaded
        self.items = items = Signal(range(depth + 2))
        m.d.sync += items.eq(items + drain.mark - drain.load)

        # One of them: `before` of them come first.
        self.seen, self.loaded = seen, loaded = Signal(), Signal()
        self.before, self.share = before, share = Signal(range(depth + 2)), Signal(COUNT_BITS)
        self.owed, self.head_owed = owed, head_owed = Signal(COUNT), Signal(COUNT)
        self.taken = h.free(1, "follows") & drain.mark & ~seen
        self.waits = seen & ~loaded
        self.loads = self.waits & drain.load & (before == 0)
        still = Signal(COUNT)
        m.d.comb += still.eq(owed - (drain.end & (owed != 0)))
        m.d.sync += [owed.eq(still), loaded.eq(loaded | self.loads)]
        with m.If(self.taken):
            m.d.sync += [
                seen.eq(1),
                before.eq(items - drain.load),
                share.eq(drain.share),
                owed.eq(under_way - drain.end),
            ]
        with m.Elif(self.waits):
            m.d.sync += before.eq(before - drain.load)
        m.d.sync += head_owed.eq(head_owed - (drain.end & (head_owed != 0)))
        with m.If(drain.load):
            m.d.sync += head_owed.eq(Mux(self.loads, still, h.free(COUNT, "owed_of_another")))
        self.at_head = at_head = Signal()  # it is, and still when it has left
        m.d.sync += at_head.eq(self.loads | (at_head & ~drain.load))
        self.waited = Signal()
        m.d.sync += self.waited.eq(self.waited | (at_head & (owed == 1)))
        missing = drain.missing
        h.assume(Mux(head_owed == 0, missing <= 0, missing == head_owed))

        h.check("the drain is told what has begun", ~drain.mark | (drain.begun == begun))
        h.check("the drain has room", ~drain.mark | (items - drain.load < depth))
        h.check("items are loaded once", ~drain.load | (items != 0))
        h.check("items are loaded in order", ~self.loads | (drain.loaded == share))
        h.invariant("at the head", ~at_head | (loaded & (head_owed == owed)))
        h.invariant("loaded", ~loaded | seen)
        h.invariant("before", ~self.waits | (before < items))
        h.invariant("items", items <= depth)


class _Order:
    """Items leave in order, as many as came; `its` is high when the followed one leaves.

    `ended` pulses for each operation that ends, a cycle before the end of the drain: `owed` is what
    is owed to the followed item.
    """

    def __init__(self, h: Harness, drain: _Drain, came: Any, leaves: Any, ended: Any):
        m = h.m
        self.inside, self.before = inside, before = Signal(8), Signal(8)
        self.gone, self.owed = gone, owed = Signal(), Signal(COUNT)
        going = Signal(COUNT)  # operations
        self.its = drain.seen & ~gone & (before == 0) & leaves
        m.d.comb += going.eq(drain.under_way - drain.ports.end)
        h.assume(~ended | (going != 0))
        m.d.sync += [inside.eq(inside + came - leaves), gone.eq(gone | self.its)]
        with m.If(drain.taken):
            m.d.sync += [before.eq(inside - leaves), owed.eq(going - ended)]
        with m.Elif(drain.seen & ~gone):
            m.d.sync += [before.eq(before - leaves), owed.eq(owed - (ended & (owed != 0)))]
        with m.Else():
            m.d.sync += owed.eq(owed - (ended & (owed != 0)))
        h.show("in_gate", inside)
        h.check("an item that leaves came", ~leaves | (inside != 0))
        h.check("what began before it has ended", ~self.its | (owed == 0))
        h.invariant("end", drain.ports.end == h.past(ended))
        late = drain.ports.end & (drain.owed != 0)
        h.invariant("owed", ~drain.seen | (drain.owed == owed + late))
        h.invariant("gone", ~gone | drain.loaded)
        h.invariant("not loaded", drain.seen | (~drain.loaded & ~gone))


def _request(h: Harness) -> None:
    m = h.m
    depth = request_gate.DEPTH
    gate = RequestGate(CONFIG)
    inside = h.block(gate)
    drain = _Drain(h, inside, depth, gate.accepted)
    order = _Order(h, drain, gate.i.valid, gate.o.valid, gate.finished)
    qp = Signal(CONFIG.qp_bits)
    with m.If(drain.taken):
        m.d.sync += qp.eq(gate.i.qp)
    h.check("as it came", ~order.its | (gate.o.qp == qp))
    h.cover("one that waited", order.its & drain.waited)

    # What may still come when `room` has fallen
    late = Signal(range(MARGIN + 1))
    recent = h.past(gate.i.valid)
    h.assume(~gate.i.valid | ~(recent | h.past(recent)))
    h.assume(~gate.i.valid | gate.room | (late < MARGIN))
    m.d.sync += late.eq(Mux(gate.room, 0, late + gate.i.valid))

    fifo = inside.child("fifo")
    ports, level = fifo.ports, fifo.ports.level
    waiting, room_for = fifo.signal("inner_level"), depth - MARGIN
    rest = depth - 1
    h.check("all are in the FIFO", level == drain.items)
    h.check("few are inside", order.inside <= depth + 1)
    h.check("room", level <= room_for + Mux(gate.room, 0, late))
    h.invariant("fills", ~gate.room | (level < room_for) | recent)
    h.invariant("late", late <= MARGIN)
    h.invariant("level", (waiting + ports.r_rdy == level) & (ports.r_rdy | (waiting <= 1)))
    h.invariant("accepted", inside.signal("accepted") == drain.begun)
    produce, consume = fifo.signal("produce"), fifo.signal("consume")
    h.invariant("addresses", (produce < rest) & (consume < rest))
    ahead = Mux(produce >= consume, produce - consume, produce + rest - consume)
    h.invariant("distance", (waiting == ahead) | ((waiting == rest) & (ahead == 0)))
    place = consume + drain.before - ports.r_rdy
    kept = h.word(fifo.memory("storage"), Mux(place >= rest, place - rest, place))
    stored = Mux(ports.r_rdy & (drain.before == 0), ports.r_data, kept)
    h.invariant("item", ~drain.waits | (stored == Cat(qp, drain.share)))

    goes, completed = ~inside.in_state("IDLE"), inside.in_state("COMPLETED")
    finished = completed & inside.signal("finished")
    at = drain.loaded & ~order.gone
    h.invariant("legal", inside.legal_state())
    h.invariant("inside", order.inside == level + goes + gate.o.valid)
    h.invariant("one leaves", ~(goes & gate.o.valid))
    h.invariant("ahead of it", ~drain.waits | (order.before == drain.before + goes + gate.o.valid))
    h.invariant("next", ~at | ((order.before == 0) & drain.at_head & (goes | gate.o.valid)))
    h.invariant("its QP", ~at | (gate.o.qp == qp))
    h.invariant("finished", ~finished | (drain.head_owed == 0))
    h.invariant("left", ~gate.o.valid | (drain.head_owed == 0))


def _deliveries(h: Harness) -> None:
    m = h.m
    depth = delivery_gate.DEPTH
    gate = DeliveryGate(CONFIG)
    inside = h.block(gate)
    delivery, completion, read_done = gate.delivery, gate.completion, gate.read_done
    begin = h.free(1, "begin")
    drain = _Drain(h, inside, depth, begin)
    count = delivery.payload.after[:COUNT_BITS]
    h.assume(~delivery.valid | (count == drain.begun))
    h.assume(~delivery.valid | (delivery.payload.kind.as_value() < len(DeliveryKind)))
    came = delivery.valid & delivery.ready

    def offered(output: Any) -> Value:
        """Something new is offered."""
        return output.valid & ~h.past(output.valid & ~output.ready)

    released = gate.request_released
    outputs = Cat(offered(completion), offered(read_done), released.valid)
    dropped = Cat(gate.dropped_receive, gate.dropped_read, gate.dropped_request)
    leaves = Signal()
    m.d.comb += leaves.eq(Cat(outputs, dropped).any())
    order = _Order(h, drain, came, leaves, gate.placed)
    its = Signal(delivery.payload.shape(), name="its")
    with m.If(drain.taken):
        m.d.sync += its.eq(delivery.payload)

    kinds = Cat(
        its.kind == kind for kind in (DeliveryKind.RECEIVE, DeliveryKind.READ, DeliveryKind.REQUEST)
    )
    one = (Cat(outputs, dropped) & (Cat(outputs, dropped) - 1)) == 0
    h.check("one leaves at a time", one)
    h.check("few are inside", order.inside <= depth + 1)
    was_dropped = dropped.any()
    h.check("at its output", ~order.its | was_dropped | (outputs == kinds))
    told = (dropped & ~kinds) == 0
    h.check("dropped as what it is", ~order.its | told)
    same = Cat(
        completion.payload[name] == its[name]
        for name in ("qp", "index", "flags", "detail", "length")
    ).all() & (completion.payload.opcode == CompletionOpcode.RECEIVE)
    h.check("completion as it came", ~(order.its & outputs[0]) | same)
    same = Cat(read_done.payload[name] == its[name] for name in ("qp", "length")).all()
    h.check("Read as it came", ~(order.its & outputs[1]) | same)
    h.check("request as it came", ~(order.its & outputs[2]) | (released.qp == its.qp))
    h.cover("one that waited", order.its & drain.waited)

    h.invariant("its kind", ~drain.seen | (its.kind.as_value() < len(DeliveryKind)))

    # In the memory, then at the head
    level, head = inside.signal("level"), inside.view("head", gate._waiting_delivery())
    waits = inside.signal("waits")
    memory = inside.memory("waiting")
    (write,), (read,) = memory.write_ports, memory.read_ports
    loading, placed_state = inside.in_state("COUNT"), inside.in_state("PLACED")
    idle = inside.in_state("IDLE")
    # So it is of the followed one, which is any: "it is the head".
    h.assume(idle | (head.kind.as_value() < len(DeliveryKind)))
    h.invariant("completion held", h.held(completion))
    h.invariant("Read held", h.held(read_done))
    h.invariant("legal", inside.legal_state())
    h.invariant("level", (level <= depth) & (drain.items == level + loading))
    h.invariant("addresses", write.addr == (read.addr + level)[: len(read.addr)])
    h.invariant("waits", ~waits | loading | (level != 0))
    stored = drain.waits & ~(loading & (drain.before == 0))
    place = drain.before - loading

    def is_it(item: Any) -> Value:
        names = [name for name, _ in gate._waiting_delivery() if name != "share"]
        fields = Cat(Value.cast(item[name]) == Value.cast(its[name]) for name in names)
        return fields.all()

    kept = h.word(memory, (read.addr + place)[: len(read.addr)])
    right = is_it(kept) & (kept.share == drain.share)
    h.invariant("stored", ~stored | right)
    shown = is_it(read.data) & (read.data.share == drain.share)
    h.invariant("shown", ~(stored & waits & ~loading & (place == 0)) | shown)
    at = drain.loaded & ~order.gone
    comes = drain.waits & loading & (drain.before == 0)
    h.invariant("at the head", ~comes | (is_it(head) & (head.share == drain.share)))
    left = inside.signal("left")
    going = ~idle & ~left
    goes = going & ~loading
    offers = outputs.any()
    h.invariant("it goes", ~at | (drain.at_head & (order.before == 0) & (goes | offers)))
    h.invariant("it is the head", ~(at & ~idle) | is_it(head))
    h.invariant("inside", order.inside == level + going + offers)
    h.invariant("ahead of it", ~drain.waits | (order.before == drain.before + goes + offers))
    h.invariant("one way", ~(going & offers))

    # What the head waits for
    look, owed = inside.in_state("LOOK"), drain.head_owed
    none = inside.signal("$signal", 1)  # `none` of the source has no name of its own
    expects = inside.signal("expects")
    h.invariant("one", look | (inside.signal("one") == (owed == 1)))
    h.invariant("none", ~(placed_state & none) | (owed == 0))
    h.invariant("nothing is owed", ~idle | (owed == 0))
    h.invariant("expects", ~expects | placed_state | idle)
    receives = head.kind == DeliveryKind.RECEIVE
    h.invariant(
        "expects a place", ~(expects & placed_state & ~left) | (~completion.valid & receives)
    )
    h.invariant("left", ~left | (placed_state & (owed == 1) & drain.ports.end & outputs[0]))


def _gate(module: str, block: str, name: str, build: Any, *changes: tuple[str, str]) -> Property:
    return Property(
        f"queues.{module}.{block}",
        name,
        in_harness(build),
        mutations=tuple(
            Mutation(f"stagecoach.gateware.queues.{module}", *change) for change in changes
        ),
        depth=1,
        covered=14,
    )


PROPERTIES = (
    _gate(
        "request_gate",
        "RequestGate",
        "requests leave once, in order, when the entries accepted before them have finished",
        _request,
        ("drain.begun.eq(accepted)", "drain.begun.eq(accepted - 1)"),
        ("request.qp.eq(self.i.qp)", "request.qp.eq(self.o.qp)"),
        ("with m.If(finished):", "with m.If(1):"),
        ("(drain.missing == 0)", "(drain.missing == 1)"),
        ('m.next = "COMPARE"', 'm.next = "COMPLETED"'),
        ("fifo.level < DEPTH - MARGIN", "fifo.level < DEPTH"),
    ),
    _gate(
        "delivery_gate",
        "DeliveryGate",
        "deliveries leave once, in order, as they came, when the placements before them have ended",
        _deliveries,
        ("expects & one & ~placed & self.placed", "expects & one & self.placed"),
        ("missing[-1] | (missing == 0)", "missing[-1] | (missing == 0) | (missing == 2)"),
        ("with m.Elif(one & placed):", "with m.Elif(one):"),
        ("read.addr.eq(read.addr + takes)", "read.addr.eq(read.addr + 1)"),
        ("self.delivery.ready.eq(~level[-1])", "self.delivery.ready.eq(1)"),
        ("completion.payload.detail.eq(head.detail)", "completion.payload.detail.eq(0)"),
    ),
)
