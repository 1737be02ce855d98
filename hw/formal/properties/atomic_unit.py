"""The commands and words of `AtomicUnit` for host memory hold until they are taken.

They are made of what memories keep of the operations under way, so the proof follows all of them,
two here: an operation stands at its entry until its write has ended. Of the environment: words come
for reads (`ReadEngine`), and `done` when a command and its word were taken (`WriteEngine`).
"""

from typing import Any

from amaranth.hdl import Array, Mux, Signal, Value

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.dma.bursts import WORD_BITS
from stagecoach.gateware.layouts import OPERANDS, AtomicOperation
from stagecoach.gateware.rdmap.atomic.arithmetic import LATENCY
from stagecoach.gateware.rdmap.atomic.unit import AtomicUnit
from stagecoach.hw.formal.harness import Harness, Inside
from stagecoach.hw.formal.invariants import invariants, needs
from stagecoach.hw.formal.property import Mutation, Property, in_harness
from stagecoach.hw.interface.wire import ATOMIC_OCTETS

NAME = "rdmap.atomic.unit.AtomicUnit"
OPERATIONS = 2
NUMBER_BITS = OPERATIONS.bit_length()


def _holds(h: Harness) -> None:
    _unit(h)


def _unit(h: Harness) -> tuple[AtomicUnit, Inside]:
    """A unit whose streams are asserted to hold, with what is known of its machines."""
    dut = AtomicUnit(RnicConfig(qps=2), operations=OPERATIONS)
    inside = h.block(dut)
    read, write = dut.read, dut.write

    # What was taken of the unit, and has not ended
    reads, commands, words = (
        Signal(4, name=name) for name in ("reads", "commands_taken", "words_taken")
    )
    h.m.d.sync += [
        reads.eq(reads + _moves(read.command) - _moves(read.data)),
        commands.eq(commands + _moves(write.command) - write.done),
        words.eq(words + _moves(write.data) - write.done),
    ]
    h.assume(~read.data.valid | (reads != 0))
    h.assume(~write.done | ((commands != 0) & (words != 0)))

    h.check("read command", h.held(read.command))
    h.check("write command", h.held(write.command))
    h.check("write data", h.held(write.data))
    h.cover("waits to read", h.past(read.command.valid & ~read.command.ready) & h.started)

    accept, compute, settle, respond = (
        inside.child(name) for name in ("accept", "compute", "settle", "respond")
    )
    accepts, computes, settles = accept.in_state, compute.in_state, settle.in_state
    invariants(h, NAME, inside)
    for name, condition in needs(h, "rdmap.atomic.accept.AtomicAccept", accept):
        h.check(f"accept {name}", condition)

    # How far the operations are, in numbers from the oldest one that is not answered
    accepted, computed = accept.ports.accepted, compute.ports.computed
    settled, answered = settle.ports.settled, respond.ports.answered
    number = compute.signal("number")
    again, failed_under = accept.ports.again, settle.ports.failed_under
    taken, done = _from(answered, accepted), _from(answered, computed)
    ended = _from(answered, settled)
    h.invariant("in order", (ended <= done) & (done <= taken) & (taken <= OPERATIONS))
    room = taken < OPERATIONS
    h.invariant("ready", ~dut.request.ready | (accepts("IDLE") & room))
    h.invariant("room", ~accepts("ASK", "SEARCH") | room)

    # One starts over when nothing else is under way
    begun = computes("LOOK", "BEFORE", "AGE", "VALUE", "COMPUTE", "COMPUTED")
    waits = settles("AGAIN")
    due, responded = settle.signal("responses_due"), settle.signal("again_responded")
    h.invariant("failed", ~again | failed_under)
    h.invariant("failed waits", ~failed_under | again | waits)
    h.invariant("waits failed", ~waits | (failed_under & (done != ended)))
    h.invariant("looks", ~settles("LOOK", "SETTLE") | (done != ended))
    h.invariant("alone", ~again | ((taken == done) & (done != ended)))
    h.invariant("not yet", ~accepts("RECALL", "RECALLED") | (waits & ~begun))
    h.invariant("once", ~(again & ~waits) | ~begun)
    alone = accept.signal("alone")
    h.invariant("alone before", ~(alone & ~again & accepts("IDLE")) | (taken == done))

    # Words of reads that come, those of operations that were not begun
    coming = reads + read.command.valid
    not_begun = taken - done - begun + accepts("SEARCH")
    again_comes = accepts("AGAIN") & waits & ~begun
    h.invariant("words come", coming == Mux(again, again_comes, not_begun)[: len(coming)])
    expects = compute.signal("expects")
    over = h.past(again) & ~again
    h.invariant("over", ~over | accepts("IDLE"))
    h.invariant("expects", ~(computes("IDLE") & expects) | again | (taken != done) | over)

    # The one that is computed
    at = _from(answered, number)
    writes = write.command.valid | write.data.valid
    h.invariant("begun", ~begun | (at == Mux(again, ended, done)))
    h.invariant("begun is accepted", ~begun | again | (done != taken))
    last = at == Mux(again, ended, done - 1)
    h.invariant("written", ~writes | (last & (done != ended)))
    h.invariant("not answered", ~writes | (at >= ended))

    # Writes under way, and those whose responses wait, are of operations that are not settled
    h.invariant("commands", due == commands + write.command.valid)
    h.invariant("words", due == words + write.data.valid)
    outcomes = compute.memory("outcomes")
    oldest, *_ = outcomes_settled = [
        h.word(outcomes, (settled + place)[:-1]) for place in range(OPERATIONS)
    ]
    wrote = Value.cast(
        sum((done - ended > place) & each.wrote for place, each in enumerate(outcomes_settled))
    )
    responses = settle.child("responses").ports.level + settle.signal("w_en")
    h.invariant("writes that count", wrote == responses + due + (again & responded))
    h.invariant("its own write", ~(again & ~waits) | (due + responded == oldest.wrote))
    h.invariant("none before", ~(again & waits) | ~(responded | (due != 0)))
    h.invariant("none due", ~(alone & ~again & accepts("IDLE")) | (due == 0))
    h.invariant("wrote nothing", ~waits | ~oldest.wrote)
    h.invariant("used nothing", ~(again & ~waits) | ~oldest.stored | oldest.wrote)
    uses = compute.signal("uses") & computes("VALUE", "COMPUTE", "COMPUTED")
    h.invariant("uses nothing", ~(again & uses))
    seen = Value.cast(settle.signal("outcome")) == Value.cast(oldest)
    h.invariant("seen", ~settles("LOOK", "SETTLE") | seen)
    h.invariant("wrote", ~writes | h.word(outcomes, number[:-1]).wrote)

    # What it is computed of
    waiting = computes("LOOK", "BEFORE", "AGE", "VALUE")
    h.invariant("no step yet", ~waiting | (compute.signal("steps") == 0))
    operands = Value.cast(h.word(accept.memory("operands"), number[:-1]))
    given = Value.cast(compute.signal("given"))
    knows = (begun & ~computes("LOOK")) | writes
    h.invariant("given", ~knows | (given == operands))
    _stages(h, compute, computes("COMPUTE"), computes("COMPUTED") | writes)
    return dut, inside


