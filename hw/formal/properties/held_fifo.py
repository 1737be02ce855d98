"""The FIFO of pieces: each is shown once, in order, as it was offered last before its write."""

from amaranth.hdl import Signal

from stagecoach.gateware.rdmap.transmit.pieces import HeldFifo
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import Mutation, Property, in_harness

WIDTH = 4
DEPTH = 8
MOST = 4


def _keeps_order(h: Harness) -> None:
    """One place, any, is followed from the write to the item that is shown.

    Of the environment: an item is offered before its write, and only if there is a place for it;
    a write, a commit and a discard do not come together.
    """
    m = h.m
    fifo = HeldFifo(WIDTH, DEPTH, MOST)
    inside = h.block(fifo)
    written, committed, read = (inside.signal(name) for name in ("written", "committed", "read"))
    held = (written - read)[: len(read)]
    h.assume(~fifo.offer | (held < DEPTH))
    h.assume(fifo.write + fifo.commit + fifo.discard <= 1)
    offered, last, item = Signal(), Signal(WIDTH), Signal(WIDTH)
    m.d.comb += item.eq(last)
    with m.If(fifo.offer):
        m.d.sync += last.eq(fifo.item)
        m.d.comb += item.eq(fifo.item)
    m.d.sync += offered.eq((offered | fifo.offer) & ~(fifo.write | fifo.discard))
    h.assume(~fifo.write | offered | fifo.offer)
    # The item of one number, any, and the number of the item that is shown
    number, its, shown = h.constant(len(read), "number"), Signal(WIDTH), Signal.like(read)
    with m.If(fifo.write & (written == number)):
        m.d.sync += its.eq(item)
    leaves = fifo.o.valid & fifo.o.ready
    m.d.sync += shown.eq(shown + leaves)
    h.check("as it was offered", ~(fifo.o.valid & (shown == number)) | (fifo.o.payload == its))
    promised = (committed - shown)[: len(read)]
    h.check("what is shown is committed", ~fifo.o.valid | (promised != 0))
    h.check("a place for each", held <= DEPTH)
    h.cover("shown and taken", leaves & (promised == 3))

    store = inside.memory("memory")
    place = h.word(store, number[:-1])
    stands = (number - read)[: len(read)] < held
    h.invariant("stands", ~stands | (place == its))
    newest = h.word(store, written[:-1])
    h.invariant("offered", ~offered | ((newest == last) & (held < DEPTH)))
    to_come = (committed - read)[: len(read)]
    h.invariant("committed", to_come <= held)
    h.invariant("in order", (read - shown)[: len(read)] == fifo.o.valid)


MODULE = "stagecoach.gateware.rdmap.transmit.pieces"

PROPERTIES = (
    Property(
        "rdmap.transmit.pieces.HeldFifo",
        f"what is committed leaves once, in order, as it was offered last ({DEPTH} places)",
        in_harness(_keeps_order),
        mutations=(
            Mutation(MODULE, "write_port.addr.eq(written)", "write_port.addr.eq(committed)"),
            Mutation(MODULE, "self.o.valid.eq(read != committed)", "self.o.valid.eq(1)"),
            Mutation(MODULE, "written.eq(committed)", "written.eq(committed + 1)"),
        ),
        depth=1,
        reached=6,
    ),
)
