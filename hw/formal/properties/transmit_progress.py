"""What the transmitter remembers of a QP fits what the queues have of it.

Three of its blocks are joined as in `transmitter`: the choice of a message, what is stored of each
QP, and what follows an FPDU. One QP, any, is followed. Of its queues it is assumed what their ports
promise: its oldest inbound request, and its oldest send entry, stand until they are popped.
"""

from dataclasses import dataclass

from amaranth.hdl import Mux, Signal, Value
from amaranth.lib import data

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.rdmap.transmit.choose import TransmitChoose
from stagecoach.gateware.rdmap.transmit.command import TransmitCommand
from stagecoach.gateware.rdmap.transmit.complete import TransmitComplete
from stagecoach.gateware.rdmap.transmit.context import TransmitContexts, progress_layout
from stagecoach.gateware.rdmap.transmit.entry import OPERATION
from stagecoach.gateware.rdmap.transmit.message import message_layout
from stagecoach.hw.formal.harness import Harness, Inside
from stagecoach.hw.formal.property import Mutation, Property, in_harness
from stagecoach.hw.interface.queue_entries import SendOpcode
from stagecoach.hw.interface.wire import ATOMIC_OCTETS

CONFIG = RnicConfig(qps=4)


@dataclass(frozen=True)
class Joined:
    """The blocks, and a look inside each.

    told: the message at `choose` was handed over in an earlier cycle.
    """

    choose: TransmitChoose
    complete: TransmitComplete
    contexts: TransmitContexts
    command: TransmitCommand
    chooses: Inside
    completes: Inside
    stored: Inside
    commands: Inside
    told: Signal


def joined(h: Harness) -> Joined:
    """Put the blocks into the harness, joined as in `transmitter`."""
    m = h.m
    choose, complete = TransmitChoose(CONFIG), TransmitComplete(CONFIG)
    contexts, command = TransmitContexts(CONFIG), TransmitCommand(CONFIG)
    inside = h.block(choose, "choose")
    completes = h.block(complete, "complete")
    stored, commands = h.block(contexts, "contexts"), h.block(command, "command")
    message, valid = choose.message.p, choose.message.valid
    h.assume(h.held(choose.qp_command))
    h.assume(h.held(choose.termination))
    piece = h.free(complete.piece.shape(), "piece")
    m.d.comb += [
        complete.piece.eq(piece),
        complete.piece.message.eq(message),
        contexts.qp.eq(choose.qp),
        contexts.followed.eq(complete.followed),
        contexts.store.eq(complete.store),
        choose.progress.eq(contexts.progress),
        choose.halt.eq(contexts.halt),
        command.command.valid.eq(choose.command.valid),
        command.command.payload.eq(choose.command.payload),
        choose.command.ready.eq(command.command.ready),
        complete.restart.eq(command.restart),
        complete.store_restarted.eq(command.store),
    ]
    # `TransmitCheck` hands a message over once, while it is there; one without elements of its own
    # is the last FPDU of its message (`TransmitSegment`).
    handed, begun = complete.handed, complete.begun
    told = Signal()
    m.d.sync += told.eq((told | handed | begun) & ~choose.message.ready & valid)
    h.assume(~(handed | begun) | (valid & ~told & ~message.terminating))
    h.assume(~handed | ~message.begins_atomic)
    h.assume(~begun | message.begins_atomic)
    h.assume(~handed | ~message.inline | complete.last)
    return Joined(choose, complete, contexts, command, inside, completes, stored, commands, told)


