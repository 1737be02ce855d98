"""Work requests of a QP leave the completer in the order in which they were posted.

One QP, any, is followed; what happens to the others is free. Beside the block stand the work
requests of that QP that are inside, and how many answers came that none of them has used.
"""

from itertools import pairwise
from typing import Any

from amaranth.hdl import Cat, Mux, Signal, Value

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpCommandKind
from stagecoach.gateware.queues.completer import SendCompleter
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import Mutation, Property, in_harness
from stagecoach.hw.interface.queue_entries import ANSWERED_OPERATIONS

CONFIG = RnicConfig(qps=2, pending_sends=4, read_queue_depth=2)
DEPTH = CONFIG.pending_sends
ANSWERS = max(DEPTH, CONFIG.read_queue_depth)
SLOT_BITS = DEPTH.bit_length() - 1

FAILED_CYCLES = 2
"""For which the bit of a QP may be set when its last completion rises."""


def _is_answered(item: Any) -> Value:
    """Whether a work request is an RDMA Read or atomic."""
    return Cat(item.opcode == each for each in ANSWERED_OPERATIONS).any()


def _same(one: Any, other: Any) -> Value:
    """Whether two work requests are the same, of whatever QPs."""
    names = ("index", "opcode", "signaled", "length")
    return Cat(getattr(one, name) == getattr(other, name) for name in names).all()


