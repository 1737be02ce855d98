"""A QpFifo is one FIFO for each QP: no item is lost or doubled, and no QP sees another one.

One QP, any, is followed; what happens to the others is free. The environment keeps to the ports'
rules for it: no push to a full FIFO and no pop from an empty one, seen by what is in it and not by
`level`; one push and one pop in two cycles at most, whose QP stands a cycle before.
"""

from itertools import pairwise

from amaranth.hdl import Cat, Signal, Value
from amaranth.lib import data

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.queues.qp_fifo import QpFifo
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import Mutation, Property, in_harness

CONFIG = RnicConfig(qps=4)
STANDS_AFTER = 3
"""Cycles after a QP was asked about, and its FIFO popped, from which its oldest item stands."""

ITEM = data.StructLayout({"item": 8})


def _fifo(h: Harness, depth: int, held: bool) -> None:
    m = h.m
    fifo = QpFifo(CONFIG, ITEM, depth, held=held)
    inside = h.block(fifo)
    writer, reader = fifo.writer, fifo.reader
    qp = h.constant(CONFIG.qp_bits, "qp")
    push = writer.push & (writer.push_qp == qp)
    pop = reader.pop & (reader.pop_qp == qp)
    clear = fifo.clear.valid & (fifo.clear.qp == qp)
    release = (fifo.release.valid & (fifo.release.qp == qp)) if held else push

    # What is in the FIFO, the oldest item first; the first `released` of them may be read.
    width = range(depth + 1)
    items = [Signal(8, name=f"item_{number}") for number in range(depth)]
    count, released = Signal(width), Signal(width)
    count_now, released_now = Signal(width), Signal(width)
    m.d.comb += [count_now.eq(count), released_now.eq(released)]
    with m.If(clear):
        m.d.comb += [count_now.eq(0), released_now.eq(0)]
    with m.Elif(pop):
        m.d.comb += [count_now.eq(count - 1), released_now.eq(released - 1)]
        m.d.sync += [new.eq(old) for new, old in pairwise(items)]
    for number, item in enumerate(items):
        with m.If(push & (count_now == number)):
            m.d.sync += item.eq(writer.item)
    m.d.sync += [count.eq(count_now + push), released.eq(released_now + release)]

    h.assume(~push | (count < depth))
    h.assume(~pop | (released > 0) | clear)
    if held:
        h.assume(~release | ((released < count) & ~clear))
    h.assume(~(writer.push & h.past(writer.push)) & ~(reader.pop & h.past(reader.pop)))
    for strobe, name in ((writer.push, writer.push_qp), (reader.pop, reader.pop_qp)):
        h.assume(~strobe | (h.started & (name == h.past(name))))
    # The memories keep their content over a reset; a FIFO is used after a clear.
    used = Signal()
    with m.If(clear):
        m.d.sync += used.eq(1)
    h.assume(used | clear | ~(push | pop | (release if held else 0)))

    # The counts in the memories: those of a clear follow a cycle later.
    rows = {name: h.word(inside.memory(name), qp) for name in ("pushed", "popped", "skipped")}
    if held:
        rows |= {name: h.word(inside.memory(name), qp) for name in ("released", "missed")}
    for name in ("skipped", "missed")[: 1 + held]:
        (port,) = inside.memory(name).write_ports
        late = Signal.like(rows[name], name=f"{name}_now")
        m.d.comb += late.eq(rows[name])
        with m.If(port.en & (port.addr == qp)):
            m.d.comb += late.eq(port.data)
        rows[name] = late
    bits = len(rows["pushed"])
    level = (rows["pushed"] - rows["popped"] - rows["skipped"])[:bits]
    h.invariant("count", ~used | (level == count))
    h.invariant("released", released <= count if held else released == count)
    h.invariant("at most", count <= depth)
    if held:
        seen = rows["released"] + rows["missed"] - rows["popped"] - rows["skipped"]
        h.invariant("releases", ~used | (seen[:bits] == released))
    for name, row, strobe, stood in (
        ("tail", "pushed", writer.push, writer.push_qp),
        ("gone", "popped", reader.pop, reader.pop_qp),
    ):
        (port,) = inside.memory(row).write_ports
        right = (port.addr != qp) | h.past(strobe) | (inside.signal(name) == rows[row])
        h.invariant(name, ~h.started | ~used | ((port.addr == h.past(stood)) & right))
    slots = max(depth.bit_length() - 1, 0)
    oldest = rows["popped"] + rows["skipped"]
    for number, item in enumerate(items):
        address = Cat((oldest + number)[:slots], qp)
        kept = h.word(inside.memory("items"), address)
        h.invariant(f"item {number}", ~used | (number >= count) | (Value.cast(kept) == item))

    # What the ports show, for the QP that was selected.
    for side, what in ((writer, count), (reader, released)):
        selected = h.past(h.past((side.select == qp) & used))
        past = h.past(h.past(what))
        cleared = h.past(h.past(h.past(clear)))
        h.check(f"level {side is reader}", ~selected | cleared | (side.level == past))
    oldest_item = h.past(h.past(h.past(items[0])))
    there = (reader.select == qp) & (released > 0) & ~pop & ~clear & ~h.past(clear) & used
    shown = h.past(h.past(h.past(there)))
    h.check("head", ~shown | (Value.cast(reader.head) == oldest_item))

    # The oldest one stands from three cycles after it was asked for until it is popped.
    left_alone = (reader.select == qp) & ~pop & ~clear & used
    for _ in range(STANDS_AFTER - 1):
        left_alone &= h.past(left_alone)
    stands = h.past(left_alone & ~cleared)
    is_oldest = Value.cast(reader.head) == items[0]
    h.check("the oldest one stands", ~stands | (reader.level == 0) | is_oldest)
    waits = h.past(stands & (reader.level != 0))
    h.check("it stays", ~(stands & waits) | (reader.level != 0))


def _property(name: str, depth: int, held: bool, *changes: tuple[str, str]) -> Property:
    return Property(
        "queues.qp_fifo.QpFifo",
        name,
        in_harness(lambda h: _fifo(h, depth, held)),
        mutations=tuple(
            Mutation("stagecoach.gateware.queues.qp_fifo", *change) for change in changes
        ),
        depth=4,
    )


PROPERTIES = (
    _property(
        "items of a QP leave once, in order, whatever happens to others (depth 4)",
        4,
        False,
        (
            "popped_write.en.eq(self.reader.pop & ~cleared_now)",
            "popped_write.en.eq(self.reader.pop)",
        ),
        ("items_write.addr.eq(Cat(tail[:slot_bits], push_qp))", "items_write.addr.eq(tail)"),
        ("head.eq(reads[1] + reads[2])", "head.eq(reads[1])"),
    ),
    _property(
        "items of a QP leave once, in order (depth 1)",
        1,
        False,
        ("level.eq(difference)", "level.eq(0)"),
    ),
    _property(
        "held items of a QP are seen when they were released, in order",
        2,
        True,
        (
            "clear_to_difference(missed, pushed, released)",
            "clear_to_difference(missed, pushed, popped)",
        ),
    ),
)