def _progress(h: Harness) -> None:
    m, blocks = h.m, joined(h)
    choose, complete, contexts = blocks.choose, blocks.complete, blocks.contexts
    command, told = blocks.command, blocks.told
    inside, completes = blocks.chooses, blocks.completes
    stored, commands = blocks.stored, blocks.commands
    message, valid = choose.message.p, choose.message.valid
    handed, begun = complete.handed, complete.begun

    # What the queues say
    qp = h.constant(CONFIG.qp_bits, "qp")
    ours, now = choose.qp == qp, inside.view("message", message_layout(CONFIG))
    looks, chooses = (inside.in_state(name) & ours for name in ("QUEUES", "CHOOSE"))
    pop_qp = h.past(choose.asked)
    commanded = command.store & ours
    waits, entered, connected = Signal(), Signal(), Signal()
    atomic, opcode = Signal(), Signal(OPERATION["opcode"].shape)
    level, allowed = Signal(), Signal()
    came = data.View(OPERATION, choose.word)
    with m.If(chooses & level):
        m.d.sync += [waits.eq(1), atomic.eq(choose.inbound_head.atomic)]
    with m.If(looks):
        m.d.sync += [
            level.eq(choose.inbound_level != 0),
            allowed.eq(choose.outstanding_level < choose.lookup.settings.ord),
        ]
        with m.If(choose.level != 0):
            m.d.sync += [entered.eq(1), opcode.eq(came.opcode)]
    with m.If(commanded | (complete.pop_inbound & (pop_qp == qp))):
        m.d.sync += waits.eq(0)
    with m.If(commanded | (complete.pop & ours)):
        m.d.sync += entered.eq(0)
    with m.If(commanded):
        m.d.sync += connected.eq(1)
    h.assume(~(looks & waits) | (choose.inbound_level != 0))
    h.assume(~(chooses & waits) | (choose.inbound_head.atomic == atomic))
    same = Value.cast(came.opcode) == Value.cast(opcode)
    h.assume(~(looks & entered) | ((choose.level != 0) & same))
    # A QP runs when it is connected.
    h.assume(connected | ~choose.running.bit_select(qp, 1))

    begins = valid & ours & message.begins_atomic
    progress = message.progress
    h.check("an atomic begins a message", ~begins | (~progress.active & (progress.done == 0)))
    h.check("8 bytes are left of it", ~begins | (message.remaining == ATOMIC_OCTETS))
    is_oldest = ~(begun & ours) | (waits & atomic)
    h.check("an atomic that begins is the oldest request", is_oldest)
    popped = complete.pop_inbound & (pop_qp == qp)
    h.check("pop only when one waits", ~popped | waits)
    asks = complete.push & (pop_qp == qp)
    h.check("push only when one more is allowed", ~asks | allowed)
    h.check("the QP stands", ~(complete.push | complete.pop_inbound) | (pop_qp == h.past(pop_qp)))
    for name, strobe in (("push", complete.push), ("pop", complete.pop_inbound)):
        h.check(f"{name} every second cycle", ~strobe | ~h.past(strobe))
    h.cover("pop", popped)
    h.cover("push", asks)

    # What is stored, or is going to be
    word = h.word(stored.memory("progresses"), qp)
    kept = Signal(progress_layout(CONFIG))
    stores = complete.store & ours
    m.d.comb += kept.eq(Mux(stores, complete.followed, word))
    requests = (opcode == SendOpcode.RDMA_READ) | (opcode == SendOpcode.ATOMIC)
    h.invariant("done", ~connected | kept.active | (kept.done == 0))
    h.invariant(
        "goes on with a Read", ~(connected & kept.active & kept.responding) | (waits & ~atomic)
    )
    sends = connected & kept.active & ~kept.responding
    h.invariant("goes on with a send", ~sends | (entered & ~requests))

    # The visit at work
    h.invariant("legal", inside.legal_state() & commands.legal_state())
    h.invariant("of a message", ~told | inside.in_state("MESSAGE", "BARE_MESSAGE"))
    terminates = inside.in_state("TERMINATE_CONTEXT", "TERMINATE_LOAD", "TERMINATE_POSITION")
    terminates |= inside.in_state("BARE_MESSAGE") & now.terminating
    others = ~inside.in_state("IDLE", "COMMAND") & ~terminates
    h.invariant("Terminate", ~terminates | (now.terminating & ~now.begins_atomic))
    h.invariant("no Terminate", ~others | ~now.terminating)
    h.invariant("asked about it", ~others | (choose.asked == choose.qp))
    h.invariant("asked before", ~others | inside.in_state("ADDRESS") | (pop_qp == choose.asked))
    command_waits = commands.in_state("CONTEXT") | inside.in_state("COMMAND")
    h.invariant("command", command_waits & (~inside.in_state("COMMAND") | choose.qp_command.valid))
    h.invariant("its QP", ~inside.in_state("COMMAND") | (choose.qp == choose.qp_command.p.qp))
    storing, restarts = completes.signal("storing"), commands.in_state("STORE")
    h.invariant("stores", storing == h.past(handed | begun))
    h.invariant("one at a time", ~(storing & ~commands.in_state("CONTEXT")))
    strobes = complete.push | complete.pop | complete.pop_inbound
    h.invariant("strobes", ~strobes | storing)
    h.invariant("ended", ~(complete.pop | complete.pop_inbound) | ~complete.followed.active)
    h.invariant("of its QP", ~storing | (pop_qp == choose.qp))
    h.invariant("told", ~storing | told | inside.in_state("IDLE"))
    h.invariant("anew", ~restarts | (Value.cast(complete.followed.active) == 0))
    h.invariant("anew, done", ~restarts | (complete.followed.done == 0))
    read = Value.cast(contexts.progress) == Value.cast(word)
    reads = inside.in_state("CONTEXT", "QUEUES", "CHOOSE", "AGAIN") & ours
    h.invariant("read", ~reads | read)
    chosen = inside.in_state("MESSAGE", "BARE_MESSAGE", "ATOMIC_ANSWER") & ours & ~terminates
    known = inside.in_state("QUEUES", "CHOOSE") & ours
    same = Value.cast(now.progress) == Value.cast(word)
    h.invariant("known", ~(known | (chosen & ~told & ~storing)) | same)
    h.invariant("connected", ~((inside.in_state("CHOOSE", "AGAIN") & ours) | chosen) | connected)
    runs_soon, runs = inside.signal("in_groups", 0), inside.signal("chosen", 0)
    h.invariant("runs soon", ~(inside.in_state("CONTEXT") & ours & runs_soon) | connected)
    h.invariant("runs", ~(looks & runs) | connected)
    is_request = inside.signal("is_rdma_read") | inside.signal("is_atomic")
    looked = is_request == (
        (now.entry.opcode == SendOpcode.RDMA_READ) | (now.entry.opcode == SendOpcode.ATOMIC)
    )
    h.invariant("looked at", ~chooses | looked)
    h.invariant("waits", ~chooses | (inside.signal("inbound_waits") == level))
    h.invariant("some wait", ~chooses | ~waits | level)
    h.invariant("has inbound", ~chooses | ~inside.signal("has_inbound") | level)
    h.invariant("may ask", ~chooses | (inside.signal("request_allowed") == allowed))
    has_unit = inside.signal("has_unit")
    is_it = entered & (Value.cast(opcode) == Value.cast(now.entry.opcode))
    h.invariant("entry", ~chooses | ~has_unit | is_it)
    h.invariant("its entry", ~chooses | ~entered | has_unit)
    before = chosen & ~told & ~storing
    answers = now.begins_atomic | now.answers_atomic
    h.invariant("responds", ~(before & now.responding) | (waits & (answers == atomic)))
    asks_now = now.is_read | now.is_atomic
    h.invariant("sends", ~(before & ~now.responding) | (entered & (asks_now == requests)))
    h.invariant("inline", ~chosen | (~(asks_now | now.answers_atomic) | now.inline))
    h.invariant("asks", ~(chosen & asks_now) | (~now.responding & allowed & ~now.progress.active))
    h.invariant(
        "begins",
        ~(chosen & now.begins_atomic)
        | (~now.progress.active & (now.remaining == ATOMIC_OCTETS) & (now.progress.done == 0)),
    )
    h.invariant("of an atomic", ~(chosen & answers) | now.responding)
    h.invariant("one kind", ~chosen | ~(now.begins_atomic & now.answers_atomic))


