"""What a QP took of a shared ring is its own until its message ends; a limit is told once.

One QP, any, and one of its words are followed, or one ring; what happens to the others is free.
The consumer keeps to the rules of its port.
"""

from amaranth.hdl import Signal, Value

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import QpCommandKind
from stagecoach.gateware.queues.shared_entries import LOOKUP, SharedEntries
from stagecoach.hw.formal.harness import Harness, Inside
from stagecoach.hw.formal.property import Mutation, Property, in_harness

CONFIG = RnicConfig(qps=2)
WORDS = 2


def _block(h: Harness) -> tuple[SharedEntries, Inside]:
    """The block, and what both properties assume of its environment."""
    shared = SharedEntries(CONFIG, WORDS)
    inside = h.block(shared)
    entries = shared.entries
    uses = entries.pop | entries.keep
    h.assume(h.held(shared.qp_command))
    h.assume(~(entries.pop & entries.keep))
    h.assume(entries.popping == entries.pop)
    h.assume(~uses | ~(h.past(uses) | h.past(h.past(uses))))
    h.assume(~uses | ~h.past(shared.delivered.valid))
    return shared, inside


def _kept(h: Harness) -> None:
    m = h.m
    shared, inside = _block(h)
    entries, rings, command = shared.entries, shared.rings, shared.qp_command
    qp = h.constant(CONFIG.qp_bits, "qp_followed")
    word = h.constant(range(WORDS), "word_followed")
    used = Signal()  # the QP was created: memories keep their content over a reset
    creates = Signal()
    is_create = command.p.kind == QpCommandKind.CREATE
    m.d.comb += creates.eq(command.valid & command.ready & is_create & (command.p.qp == qp))
    selected = entries.select == qp
    uses = (entries.pop | entries.keep) & selected
    any_use = entries.pop | entries.keep

    # What the QP takes from, and what it has taken
    is_shared, ring = Signal(), Signal(CONFIG.qp_bits)
    held, is_open, index = Signal(), Signal(), Signal(16)
    takes = uses & is_shared & ~held
    delivers = shared.delivered.valid & (shared.delivered.qp == qp)
    delivered = h.past(delivers)
    with m.If(takes):
        m.d.sync += index.eq(rings.index)
    with m.If(uses & is_shared):
        m.d.sync += [held.eq(entries.keep), is_open.eq(1)]
    with m.Elif(delivered):
        m.d.sync += is_open.eq(0)
    with m.If(creates):
        m.d.sync += [
            used.eq(1),
            is_shared.eq(command.p.shared),
            ring.eq(Value.cast(qp)),
            held.eq(0),
            is_open.eq(0),
        ]
        with m.If(command.p.shared):
            m.d.sync += ring.eq(command.p.ring)
    # A message is delivered before the next one of its QP takes an entry.
    h.assume(~delivers | ~(held | uses))

    # Whether `coming` is the ring of the QP, and what of it is known so many cycles later
    known = Signal()
    with m.If(entries.stays):
        m.d.sync += known.eq(known & ~creates)
    with m.Else():
        m.d.sync += known.eq((entries.arriving == qp) & used & ~creates)
    later = [known]
    for cycle in range(LOOKUP + 1):
        stays_so = Signal(name=f"known_{cycle}")
        m.d.comb += stays_so.eq(h.past(later[-1] & ~creates))
        later.append(stays_so)
    stood = h.past(selected) & h.past(h.past(selected))
    h.assume(~uses | (later[1] & later[2] & later[3] & stood))

    # The word of the oldest entry of its ring, as the QP was shown it
    shown, value = Signal(), Signal(64)
    asked = h.past(h.past(selected & (entries.word_address == word)))
    was_held = h.past(h.past(held))
    busy = any_use | h.past(any_use) | h.past(h.past(any_use))
    with m.If(asked & ~was_held & ~busy):
        m.d.sync += [shown.eq(later[3] & is_shared), value.eq(rings.word)]
    with m.If(creates | (any_use & ~held) | (uses & entries.pop)):
        m.d.sync += shown.eq(0)
    with m.If(uses & entries.keep):
        m.d.sync += shown.eq(1)
    h.assume(~(uses & entries.keep & is_shared) | shown)

    # What the consumer is shown, and what the rings are told
    current = Signal()
    recent = h.past(uses) | h.past(h.past(uses))
    m.d.comb += current.eq(later[3] & h.past(h.past(selected)) & ~recent)
    own = current & held
    h.check("held", ~own | ((entries.level == 1) & (entries.posted == 1)))
    h.check("not shared when held", ~own | ~(entries.shared | entries.failed))
    h.check("index", ~own | (entries.index == index))
    h.check("word", ~(own & asked) | (entries.word == value))
    others = current & ~held
    same = (entries.level == rings.level) & (entries.posted == rings.posted)
    same &= (entries.index == rings.index) & (entries.word == rings.word)
    h.check("the ring as it is", ~others | same)
    h.check("shared", ~others | (entries.shared == is_shared))
    h.check("failed", ~others | (entries.failed == (rings.failed & is_shared)))
    h.check("which ring", ~current | (h.past(h.past(rings.select)) == ring))
    popped = ~held & (entries.pop | is_shared)
    h.check("pop", ~uses | (rings.pop == popped))
    h.check("popping", ~uses | (rings.popping == popped))
    told = (rings.select == ring) & h.past(rings.select == ring)
    told &= h.past(h.past(rings.coming == ring))
    h.check("pop of which ring", ~uses | told)
    queried = h.past(h.past((shared.query_qp == qp) & used))
    h.check("taken", ~queried | (shared.taken == h.past(h.past(is_open))))
    numbered = queried & shared.taken
    h.check("taken index", ~numbered | (shared.taken_index == h.past(h.past(index))))
    h.cover("kept and popped", uses & entries.pop & held)

    # The tables, and the registers after them; those of the source that have no name by number
    source = h.word(inside.memory("sources"), qp)
    row = h.word(inside.memory("taken"), qp)
    h.invariant("held is open", ~held | (is_open & is_shared & shown & used))
    h.invariant("known", ~known | used)
    h.invariant("open is shared", ~is_open | (is_shared & used))
    h.invariant("source", ~used | ((source.shared == is_shared) & (source.ring == ring)))
    h.invariant("row", ~used | ((row.held == held) & (row.open == is_open)))
    h.invariant("row index", ~used | ~is_open | (row.index == index))
    coming = inside.view("$signal", source.shape(), 0)
    now = inside.view("selected", source.shape())
    for name, there, seen in (("coming", known, coming), ("selected", later[1], now)):
        right = (seen.shared == is_shared) & (seen.ring == ring)
        h.invariant(name, ~there | right)
    h.invariant("asked", ~later[2] | (inside.signal("asked") == is_shared))
    h.invariant("shared here", ~later[3] | (inside.signal("shared") == is_shared))
    h.invariant("shared far", ~later[3] | (inside.signal("$signal", 1) == is_shared))
    mine = inside.view("mine", row.shape())
    reads = [port.data for port in inside.memory("taken").read_ports]
    for port, one in (("row read", reads[0]), ("query read", reads[1])):
        about = selected if one is reads[0] else shared.query_qp == qp
        there = h.past(about & used)
        good = (one.held == h.past(held)) & (one.open == h.past(is_open))
        h.invariant(port, ~there | good)
        h.invariant(f"{port} index", ~there | ~h.past(is_open) | (one.index == h.past(index)))
    there = h.past(h.past(selected & used))
    h.invariant("mine", ~there | (mine.held == was_held))
    h.invariant("mine far", ~there | (inside.signal("far_held") == was_held))
    opened = h.past(h.past(is_open))
    h.invariant("mine index", ~(there & opened) | (mine.index == h.past(h.past(index))))
    kept = h.word(inside.memory("words"), Value.cast(qp) * WORDS + word)
    h.invariant("kept word", ~(shown & is_shared & used) | (kept == value))
    read, *_ = inside.memory("words").read_ports
    of_held = h.past(selected & (entries.word_address == word) & held)
    h.invariant("word read", ~of_held | (read.data == h.past(value)))
    h.invariant(
        "word here", ~(asked & was_held) | (inside.signal("held_word") == h.past(h.past(value)))
    )