def _aims(h: Harness) -> None:
    """Of each place: the target of the operation that it took last, and whether that has written.

    What is known of the machines is proved with it.
    """
    dut, inside = _unit(h)
    places = range(OPERATIONS)
    targets = [Signal(64, name=f"target_{place}") for place in places]
    wrote = [Signal(name=f"wrote_{place}") for place in places]
    accept, compute = inside.child("accept"), inside.child("compute")
    accepts, computes = accept.in_state, compute.in_state
    accepted, number = accept.ports.accepted, compute.signal("number")
    taken, entry, begins = _moves(dut.request), accepted[:-1], compute.ports.write_begins
    for place in places:
        with h.m.If(taken & (entry == place)):
            h.m.d.sync += [targets[place].eq(dut.request.p.address), wrote[place].eq(0)]
        with h.m.If(begins & (number[:-1] == place)):
            h.m.d.sync += wrote[place].eq(1)
    # `TransmitIssue` asks for none that is not aligned (`transmit_issue`).
    h.assume(~dut.request.valid | (dut.request.p.address[:WORD_BITS] == 0))
    command, target = dut.write.command, Array(targets)[number[:-1]]
    octets = command.p.octets == ATOMIC_OCTETS
    h.check("only its target", ~command.valid | (octets & (command.p.address == target)))
    h.check("once", ~begins | ~Array(wrote)[number[:-1]])
    h.cover("writes", begins)

    addresses = accept.child("addresses")
    table, own = addresses.memory("table"), addresses.signal("own")
    answered = inside.child("respond").ports.answered
    comes = accepts("ASK", "SEARCH")
    word, now = addresses.ports.word, Array(targets)[entry]
    h.invariant("word", ~accepts("ASK") | (word == now[WORD_BITS:]))
    h.invariant("own", ~comes | (own[: len(entry)] == entry))
    h.invariant("not yet written", ~comes | ~Array(wrote)[entry])
    h.invariant("keeps", addresses.signal("began") == accepts("ASK"))
    under_way = _from(answered, accepted) + accepts("SEARCH")
    for place in places:
        away = (place - answered)[: len(entry)]
        stands = h.word(table, place).word == targets[place][WORD_BITS:]
        h.invariant(f"stands {place}", (away >= under_way) | stands)
        h.invariant(f"aligned {place}", targets[place][:WORD_BITS] == 0)
        did = h.word(compute.memory("outcomes"), place).wrote
        computed = _from(answered, compute.ports.computed)
        counts = wrote[place] == (did & (away < computed))
        h.invariant(f"wrote {place}", (away >= under_way) | counts)
    aimed = computes("AGE"), computes("VALUE", "COMPUTE", "COMPUTED") | command.valid
    h.invariant("looks", ~computes("BEFORE") | (addresses.signal("number_0") == number[:-1]))
    h.invariant("selected", ~aimed[0] | (addresses.ports.selected == target[WORD_BITS:]))
    h.check("aims at its target", ~aimed[1] | (compute.signal("address") == target[WORD_BITS:]))