def _order(h: Harness) -> None:
    m = h.m
    completer = SendCompleter(CONFIG)
    inside = h.block(completer)
    sent, read_done, command = completer.sent, completer.read_done, completer.qp_command
    completion, retired = completer.completion, completer.retired
    payload = completion.payload
    qp = h.constant(CONFIG.qp_bits, "qp")
    for stream in (sent, read_done, command):
        h.assume(h.held(stream))

    # The work requests that are inside, the oldest one first, until they are retired.
    layout = Layouts(CONFIG).sent_item
    items = [Signal(layout, name=f"item_{number}") for number in range(DEPTH)]
    oldest = items[0]
    count, answers = Signal(range(DEPTH + 1)), Signal(range(ANSWERS + 1))
    told = Signal()  # the completion of the oldest one was taken
    cq = Signal(CONFIG.cq_bits)
    created = Signal()

    enters = sent.valid & sent.ready & (sent.payload.qp == qp)
    answer = read_done.valid & read_done.ready & (read_done.payload.qp == qp)
    completes = completion.valid & completion.ready & (payload.qp == qp)
    leaves = retired.valid & (retired.qp == qp)
    left = Signal.like(count)
    m.d.comb += left.eq(count - leaves)
    with m.If(leaves):
        m.d.sync += [new.eq(old) for new, old in pairwise(items)]
    for number, item in enumerate(items):
        with m.If(enters & (left == number)):
            m.d.sync += item.eq(sent.payload)
    m.d.sync += [
        count.eq(left + enters),
        answers.eq(answers + answer - (leaves & _is_answered(oldest))),
        told.eq((told | completes) & ~leaves),
    ]
    kind = command.payload.kind
    forgets = (kind == QpCommandKind.CREATE) | (kind == QpCommandKind.DESTROY)
    with m.If(command.valid & command.ready & (command.payload.qp == qp) & forgets):
        m.d.sync += [count.eq(0), answers.eq(0), told.eq(0), created.eq(1)]
        m.d.sync += cq.eq(command.payload.send_cq)
    asks = sent.valid & (sent.payload.qp == qp)
    h.assume(~asks | (created & (count < DEPTH)))
    answered = read_done.valid & (read_done.payload.qp == qp)
    h.assume(~answered | (created & (answers < ANSWERS)))

    # What the ports show.
    its_own = (payload.index == oldest.index) & (payload.length == oldest.length)
    its_own &= (payload.opcode == oldest.opcode) & (payload.cq == cq) & (payload.flags == 0)
    due = (count != 0) & oldest.signaled & ~told
    h.check("completion of the oldest one, once", ~completes | (due & its_own))
    whole = (count != 0) & (told == oldest.signaled)
    h.check("retired when it is complete", ~leaves | whole)
    h.check("an answer for each", ~leaves | ~_is_answered(oldest) | (answers != 0))

    failed = Signal(range(FAILED_CYCLES + 3))  # cycles for which the bit of the QP has been set
    with m.If(~completer.failed.bit_select(qp, 1)):
        m.d.sync += failed.eq(0)
    with m.Elif(failed != FAILED_CYCLES + 2):
        m.d.sync += failed.eq(failed + 1)
    rises = completion.valid & ~h.past(completion.valid) & (payload.qp == qp)
    h.check("no completion of a QP that failed", ~rises | (failed <= FAILED_CYCLES))
    in_silence = leaves & ~oldest.signaled
    h.check("none without a completion", ~in_silence | (failed <= FAILED_CYCLES + 1))

    owed = Signal()
    takes = (sent.valid & sent.ready) | (read_done.valid & read_done.ready)
    with m.If(takes | completer.finished):
        m.d.sync += owed.eq(takes)
    h.check("one at a time", ~takes | (~owed & ~(sent.ready & read_done.ready)))
    h.check("finished once for each", ~completer.finished | (owed & ~completion.valid))

    # What the block keeps of the QP: the row in the memory, or `state` while it is changed.
    states, store = inside.memory("states"), inside.memory("items")
    read_row, read_item = states.read_ports[0], store.read_ports[0]
    state = inside.view("state", states.shape)
    arrived = inside.view("item", store.shape)
    item_arrived, read_arrived = inside.signal("item_arrived"), inside.signal("read_arrived")
    number_of_it = inside.signal("qp")
    here = number_of_it == qp
    at = inside.in_state
    works = at("ENTER", "TAKE", "DECIDE", "RETIRE", "STORE")
    new_item = here & at("LOAD", "ENTER") & item_arrived
    new_answer = here & at("LOAD", "ENTER") & read_arrived
    gone = here & (at("RETIRE") | retired.valid)
    used = gone & _is_answered(oldest)
    row = h.word(states, qp)

    def holds(kept: Any) -> Value:
        inside_it = (kept.tail - kept.head)[: SLOT_BITS + 1]
        right = inside_it == (count - new_item - gone)[: SLOT_BITS + 1]
        return right & (kept.reads == answers - new_answer - used) & (kept.cq == cq)

    h.invariant("row", ~created | (here & (works | at("FORGET"))) | holds(row))
    h.invariant("state", ~created | ~(here & works) | holds(state))
    h.invariant("cq", ~created | ~(here & at("FORGET")) | (state.cq == cq))
    nothing = (count == 0) & (answers == 0)
    h.invariant("nothing", (created & ~(here & at("FORGET"))) | nothing)
    h.invariant("created", ~created | ~at("FORGET_ALL"))
    h.invariant("at most", (count <= DEPTH) & (answers <= ANSWERS))
    h.invariant("new", (~new_item | (count != 0)) & (~new_answer | (answers != 0)))
    h.invariant("gone", ~gone | ((count != 0) & (~used | (answers != 0))))
    h.invariant("told", ~told | gone)
    head = Mux(here & works, state.head, row.head)
    for number, item in enumerate(items):
        kept = h.word(store, Cat((head - gone + number)[:SLOT_BITS], qp))
        last = new_item & (number + 1 == count)
        right = Mux(last, _same(item, arrived), _same(item, kept))
        h.invariant(f"item {number}", (number >= count) | (right & (item.qp == qp)))

    # One step after the other.
    h.invariant("legal", inside.legal_state())
    one = item_arrived ^ read_arrived
    h.invariant("one arrives", ~at("LOOK_UP", "LOAD", "ENTER") | one)
    stands = sent.valid & _same(sent.payload, arrived) & (sent.payload.qp == number_of_it)
    h.invariant("it stands", ~at("LOOK_UP") | ~item_arrived | stands)
    stands = read_done.valid & (read_done.payload.qp == number_of_it)
    h.invariant("an answer stands", ~at("LOOK_UP") | ~read_arrived | stands)
    h.invariant("a command stands", ~at("COMMAND") | command.valid)
    h.invariant("owed", owed == (at("LOAD") | works | completer.finished))
    h.invariant("where it finishes", ~completer.finished | at("IDLE"))
    row_of_it = h.word(states, number_of_it)
    h.invariant("row read", ~at("LOAD") | (Value.cast(read_row.data) == Value.cast(row_of_it)))
    first = h.word(store, Cat(state.head[:SLOT_BITS], number_of_it))
    # Of another QP, which may have too many items inside, nothing is known.
    h.invariant(
        "item read", ~(here & at("TAKE")) | (Value.cast(read_item.data) == Value.cast(first))
    )
    h.invariant("not empty", ~(here & at("TAKE", "DECIDE")) | (state.head != state.tail))
    h.invariant("oldest", ~(here & at("DECIDE")) | _same(oldest, arrived))
    decides = at("DECIDE")
    h.invariant("is answered", ~decides | (inside.signal("is_read") == _is_answered(arrived)))
    h.invariant("no answers", ~decides | (inside.signal("no_reads") == (state.reads == 0)))
    h.invariant("where it completes", ~completion.valid | at("RETIRE"))
    h.invariant("where it retires", ~retired.valid | at("TAKE", "IDLE"))
    its_qp = payload.qp == number_of_it
    h.invariant("its QP", ~(at("RETIRE") | retired.valid) | its_qp)
    h.invariant("completes", ~(here & completion.valid) | (due & its_own))
    h.invariant("complete", ~(gone & ~completion.valid) | whole)
    in_time = failed <= FAILED_CYCLES
    h.invariant("in time", ~(here & at("RETIRE") & ~completion.valid & ~told) | in_time)


PROPERTIES = (
    Property(
        "queues.completer.SendCompleter",
        "work requests of a QP complete and leave in posting order, each once, as they were sent; "
        "answered ones when answers came; none of a QP that failed",
        in_harness(_order),
        mutations=tuple(
            Mutation("stagecoach.gateware.queues.completer", *change)
            for change in (
                ("waits.eq(qp_failed | (is_read & no_reads))", "waits.eq(is_read & no_reads)"),
                ("waits.eq(qp_failed | (is_read & no_reads))", "waits.eq(qp_failed)"),
                ("completion.valid.eq(item.signaled)", "completion.valid.eq(1)"),
                ("with m.If(~completion.valid):", "with m.If(completion.ready):"),
                ("m.d.sync += self.finished.eq(1)", "m.d.sync += self.finished.eq(0)"),
                ("m.d.comb += states_write.en.eq(1)", "m.d.comb += states_write.en.eq(0)"),
                ("items_write.addr.eq(Cat(state.tail[:slot_bits], qp))", "items_write.addr.eq(qp)"),
                ("completion.payload.cq.eq(state.cq)", "completion.payload.cq.eq(0)"),
                ("self.sent.ready.eq(item_arrived)", "self.sent.ready.eq(1)"),
            )
        ),
        depth=3,
        mutant_cycles=10,
    ),
)
