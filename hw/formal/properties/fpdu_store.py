"""What is read out of the FPDU store was committed, and stands there as it was written.

One word of the store, any, is followed. The deframer keeps to the port's rules: it commits what it
has written, and not in the cycle of a rewind, and it writes for 8 cycles at most after `full` rose.
Only what is committed is freed.
"""

from amaranth.hdl import Cat, Mux, Signal

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.mpa.fpdu_store import MARGIN_WORDS, FpduStore
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import Mutation, Property, in_harness

CONFIG = RnicConfig(qps=4)
# Smaller than a device may have: the words at reset are a list for z3.
object.__setattr__(CONFIG, "fpdu_store_octets", 512)
WORDS = CONFIG.fpdu_store_octets // 8
LATE = 8
"""Cycles after `full` rose in which words may still come."""


def _read(h: Harness) -> None:
    m = h.m
    store = FpduStore(CONFIG)
    inside = h.block(store)
    freed = inside.signal("freed")
    bits = len(freed)

    # Distances from what was freed: of the word after the last one, of what follows the last
    # committed one, and of the word that is followed.
    followed = h.constant(bits, "followed")
    used, verified, place = Signal(bits), Signal(bits), Signal(bits)
    m.d.comb += [
        used.eq(store.writer.address - freed),
        verified.eq(inside.signal("verified") - freed),
        place.eq(followed - freed),
    ]
    content = Signal(64)
    with m.If(store.writer.write & ~store.writer.rewind & (store.writer.address == followed)):
        m.d.sync += content.eq(store.writer.word)
    committed = place < verified

    since = Signal(range(LATE + 1))  # cycles that `full` was high before this one
    with m.If(~store.writer.full):
        m.d.sync += since.eq(0)
    with m.Elif(since != LATE):
        m.d.sync += since.eq(since + 1)
    commit_end = (store.writer.commit_end - freed)[:bits]
    free_end = (store.free_end - freed)[:bits]
    h.assume(~store.writer.commit | ((commit_end >= verified) & (commit_end <= used)))
    h.assume(~(store.writer.commit & store.writer.rewind))
    h.assume(~store.free | (free_end <= verified))
    h.assume(~store.writer.write | ~store.writer.full | (since < LATE))

    # It was committed when the placer asked for it, and still is.
    asked = Signal(3)
    m.d.sync += asked.eq(Cat(store.address == followed, asked) & committed.replicate(4))
    arrived = asked[2] & committed
    h.check("what is read is what was written", ~arrived | (store.data == content))
    overwrites = store.writer.write & ~store.writer.rewind & (store.writer.address == followed)
    h.check("nothing committed is written over", ~overwrites | ~committed)

    rewound = h.past(store.writer.rewind)
    h.check("a rewind forgets what is not committed", ~rewound | (used == verified))

    memory = inside.memory("memory")
    (write,), (read, *_) = memory.write_ports, memory.read_ports
    kept = h.word(memory, followed)
    coming = write.en & (write.addr == followed)
    h.invariant("content", (place >= used) | (Mux(coming, write.data, kept) == content))
    h.invariant("asked", ~(asked[0] & committed) | (read.addr == followed))
    h.invariant("it is there", ~(asked[0] & committed) | ~coming)
    h.invariant("read", ~(asked[1] & committed) | (read.data == content))

    h.invariant("committed was written", verified <= used)
    # `used` of the store is that of the cycle before, and `full` that of the one before it.
    late, limit = inside.signal("used"), WORDS - MARGIN_WORDS
    h.invariant("used", used <= late + 1)
    h.invariant("room", store.writer.full | (late <= limit))
    h.invariant("room while full", ~store.writer.full | (used <= limit + 2 + since))
    h.invariant("cycles", since <= LATE)


PROPERTIES = (
    Property(
        "mpa.fpdu_store.FpduStore",
        "what is read was committed, and stands there as it was written",
        in_harness(_read),
        mutations=tuple(
            Mutation("stagecoach.gateware.mpa.fpdu_store", *change)
            for change in (
                ("self.writer.address.eq(verified)", "self.writer.address.eq(self.writer.address)"),
                ("read.addr.eq(self.address)", "read.addr.eq(self.address + 1)"),
            )
        ),
        depth=1,
    ),
)