MODULE = "stagecoach.gateware.rdmap.transmit"

PROPERTIES = (
    Property(
        "rdmap.transmit.choose.TransmitChoose",
        "an atomic that begins is the oldest request, of 8 bytes, and what is popped is there",
        in_harness(_progress),
        mutations=(
            Mutation(
                f"{MODULE}.complete",
                "self.pop_inbound.eq(self.handed & self.last & message.responding)",
                "self.pop_inbound.eq(self.handed & self.last)",
            ),
            Mutation(
                f"{MODULE}.choose", "(~(is_read | is_atomic) | request_allowed)", "(is_read | 1)"
            ),
            Mutation(f"{MODULE}.choose", "with m.If(respond & ~active):", "with m.If(active):"),
            Mutation(
                f"{MODULE}.choose",
                "begins_atomic.eq(respond & head.atomic & ~atomic_begun)",
                "begins_atomic.eq(respond & ~atomic_begun)",
            ),
            Mutation(f"{MODULE}.choose", "can_respond.eq(has_inbound & ", "can_respond.eq(1 & "),
            Mutation(
                f"{MODULE}.complete",
                "Mux(last | begins_atomic, 0, progress.done + piece.payload)",
                "progress.done + piece.payload",
            ),
        ),
        mutant_cycles=11,
        depth=1,
        reached=6,
    ),
)