def _limits(h: Harness) -> None:
    m = h.m
    shared, inside = _block(h)
    rings, command, reached = shared.rings, shared.qp_command, shared.reached
    ring = h.constant(CONFIG.qp_bits, "ring_followed")
    mine = command.valid & command.ready & (command.p.qp == ring)
    makes = mine & (command.p.kind == QpCommandKind.RING_CREATE)
    bounds = mine & (command.p.kind == QpCommandKind.RING_LIMIT)
    pops = rings.pop & inside.signal("shared") & (rings.select == ring)

    # Its limit, and the number of the entry that is popped next; entries before the last pop
    used, limit, number = Signal(), Signal(16), Signal(16)
    there = h.past(rings.posted)
    below, passed = Signal(), Signal()
    compares = h.past(h.past(pops))
    m.d.comb += [
        below.eq(compares & (h.past(there) <= h.past(limit))),
        passed.eq(bounds & ((command.p.producer - number)[:16] < command.p.limit)),
    ]
    with m.If(pops):
        m.d.sync += number.eq(rings.index + 1)
    with m.If(below):
        m.d.sync += limit.eq(0)
    with m.If(bounds):
        m.d.sync += limit.eq(command.p.limit)
        with m.If(passed):
            m.d.sync += limit.eq(0)
    with m.If(makes):
        m.d.sync += [used.eq(1), limit.eq(0), number.eq(0)]
    h.assume(used | ~(pops | bounds))

    told = reached.valid & (reached.qp == ring)
    h.check("told", ~h.started | ~used | (told == (h.past(below) | h.past(passed))))
    h.check("no limit after it", ~h.past(below | passed) | (limit == 0))
    h.cover("reached by a pop", told & h.past(below))
    h.cover("reached by a command", told & h.past(passed))

    h.invariant("limit", ~used | (h.word(inside.memory("limits"), ring) == limit))
    h.invariant("number", ~used | (h.word(inside.memory("numbers"), ring) == number))
    # `there` of the source has no name of its own.
    for name, strobe in (("popped", h.past(pops)), ("compared", compares)):
        one = inside.signal(f"{name}__valid") & (inside.signal(f"{name}__qp") == ring)
        h.invariant(name, one == strobe)
    h.invariant("there", ~h.past(pops) | (inside.signal("$signal", 2) == there))
    h.invariant("there then", ~compares | (inside.signal("there_then") == h.past(there)))
    h.invariant("bound", ~(compares & used) | (inside.signal("bound") == h.past(limit)))


