"""A request that stays is not written over, and each has one answer, or is dropped."""

from amaranth.hdl import Signal

from stagecoach.gateware.ip.responder import PLACES, Responder
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import Mutation, Property, in_harness


def _answered(h: Harness) -> None:
    m = h.m
    dut = Responder()
    inside = h.block(dut)
    word = dut.i.p
    under_way = Signal()  # a frame has begun, and has not ended
    with m.If(dut.i.valid):
        m.d.sync += under_way.eq(~word.last)
    h.assume(~dut.i.valid | (word.first == ~under_way))

    asks = dut.i.valid & word.last & dut.keep
    waiting = Signal(range(PLACES + 2))
    m.d.sync += waiting.eq(waiting + (asks & ~dut.dropped) - dut.answered)
    h.check("no more than there are places", waiting <= PLACES)
    h.check("an answer is of a request", ~dut.answered | (waiting != 0))
    h.check("a request is dropped once", ~dut.dropped | asks)
    written, read = (inside.signal("place", number) for number in range(2))
    full, fits = inside.signal("full"), inside.signal("fits")
    at = full.bit_select(written, 1)
    h.check("a request that stays is not written over", ~(dut.i.valid & fits & at))
    h.cover("answered", dut.answered & (waiting == PLACES))

    # Which places are full, by those that are next
    h.invariant("full", waiting == full[0] + full[1])
    h.invariant("places", (written == read) == (waiting != 1))
    h.invariant("a request is read", (waiting == 0) | full.bit_select(read, 1))
    h.invariant("reads", inside.in_state("WAIT") | (waiting != 0))
    h.invariant("the place of a frame", ~(under_way & inside.signal("fitted") & at))


PROPERTIES = (
    Property(
        "ip.responder.Responder",
        "each request has one answer or is dropped, and none that stays is written over",
        in_harness(_answered),
        mutations=tuple(
            Mutation("stagecoach.gateware.ip.responder", *change)
            for change in (
                ("Mux(word.first, ~full.bit_select(place, 1), fitted)", "1"),
                ("m.If(ends & fits)", "m.If(ends)"),
                ("self.dropped.eq(ends & ~fits)", "self.dropped.eq(~fits)"),
                ("with m.If(full.bit_select(place, 1)):", "with m.If(1):"),
            )
        ),
        depth=1,
        reached=2,
    ),
)
