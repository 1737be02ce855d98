"""The isolator: the slave sees whole bursts whatever the master does, and the master only its own.

Of the master it is assumed that AR, AW and W stay until they are taken (AMBA AXI4, A3.2.1), unless
it is reset; of the slave that it answers what it has taken, once (A3.3.1). The FIFO of lengths is
replaced by any that lets out as many as came in and takes nothing without room, as is proved of it
(`fifos`).
"""

from typing import Any

from amaranth.hdl import Cat, Mux, Signal, Value

from stagecoach.gateware.dma.axi import channel_payload
from stagecoach.gateware.dma.axi_isolator import ADDRESSES_AHEAD, BURSTS, AxiIsolator
from stagecoach.hw.formal.axi import counted, moves, stays, valid
from stagecoach.hw.formal.harness import Harness, Inside
from stagecoach.hw.formal.property import Mutation, Property, in_harness

MODULE = "stagecoach.gateware.dma.axi_isolator"

COUNT_BITS = 10

WIDTH = 8


def _place(h: Harness, dut: Any, channel: str, comes: Value, given: Value) -> Signal:
    """The slave is shown what came last, once, and until it takes it; whether it is shown any."""
    slave = dut.m_axi
    full, kept = Signal(name=f"{channel}_full"), Signal(len(given), name=f"{channel}_kept")
    gone = moves(slave, channel)
    h.m.d.sync += full.eq(comes | (full & ~gone))
    with h.m.If(comes):
        h.m.d.sync += kept.eq(given)
    h.check(f"{channel} has room", ~comes | ~full | gone)
    h.check(f"{channel} is shown", valid(slave, channel) == full)
    h.check(f"{channel} as it came", ~full | (channel_payload(slave, channel) == kept))
    h.check(f"{channel} held", stays(h, slave, channel))
    return full


def _bursts(
    h: Harness, inside: Inside, channel: str, answer: str, over: Value, taken: Value
) -> Signal:
    """Addresses go on, and answers come to the master of its own bursts; those under way.

    `over`: the slave ends a burst. `taken`: the slave has one to end.
    """
    dut = inside.ports
    axi, slave, apart = dut.axi, dut.m_axi, inside.signal("apart")
    comes = moves(axi, channel)
    full = _place(h, dut, channel, comes, channel_payload(axi, channel))
    under_way = counted(h, f"{channel}_bursts", COUNT_BITS, comes, over)
    h.assume(~valid(slave, answer) | taken)
    h.assume(stays(h, slave, answer))
    # Those that the master has begun since it was reset.
    its = Signal(COUNT_BITS, name=f"{channel}_its")
    h.m.d.sync += its.eq(Mux(dut.isolate, 0, its + comes - (over & ~apart)))
    h.check(f"{answer} of its own bursts", ~valid(axi, answer) | (its != 0))
    h.check(f"{answer} of all of them", apart | (valid(axi, answer) == valid(slave, answer)))
    h.check(
        f"{answer} is taken",
        moves(slave, answer) == (moves(axi, answer) | (valid(slave, answer) & apart)),
    )
    h.check(f"{answer} as it is", channel_payload(axi, answer) == channel_payload(slave, answer))
    h.check(f"{channel} not too many", under_way <= BURSTS)
    h.check(f"{channel} is refused", ~(apart & comes))
    h.invariant(f"{channel} under way", inside.signal(f"{channel}_under_way") == under_way)
    h.invariant(f"{channel} its own", its == Mux(inside.signal("finishing"), 0, under_way))
    h.cover(f"{answer} of a burst without a master", moves(slave, answer) & apart & ~dut.isolate)
    return full


