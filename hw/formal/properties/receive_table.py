"""The connection table of the MPA receiver: operations overlap, and seem to follow each other.

One connection, any, is followed.
"""

from amaranth.hdl import Mux, Signal, Value
from amaranth.lib import data

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.mpa.receive_table import BEGINS, Operation, ReceiveTable
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.invariants import invariants
from stagecoach.hw.formal.property import Mutation, Property, in_harness

CONFIG = RnicConfig(qps=4)
FLAGS = ("enabled", "crc", "markers", "closed", "queued", "visited", "held")
END_CYCLES = 2
"""In which the end of a visit is taken."""


class _Table:
    """The table, and the connection as the last operation on it has left it."""

    def __init__(self, h: Harness) -> None:
        self.table = table = ReceiveTable(CONFIG)
        self.inside = inside = h.block(table)
        invariants(h, "mpa.receive_table.ReceiveTable", inside)
        layout, item = table._connection, table._item
        self.first = inside.signal("_first")
        self.reads = inside.view("_read", item)
        self.relates = inside.view("_relate", item)
        self.decides = inside.view("_decide", item)
        self.kept, self.made = inside.view("kept", layout), inside.view("made", layout)
        self.final, self.old = inside.view("final", layout), inside.view("old", layout)
        self.raw, self.done = inside.view("raw", layout), inside.view("done", layout)
        for number, each in enumerate((self.reads, self.relates, self.decides)):
            legal = each.operation <= Operation.END
            h.invariant(f"operation {number}", legal)
            nothing = each.operation == Operation.NONE
            h.invariant(f"nothing {number}", ~nothing | (each.number == 0))
        changes = self.decides.operation >= Operation.COMMAND
        follows = self.first | ~inside.signal("may_visit") | changes
        h.invariant("nothing follows from nothing", follows)

        self.c = h.constant(CONFIG.qp_bits, "c")
        self.last = data.View(layout, Signal(layout.size, name="last"))
        self.known = Signal(name="known")  # it was cleared since the reset
        self.clears = self.at(self.decides) & (self.decides.operation == Operation.CLEAR)
        with h.m.If(~self.first & self.at(self.decides)):
            h.m.d.sync += self.last.eq(self.final)
            with h.m.If(self.clears):
                h.m.d.sync += self.known.eq(1)

    def at(self, item: data.View) -> Value:
        """Whether an operation is one on the connection."""
        return item.number == self.c


def _forwarding(h: Harness) -> None:
    t = _Table(h)
    inside, first, last = t.inside, t.first, t.last
    second = ~first
    memory = inside.memory("connections")
    (write,), (read, *_) = memory.write_ports, memory.read_ports
    same, same_before = inside.signal("same"), inside.signal("same_before")
    before = Signal(CONFIG.qp_bits, name="before")  # of the operation before those
    with h.m.If(second):
        h.m.d.sync += before.eq(t.decides.number)

    starts = t.known & t.at(t.decides)
    h.check("an operation finds what the one before has left", ~starts | (t.kept == last))
    writes = second & t.known & t.at(t.decides) & (t.decides.operation != Operation.NONE)
    stores = write.en & (write.addr == t.c)
    h.check("and leaves it in the table", ~writes | (stores & (write.data == t.final)))
    forgets = ~(second & t.clears) | (t.final.as_value() == 0)
    h.check("a reset forgets all", forgets)

    h.invariant("stored", ~t.known | (h.word(memory, t.c) == last))
    h.invariant("same", second | (same == (t.relates.number == t.decides.number)))
    h.invariant("same later", first | (same == (t.relates.number == t.decides.number)))
    h.invariant("same before", second | (same_before == (t.relates.number == before)))
    h.invariant("done", second | ~t.known | (before != t.c) | (t.done == last))
    h.invariant("read", first | ~t.known | ~t.at(t.reads) | (read.data == last))
    comes = first & t.known & t.at(t.relates) & ~same & ~same_before
    h.invariant("raw", ~comes | (t.raw == last))
    operation = t.decides.operation
    forward = inside.signal("forward")
    h.invariant("forward", ~forward | (operation == Operation.EVENT))
    sure = t.known | t.clears
    related = second & sure & t.at(t.relates)
    h.invariant(
        "old", ~related | (t.old.as_value() == Mux(same, t.made.as_value(), last.as_value()))
    )


