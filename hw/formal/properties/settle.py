"""Nothing is acknowledged that memory has not answered for, nor anything after an error.

Both FIFOs are any that fulfil what `fifos.py` proves of them: they hold what they offer, and give
no more than they got. One connection, any, is followed.
"""

from amaranth.hdl import Signal, Value

from stagecoach.gateware.tcp.settle import ANSWERS, Settle
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import Mutation, Property, in_harness

CONNECTIONS = 4


def _stored(h: Harness) -> None:
    m = h.m
    settle = Settle(CONNECTIONS)
    inside = h.block(settle)
    notes, answers = h.free_part(inside, "notes"), h.free_part(inside, "answers")
    head, note = notes.o.p, notes.o.p.note
    h.assume(h.held(notes.o))
    h.assume(h.held(answers.o))
    h.assume(head.writes <= 2)
    connection = h.constant(range(CONNECTIONS), "connection_followed")

    # Answers of memory that wait in the FIFO, and those that no note that was said has used up
    waiting, unused = Signal(range(ANSWERS + 1)), Signal(range(ANSWERS + 4))
    taken = answers.o.valid & answers.o.ready
    said = notes.o.valid & notes.o.ready
    h.assume(~answers.o.valid | (waiting > 0))
    h.assume(~settle.done | (waiting < ANSWERS))
    m.d.sync += waiting.eq(waiting + settle.done - taken)
    used_up = Signal(2)
    with m.If(said):
        m.d.comb += used_up.eq(head.writes)
    m.d.sync += unused.eq(unused + settle.done - used_up)
    h.check("its answers came", ~said | (unused >= head.writes))

    # What may be acknowledged of the connection: errors are those of answers for its own note
    bad, lost, known = Signal(), Signal(), Signal()
    number, edge, fin = Signal(32), Signal(32), Signal()
    with m.If(taken):
        m.d.sync += bad.eq(bad | answers.o.p)
    mine = said & (note.connection == connection)
    told = mine & (note.begin | ~lost)
    with m.If(mine):
        m.d.sync += lost.eq(bad | (lost & ~note.begin))
        with m.If(note.begin & ~bad):
            m.d.sync += known.eq(1)
    with m.If(said):
        m.d.sync += bad.eq(0)
    with m.If(told & ~bad):
        m.d.sync += [number.eq(note.number), edge.eq(note.edge), fin.eq(note.fin)]
    # The memories keep their content over a reset; a connection begins before all else.
    h.assume(~mine | known | note.begin)
    asked = h.past((settle.connection_read == connection) & known)
    h.check("number", ~asked | (settle.settled.number == h.past(number)))
    h.check("edge", ~asked | (settle.settled.edge == h.past(edge)))
    h.check("fin", ~asked | (settle.settled.fin == h.past(fin)))
    h.check("lost", ~asked | (settle.lost == h.past(lost)))
    h.check("said", ~h.past(mine) | (settle.o.valid == h.past(told)))
    failed = settle.o.p.failed == h.past(bad)
    h.check("which", ~h.past(told) | (Value.cast(settle.o.p.note) == h.past(note)))
    h.check("failed", ~h.past(told) | failed)
    h.cover("after an error", mine & lost & ~note.begin)

    row = h.word(inside.memory("table"), connection)
    h.invariant("unused", unused == waiting + inside.signal("answered"))
    h.invariant("answered", ~notes.o.valid | (inside.signal("answered") <= head.writes))
    h.invariant("none yet", notes.o.valid | (inside.signal("answered") == 0))
    h.invariant("at most", waiting <= ANSWERS)
    h.invariant("error", inside.signal("wrong") == bad)
    same = (row.number == number) & (row.edge == edge) & (row.fin == fin)
    h.invariant("row", ~known | same)
    failures = Value.cast(h.word(inside.memory("failures"), connection))
    h.invariant("failure", ~known | (failures == lost))
    read, *_ = inside.memory("table").read_ports
    good = (read.data.number == h.past(number)) & (read.data.fin == h.past(fin))
    h.invariant("read", ~asked | (good & (read.data.edge == h.past(edge))))
    _, asked_failure, *_ = inside.memory("failures").read_ports
    h.invariant("read failure", ~asked | (asked_failure.data == h.past(lost)))


PROPERTIES = (
    Property(
        "tcp.settle.Settle",
        "nothing is acknowledged that is not stored, nor anything after an error",
        in_harness(_stored),
        mutations=tuple(
            Mutation("stagecoach.gateware.tcp.settle", *change)
            for change in (
                ("notes.o.valid & (answered == head.writes)", "notes.o.valid"),
                ("wrong.eq(wrong | answers.o.payload)", "wrong.eq(answers.o.payload)"),
                ("says & ~silent & ~wrong", "says & ~silent"),
                ("says & ~silent & ~wrong", "says & ~wrong"),
                ("failure.data.eq(silent | wrong)", "failure.data.eq(wrong)"),
                ("answered.eq(0), wrong.eq(0)", "answered.eq(1), wrong.eq(0)"),
                ("self.o.valid.eq(~silent)", "self.o.valid.eq(1)"),
                ("self.lost.eq(asked_failure.data)", "self.lost.eq(silent)"),
            )
        ),
        depth=1,
        reached=8,
    ),
)
