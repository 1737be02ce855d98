"""Every request of a visit has its answer, and every visit one answer that ends it."""

from amaranth.hdl import Signal

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.mpa.receive_requests import CHUNK_OCTETS, ReceiveRequests
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.invariants import invariants
from stagecoach.hw.formal.property import Mutation, Property, in_harness


def _answers(h: Harness) -> None:
    requests = ReceiveRequests(RnicConfig(qps=4))
    inside = h.block(requests)
    invariants(h, "mpa.receive_requests.ReceiveRequests", inside)
    answers, slot = inside.child("answers").ports.i, inside.child("slot").ports.i
    told = answers.valid & answers.ready
    asked = slot.valid & slot.ready
    h.check("a request has an answer", asked == (told & ~answers.payload.empty))
    h.check("none is lost", ~slot.valid | slot.ready)

    octets = slot.payload.octets
    h.check("it has bytes", ~slot.valid | ((octets != 0) & (octets <= CHUNK_OCTETS)))

    under_way = Signal()
    with h.m.If(told & answers.payload.end):
        h.m.d.sync += under_way.eq(0)
    begins = requests.visit.valid & requests.visit.ready
    with h.m.If(begins):
        h.m.d.sync += under_way.eq(1)
    h.check("a visit begins after the end of the one before", ~begins | ~under_way)
    h.check("what is told is of a visit", ~told | under_way)
    h.check("both take a visit", begins == (requests.begin.valid & requests.begin.ready))
    h.invariant("under way", under_way == ~inside.in_state("IDLE"))
    room = inside.signal("room")
    has_room = answers.ready & slot.ready
    h.invariant("room", ~inside.in_state("CHOOSE") | ~room | has_room)
    h.invariant("room to request", ~inside.in_state("REQUEST") | has_room)


PROPERTIES = (
    Property(
        "mpa.receive_requests.ReceiveRequests",
        "each request has its answer, and each visit ends once",
        in_harness(_answers),
        mutations=tuple(
            Mutation("stagecoach.gateware.mpa.receive_requests", *change)
            for change in (
                ("& answers.i.ready & request.ready", "& answers.i.ready"),
                ("                    answer.end.eq(ends),\n", ""),
                ("with m.If(answers.i.ready):", "with m.If(1):"),
                ("with m.Elif(unrequested == 0):", "with m.Elif(others & (unrequested == 0)):"),
            )
        ),
        depth=1,
    ),
)