def _visits(h: Harness) -> None:
    t = _Table(h)
    inside, table = t.inside, t.table
    second = ~t.first
    ends = second & t.at(t.decides) & (t.decides.operation == Operation.END)

    # Visits under way are ended once each; END comes for no other.
    under_way = Signal()
    with h.m.If(ends | (second & t.clears)):
        h.m.d.sync += under_way.eq(0)
    begun = table.begun & (table.number == t.c)
    with h.m.If(begun):
        h.m.d.sync += under_way.eq(1)
    finds = t.known & t.at(t.decides)
    h.assume(~finds | (t.kept == t.last))  # what `_forwarding` shows
    h.check("one visit at a time", ~(begun & t.known) | ~under_way | ends)
    h.invariant("under way", ~t.known | (t.last.visited == under_way))
    decided = inside.signal("may_visit")
    free = ~(t.made.visited | t.made.queued)
    h.invariant("decided", t.first | ~decided | free)

    # Whatever begins has room.
    buffer = inside.child("begin")
    items = buffer.ports.o.valid + buffer.signal("spare_full")
    pending = sum((each.operation == Operation.BEGIN) for each in (t.reads, t.relates, t.decides))
    credits = inside.signal("_credits")
    h.check("a visit that begins has room", ~buffer.ports.i.valid | buffer.ports.i.ready)
    h.invariant("credits", credits + items + pending == BEGINS)
    begin = t.decides.operation == Operation.BEGIN
    h.invariant("begin", t.first | (inside.signal("is_begin") == begin))
    direct = inside.signal("direct")
    h.invariant("direct", t.first | ~direct | ((credits == BEGINS) & ~begin))


def _ends(h: Harness) -> None:
    table = ReceiveTable(CONFIG)
    inside = h.block(table)
    waited = Signal(range(END_CYCLES + 1))
    m = h.m
    with m.If(~table.end_waiting | table.end_taken):
        m.d.sync += waited.eq(0)
    with m.Elif(waited != END_CYCLES):
        m.d.sync += waited.eq(waited + 1)
    h.assume(~(table.end_waiting & inside.signal("clearing")))  # `receive_reset`
    h.check("an end is taken in time", waited < END_CYCLES)
    h.invariant("second cycle", (waited == 0) | ((waited == 1) & ~inside.signal("_first")))
    both = table.end_taken & (table.taken | (table.command.valid & table.command.ready))
    h.check("one operation at a time", ~both)


def _property(name: str, build: object, *changes: tuple[str, str], depth: int = 1) -> Property:
    mutations = tuple(
        Mutation("stagecoach.gateware.mpa.receive_table", *change) for change in changes
    )
    return Property(
        "mpa.receive_table.ReceiveTable",
        name,
        in_harness(build),  # type: ignore[arg-type]
        mutations,
        depth=depth,
    )


PROPERTIES = (
    _property(
        "an operation on a connection finds what the one before it has left",
        _forwarding,
        ("Mux(same, made, Mux(same_before, done, raw))", "Mux(same_before, done, raw)"),
        ("Mux(same, made, Mux(same_before, done, raw))", "Mux(same, made, raw)"),
        ("m.d.sync += kept[name].eq(final[name])", "pass"),
        ("m.d.comb += made.eq(Const(0, layout.size))", "pass"),
    ),
    _property(
        "a connection has one visit at a time, and there is room for each that begins",
        _visits,
        ("m.d.comb += [final.visited.eq(1), final.held.eq(1)]", "m.d.comb += final.held.eq(1)"),
        ("made.enabled & ~made.queued & ~made.visited", "made.enabled & ~made.queued"),
        ("& (self._credits == BEGINS)", "& (self._credits != 0)"),
        ("waiting.r_rdy & (self._credits != 0)", "waiting.r_rdy"),
    ),
    _property(
        "the end of a visit is taken in two cycles, whatever commands and events come",
        _ends,
        ("self.end_taken.eq(second)", "self.end_taken.eq(second & ~command.valid)"),
    ),
)
