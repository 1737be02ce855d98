"""What a visit came to is kept until the connection table has taken it."""

from amaranth.hdl import Signal

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.mpa.receive_visits import ReceiveVisits
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.properties.deframer import END_GAP
from stagecoach.hw.formal.properties.receive_table import END_CYCLES
from stagecoach.hw.formal.property import Mutation, Property, in_harness


def _ends(h: Harness) -> None:
    """As far apart as they come from the deframer, and as soon as the table takes them."""
    visits = ReceiveVisits(RnicConfig(qps=4))
    h.block(visits)
    m = h.m
    ended, waiting, taken = visits.deframer.ended, visits.end_waiting, visits.end_taken
    since = Signal(range(END_GAP), init=END_GAP - 1)  # cycles since the one before, but one
    with m.If(ended):
        m.d.sync += since.eq(0)
    with m.Elif(since != END_GAP - 1):
        m.d.sync += since.eq(since + 1)
    h.assume(~ended | (since == END_GAP - 1))  # `deframer`
    waited = Signal(range(END_CYCLES))
    with m.If(~waiting | taken):
        m.d.sync += waited.eq(0)
    with m.Elif(waited != END_CYCLES - 1):
        m.d.sync += waited.eq(waited + 1)
    h.assume(~waiting | taken | (waited != END_CYCLES - 1))  # `receive_table`
    h.assume(waiting | ~taken)

    # What the deframer has told and the table has not taken
    kept = Signal()
    end = Signal(visits.end.shape())
    with m.If(ended):
        m.d.sync += [kept.eq(1), end.eq(visits.deframer.end)]
    with m.Elif(taken):
        m.d.sync += kept.eq(0)
    h.check("none is lost", ~ended | ~waiting | taken)
    h.check("each is offered until it is taken", waiting == kept)
    h.check("as it came", ~waiting | (visits.end == end))
    h.invariant("soon taken", ~waiting | (since == waited))


PROPERTIES = (
    Property(
        "mpa.receive_visits.ReceiveVisits",
        "what a visit came to is offered until it is taken, and none is lost",
        in_harness(_ends),
        mutations=tuple(
            Mutation("stagecoach.gateware.mpa.receive_visits", *change)
            for change in (
                ("m.d.sync += self.end_waiting.eq(0)", "pass"),
                ("[self.end_waiting.eq(1), self.end.eq(deframer.end)]", "self.end_waiting.eq(1)"),
                ("with m.If(self.end_taken):", "with m.If(self.forget):"),
            )
        ),
        depth=1,
    ),
)