def _stages(h: Harness, compute: Inside, computes: Value, computed: Value) -> None:
    """What stands in the registers of `AtomicArithmetic` is made of operands that stand, too."""
    arithmetic = compute.child("arithmetic")
    given, value = compute.view("given", OPERANDS), compute.signal("value")
    adds, swaps, compares = (
        (given.operation == each).replicate(64)
        for each in (AtomicOperation.FETCH_ADD, AtomicOperation.SWAP, AtomicOperation.CMP_SWAP)
    )
    augend, addend, masked, total = (
        arithmetic.signal(name) for name in ("augend", "addend", "masked", "total")
    )
    steps = compute.signal("steps")
    first = (computes & (steps >= 1)) | computed
    second = (computes & (steps >= 2)) | computed
    h.invariant("steps", ~computes | (steps < LATENCY))
    h.invariant("augend", ~first | (augend == (value & ~given.mask & ~swaps)))
    h.invariant("addend", ~first | (addend == (given.data & ~given.mask & ~compares)))
    h.invariant("masked", ~first | (masked == ((value & adds ^ given.data) & given.mask)))
    h.invariant("total", ~second | (total == (augend + addend)[:64]))
    masked_2 = arithmetic.signal("masked_2")
    h.invariant("masked before", ~second | (masked_2 == masked))
    h.invariant("result", ~computed | (arithmetic.ports.result == (total ^ masked_2)))


def _moves(stream: Any) -> Value:
    return stream.valid & stream.ready


def _from(start: Value, number: Value) -> Value:
    return (number - start)[:NUMBER_BITS]


ACCEPT = "stagecoach.gateware.rdmap.atomic.accept"
COMPUTE = "stagecoach.gateware.rdmap.atomic.compute"

PROPERTIES = (
    Property(
        NAME,
        "streams hold until taken: read.command, write.command, write.data "
        f"({OPERATIONS} operations)",
        in_harness(_holds),
        mutations=(
            Mutation(
                ACCEPT,
                "with m.If(~command.valid):\n                    m.d.sync += [request",
                "with m.If(1):\n                    m.d.sync += [request",
            ),
            Mutation(
                COMPUTE, "with m.If(~command.valid & ~word.valid):", "with m.If(~word.valid):"
            ),
            Mutation(
                COMPUTE, "with m.If(~command.valid & ~word.valid):", "with m.If(~command.valid):"
            ),
        ),
        depth=1,
        covered=12,
    ),
    Property(
        NAME,
        "each operation writes once at most, and only the 8 bytes of its target "
        f"({OPERATIONS} operations)",
        in_harness(_aims),
        mutations=(
            Mutation(COMPUTE, "address.eq(self.selected)", "address.eq(0)"),
            Mutation(
                COMPUTE,
                "& arithmetic.will_write & ~read_failed)",
                "| arithmetic.will_write & ~read_failed)",
            ),
        ),
        depth=1,
        reached=1,
        mutant_cycles=3,
    ),
)