def _isolator(h: Harness) -> None:
    dut = AxiIsolator(WIDTH)
    inside = h.block(dut)
    lengths = h.free_part(inside, "lengths")
    axi, slave, apart = dut.axi, dut.m_axi, inside.signal("apart")
    for channel in ("ar", "aw", "w"):
        h.assume(dut.isolate | h.past(dut.isolate) | stays(h, axi, channel))

    over = moves(slave, "r") & slave.rlast
    reads = counted(h, "reads", COUNT_BITS, moves(slave, "ar"), over)
    read_shown = _bursts(h, inside, "ar", "r", over, reads != 0)
    writes = counted(h, "writes", COUNT_BITS, moves(slave, "aw"), moves(slave, "b"))
    written = counted(h, "written", COUNT_BITS, moves(slave, "w") & slave.wlast, moves(slave, "b"))
    address_shown = _bursts(h, inside, "aw", "b", moves(slave, "b"), (writes != 0) & (written != 0))

    # Words of a burst, as many as its length says.
    comes, shown = inside.signal("comes"), lengths.o.valid
    ends = lengths.o.valid & lengths.o.ready
    ahead = counted(h, "ahead", COUNT_BITS, moves(axi, "aw"), ends)
    beat = Signal(9, name="beat_of_slave")
    length = Signal(8, name="length_of_word")
    with h.m.If(comes):
        h.m.d.sync += length.eq(lengths.o.payload)
    with h.m.If(moves(slave, "w")):
        h.m.d.sync += beat.eq(Mux(slave.wlast, 0, beat + 1))
    h.assume(h.held(lengths.o))
    h.assume(~shown | (ahead != 0))
    h.assume(~lengths.i.ready | (ahead < ADDRESSES_AHEAD))
    h.check("length is kept", (lengths.i.valid & lengths.i.ready) == moves(axi, "aw"))
    h.check("as it came", ~lengths.i.valid | (lengths.i.payload == axi.awlen))
    given = Cat(axi.wdata, Mux(apart, 0, axi.wstrb), inside.signal("beat") == lengths.o.payload)
    word_shown = _place(h, dut, "w", comes, given)
    h.check("last at its length", ~word_shown | (slave.wlast == (beat == length)))
    h.check("not longer", ~word_shown | (beat <= length))
    h.check("word of an address", ~comes | shown)
    h.check(
        "length is kept to the last word",
        ends == (comes & (inside.signal("beat") == lengths.o.payload)),
    )
    h.check("word of the master", apart | (comes == moves(axi, "w")))
    h.check("word is refused", ~(apart & moves(axi, "w")))
    h.check("word without the master", ~(apart & shown & (~word_shown | moves(slave, "w"))) | comes)
    h.cover("a missing word", comes & apart & slave.wvalid & ~dut.isolate)

    h.check(
        "idle",
        dut.idle
        == (
            (reads == 0)
            & (writes == 0)
            & (written == 0)
            & (ahead == 0)
            & ~(read_shown | address_shown | word_shown)
        ),
    )
    h.check("ends", ~h.past(dut.idle & ~dut.isolate) | dut.isolate | ~apart)
    h.invariant("reads", inside.signal("ar_under_way") == reads + read_shown)
    h.invariant("writes", inside.signal("aw_under_way") == writes + address_shown)
    h.invariant(
        "words", inside.signal("aw_under_way") == ahead + written + (word_shown & slave.wlast)
    )
    h.invariant("ahead", ahead <= ADDRESSES_AHEAD)
    h.invariant(
        "beat", inside.signal("beat") == Mux(word_shown, Mux(slave.wlast, 0, beat + 1), beat)
    )
    h.invariant(
        "beat of its burst", ~word_shown | slave.wlast | (shown & (lengths.o.payload == length))
    )
    h.invariant(
        "beat within",
        (inside.signal("beat") == 0) | (shown & (inside.signal("beat") <= lengths.o.payload)),
    )


PROPERTIES = (
    Property(
        "dma.axi_isolator.AxiIsolator",
        "the slave has whole bursts, as the master gave them or, from its reset on, without "
        "strobes; the master has answers to bursts begun after its reset only, and has all of them",
        in_harness(_isolator),
        mutations=(
            Mutation(
                MODULE,
                "finishing.eq(self.isolate | (finishing & ~self.idle))",
                "finishing.eq(self.isolate)",
            ),
            Mutation(MODULE, "(reads == 0) & (writes == 0)", "(reads == 0)"),
            Mutation(MODULE, "room & may & (under_way != BURSTS)", "room & may"),
            Mutation(MODULE, "Mux(apart, 0, axi.wstrb)", "axi.wstrb"),
            Mutation(MODULE, "(axi.wvalid | apart)", "axi.wvalid"),
            Mutation(MODULE, "slave.wlast.eq(last)", "slave.wlast.eq(axi.wlast)"),
            Mutation(MODULE, "getattr(slave, valid) & ~apart", "getattr(slave, valid)"),
        ),
        covered=10,
    ),
)
