"""Where nothing is, each burst is answered once, as long as it is, with DECERR.

Of the master it is assumed that what it shows stays until it is taken (AMBA AXI4, A3.2.1).
"""

from amaranth.hdl import Mux, Signal

from stagecoach.gateware.dma.axi_error_slave import AxiErrorSlave
from stagecoach.gateware.dma.ports import RESPONSE_DECERR
from stagecoach.hw.formal.axi import counted, moves, stays
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import Mutation, Property, in_harness

MODULE = "stagecoach.gateware.dma.axi_error_slave"

WIDTH = 8


def _error_slave(h: Harness) -> None:
    dut = AxiErrorSlave(WIDTH, id_width=2)
    inside = h.block(dut)
    axi = dut.axi
    for channel in ("ar", "aw", "w"):
        h.assume(stays(h, axi, channel))
    asked, beat, length = Signal(2), Signal(9), Signal(8)
    with h.m.If(moves(axi, "ar")):
        h.m.d.sync += [asked.eq(axi.arid), length.eq(axi.arlen), beat.eq(0)]
    with h.m.If(moves(axi, "r")):
        h.m.d.sync += beat.eq(beat + 1)
    reads = counted(h, "reads", 2, moves(axi, "ar"), moves(axi, "r") & axi.rlast)
    h.check("a read at a time", reads <= 1)
    h.check("answered at once, and only then", axi.rvalid == (reads != 0))
    h.check("as long as it is", ~axi.rvalid | (axi.rlast == (beat == length)))
    h.check("of its ID", ~axi.rvalid | (axi.rid == asked))
    h.check("with DECERR", ~axi.rvalid | ((axi.rresp == RESPONSE_DECERR) & (axi.rdata == 0)))
    h.check("r held", stays(h, axi, "r"))
    h.invariant("left", (reads == 0) | (inside.signal("left") == length - beat))
    h.invariant("beat", (reads == 0) | (beat <= length))
    h.invariant("reads", inside.signal("reads") == reads)

    wanted = Signal(2)
    with h.m.If(moves(axi, "aw")):
        h.m.d.sync += wanted.eq(axi.awid)
    writes = counted(h, "writes", 2, moves(axi, "aw"), moves(axi, "b"))
    over = moves(axi, "w") & axi.wlast
    written = counted(h, "written", 2, over, moves(axi, "b"))
    h.check("a write at a time", writes <= 1)
    h.check("words after their address", axi.wready == ((writes != 0) & (written == 0)))
    h.check("answered after its last word, at once", axi.bvalid == (written != 0))
    h.check("of its ID", ~axi.bvalid | (axi.bid == wanted))
    h.check("with DECERR", ~axi.bvalid | (axi.bresp == RESPONSE_DECERR))
    h.check("b held", stays(h, axi, "b"))
    h.invariant("written of a write", written <= writes)
    states = inside.signal("writes"), inside.signal("answers")
    h.invariant("writes", states[0] == ((writes != 0) & (written == 0)))
    h.invariant("answers", states[1] == (written != 0))
    h.invariant("whose", (writes == 0) | (axi.bid == wanted))
    h.cover("two reads", Mux(h.past(axi.rlast & moves(axi, "r")), axi.arready, 0))
    h.cover("a write of two words", moves(axi, "b") & h.past(over & h.past(moves(axi, "w"))))


PROPERTIES = (
    Property(
        "dma.axi_error_slave.AxiErrorSlave",
        "each burst is answered once, with DECERR and its ID: a read with as many words as it "
        "asked for, a write after its last word",
        in_harness(_error_slave),
        mutations=(
            Mutation(MODULE, "axi.rlast.eq(left == 0)", "axi.rlast.eq(left <= 1)"),
            Mutation(MODULE, "~writes & ~answers),", "~writes),"),
            Mutation(MODULE, "axi.wvalid & axi.wlast", "axi.wvalid"),
            Mutation(MODULE, "axi.bid.eq(axi.awid)", "axi.bid.eq(0)"),
        ),
        covered=6,
    ),
)