def _mutations(*changes: tuple[str, str]) -> tuple[Mutation, ...]:
    module = "stagecoach.gateware.queues.shared_entries"
    return tuple(Mutation(module, *change) for change in changes)


PROPERTIES = (
    Property(
        "queues.shared_entries.SharedEntries",
        "a QP keeps what it took of a shared ring, with its words, until its message ends",
        in_harness(_kept),
        mutations=_mutations(
            ("taken_write.data.held.eq(entries.keep)", "taken_write.data.held.eq(0)"),
            ("shared & ~mine.held & ~Cat(ended).any()", "shared & ~mine.held"),
            ("shared & ~mine.held & ~Cat(ended).any()", "shared & ~Cat(ended).any()"),
            (
                "taken_write.data.index.eq(Mux(mine.held, mine.index, rings.index))",
                "taken_write.data.index.eq(rings.index)",
            ),
            ("entries.pop & ~mine.held |", "entries.pop |"),
            ("~far_held & (", "("),
            ("taken_write.data.open.eq(1)", "taken_write.data.open.eq(entries.keep)"),
            ("with m.If(~entries.stays):", "with m.If(1):"),
        ),
        depth=4,
        reached=4,
    ),
    Property(
        "queues.shared_entries.SharedEntries",
        "a limit is told when a pop leaves fewer entries, or at once, and only once",
        in_harness(_limits),
        mutations=_mutations(
            ("there_then <= bound", "there_then < bound"),
            ("& ~uses & ~popped.valid)", "& ~uses)"),
            ("Mux(bounds & ~passes, command.limit, 0)", "Mux(bounds, command.limit, 0)"),
            ("Mux(makes, 0, rings.index + 1)", "Mux(makes, 0, rings.index)"),
            ("makes | bounds | reaches)", "makes | bounds)"),
        ),
        depth=4,
        reached=6,
    ),
)
