"""The completer has no more work requests of a QP than it has room for.

What the transmitter remembers of a QP is joined with the count of its work requests that left the
completer. One QP, any, is followed. `in_flight` counts its work requests from when their last FPDU
is handed over until they are retired; so it counts all that the completer has.
Of the completer it is assumed that it retires what it has, once (`completer`); and that it has
nothing of a QP that is connected, which is new then.
"""

from typing import Any

from amaranth.hdl import Mux, Signal, Value
from amaranth.lib import data

from stagecoach.gateware.layouts import QpCommandKind
from stagecoach.gateware.rdmap.transmit.context import RetiredSends, progress_layout
from stagecoach.gateware.rdmap.transmit.message import lookup_layout
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.properties.transmit_progress import CONFIG, joined
from stagecoach.hw.formal.property import Mutation, Property, in_harness

MOST = CONFIG.pending_sends


def _sends(h: Harness) -> None:
    m, blocks = h.m, joined(h)
    choose, complete, inside = blocks.choose, blocks.complete, blocks.chooses
    told, commands = blocks.told, blocks.commands
    sends = RetiredSends(CONFIG)
    counts = h.block(sends, "retired_sends")
    known = Signal(sends.count.shape(), name="known")
    lookup = h.free(lookup_layout(CONFIG), "lookup")
    m.d.sync += known.eq(sends.count)
    m.d.comb += [
        sends.select.eq(choose.qp),
        choose.lookup.eq(lookup),
        choose.lookup.retired.eq(known),
        complete.retired.eq(known),
    ]
    message = choose.message.p
    qp = h.constant(CONFIG.qp_bits, "qp")
    ours = choose.qp == qp
    retires = sends.retired.valid & (sends.retired.qp == qp)
    commanded = blocks.command.store & ours
    issues = complete.handed & complete.last & ~message.responding & ours
    bits = len(known) + 1
    in_flight, connected = Signal(bits), Signal()
    command = choose.qp_command
    connects = command.p.kind == QpCommandKind.CONNECT
    m.d.sync += in_flight.eq(in_flight + issues - (retires & (in_flight != 0)))
    with m.If(commanded):
        m.d.sync += connected.eq(connects)
        with m.If(connects):
            m.d.sync += in_flight.eq(0)
    h.assume(~(retires & connected) | (in_flight != 0))
    # A QP runs when it is connected; nothing of it is in the completer then.
    h.assume(connected | ~choose.running.bit_select(qp, 1))
    h.assume(~(command.valid & (command.p.qp == qp) & connects) | ~retires)

    h.check("room for each", ~issues | (in_flight < MOST))
    h.check("no more than there is room for", in_flight <= MOST)
    h.check("of a QP that was connected", ~issues | connected)
    h.cover("full", in_flight == MOST)

    # The count of those that were retired ever, and what is stored of those that were handed over
    word = h.word(counts.memory("counts"), qp)
    late = counts.signal("pending") & (counts.signal("pending_qp") == qp)
    row = data.View(
        progress_layout(CONFIG), h.word(blocks.stored.memory("progresses"), qp).as_value()
    )
    stores = complete.store & ours
    kept = Signal(progress_layout(CONFIG))
    m.d.comb += kept.eq(Mux(stores, complete.followed, row))

    def apart(one: Any, other: Any) -> Value:
        return Value.cast((one - other)[: len(known)])

    counts_on = connected & ~commanded
    h.invariant("counted", ~counts_on | (apart(kept.issued, word + late) == in_flight))
    (write,) = counts.memory("counts").write_ports
    h.invariant("old", ~late | (write.data == (word + 1)[: len(known)]))

    def within(value: Any) -> Value:
        """A count of some cycles ago: none was handed over since, and some were retired."""
        return Value.cast(~connected | ((value >= in_flight + late) & (value <= MOST)))

    h.invariant("room", in_flight + late <= MOST)
    goes_on = connected & kept.active & ~kept.responding
    h.invariant("room for what goes on", ~goes_on | (in_flight + late < MOST))
    now = message.progress
    context, queues, chooses = (
        inside.in_state(name) & ours for name in ("CONTEXT", "QUEUES", "CHOOSE")
    )
    again = inside.in_state("AGAIN") & ours
    asked = queues | chooses | again
    h.invariant("counted before", ~(context | asked) | within(apart(kept.issued, sends.count)))
    h.invariant("known", ~asked | within(apart(kept.issued, known)))
    h.invariant("in CHOOSE", ~chooses | within(inside.signal("in_flight")))

    # A command: nothing of its QP is retired any more when it starts.
    h.invariant("legal", inside.legal_state() & commands.legal_state())
    waits = commands.in_state("CONTEXT")
    works = inside.in_state("COMMAND")
    h.invariant("works", waits | works)
    h.invariant("its QP", ~works | (command.valid & (choose.qp == command.p.qp)))
    starts = works & ours & connects
    waited = commands.signal("waited")
    h.invariant("none late", ~starts | ~late)
    h.invariant("read", ~starts | (waits & (waited == 0)) | (sends.count == word))
    h.invariant("waited", ((works & waits) | (waited == 0)) & (waited <= 2))
    knows = starts & (~waits | (waited == 2))
    h.invariant("known by then", ~knows | (known == word))
    stores_it = starts & commands.in_state("STORE")
    h.invariant("anew", ~stores_it | (complete.followed.issued == word))
    restarts = commands.in_state("STORE")
    h.invariant("not active", ~restarts | ~complete.followed.active)

    # The message at work
    storing = blocks.completes.signal("storing")
    h.invariant("stores", storing == h.past(complete.handed | complete.begun))
    h.invariant("one at a time", ~(storing & ~waits))
    h.invariant("of a message", ~told | inside.in_state("MESSAGE", "BARE_MESSAGE"))
    h.invariant("told", ~storing | told | inside.in_state("IDLE"))
    terminates = inside.in_state("TERMINATE_CONTEXT", "TERMINATE_LOAD", "TERMINATE_POSITION")
    terminates |= (
        inside.in_state("BARE_MESSAGE") & inside.view("message", message.shape()).terminating
    )
    others = ~inside.in_state("IDLE", "COMMAND") & ~terminates
    own = inside.view("message", message.shape())
    h.invariant("asked about it", ~others | (choose.asked == choose.qp))
    h.invariant("Terminate", ~terminates | own.terminating)
    h.invariant("no Terminate", ~others | ~own.terminating)
    chosen = inside.in_state("MESSAGE", "BARE_MESSAGE", "ATOMIC_ANSWER") & ours & ~terminates
    h.invariant("of an atomic", ~(chosen & own.begins_atomic) | own.responding)
    known_now = inside.in_state("QUEUES", "CHOOSE") & ours
    same = (
        (now.issued == row.issued) & (now.active == row.active) & (now.responding == row.responding)
    )
    h.invariant("kept", ~(known_now | (chosen & ~told & ~storing)) | same)
    read = data.View(progress_layout(CONFIG), blocks.contexts.progress.as_value())
    same = (read.issued == row.issued) & (read.active == row.active)
    same &= read.responding == row.responding
    h.invariant("progress", ~(context | asked) | same)
    runs_soon, runs = inside.signal("in_groups", 0), inside.signal("chosen", 0)
    h.invariant("runs soon", ~(inside.in_state("CONTEXT") & ours & runs_soon) | connected)
    h.invariant("runs", ~(queues & runs) | connected)
    h.invariant("connected", ~(chooses | again | chosen) | connected)
    before = chosen & ~told & ~storing & ~message.responding
    h.invariant("room for it", ~before | (in_flight + late < MOST))


PROPERTIES = (
    Property(
        "rdmap.transmit.context.RetiredSends",
        "the completer has no more work requests of a QP than it has room for",
        in_harness(_sends),
        mutations=(
            Mutation("stagecoach.gateware.rdmap.transmit.choose", "& ~in_flight[-1]", "& 1"),
            Mutation(
                "stagecoach.gateware.rdmap.transmit.choose",
                "in_flight.eq((progress.issued - lookup.retired)[: len(in_flight)])",
                "in_flight.eq(0)",
            ),
            Mutation(
                "stagecoach.gateware.rdmap.transmit.complete",
                "progress.issued + (~responding & last)",
                "progress.issued + 0",
            ),
        ),
        mutant_cycles=11,
        depth=1,
        reached=8,
    ),
)
