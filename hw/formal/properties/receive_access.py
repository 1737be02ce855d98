"""The second step of the receiver places nothing before the STag table allowed all of a segment.

The STag table is any that answers each request once, later. A record is followed from its arrival:
how many of its pieces were found good, and what the table said of one of them, any.
"""

from amaranth.hdl import Cat, Const, Mux, Signal, Value

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import StagStatus
from stagecoach.gateware.rdmap.headers import Opcode
from stagecoach.gateware.rdmap.receive.access import ReceiveAccess
from stagecoach.gateware.rdmap.receive.pieces import BANKS
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import Mutation, Property, in_harness
from stagecoach.hw.formal.receiver import access_needs
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import SCATTER_GATHER_ELEMENTS, Rights

CONFIG = RnicConfig(qps=4)
REQUESTS = (Opcode.RDMA_READ_REQUEST, Opcode.ATOMIC_REQUEST)
REFUSED = (StagStatus.INVALID, StagStatus.NOT_ASSOCIATED, StagStatus.NOT_PERMITTED)
"""For an STag that is to be invalidated: its range does not matter (RFC 5040, 5.3)."""


def _rights(opcode: Value) -> Value:
    """RFC 5040, 7.2: what a Write, a Read Request, and what takes a local buffer need."""
    rights = Mux(opcode == Opcode.RDMA_READ_REQUEST, Rights.REMOTE_READ, Rights.LOCAL_WRITE)
    rights = Mux(opcode == Opcode.RDMA_WRITE, Rights.REMOTE_WRITE, rights)
    return Mux(opcode == Opcode.ATOMIC_REQUEST, Rights.REMOTE_READ | Rights.REMOTE_WRITE, rights)


def _is_request(opcode: Value) -> Value:
    return Cat(opcode == each for each in REQUESTS).any()


def _placed(h: Harness) -> None:
    m = h.m
    access = ReceiveAccess(CONFIG)
    inside = h.block(access)
    request, response = access.stag.request, access.stag.response
    placement, arriving = access.placement, access.record.p

    # The judge
    for _, condition in access_needs(h, inside):
        h.assume(condition)

    # The record at work as it came, and what the table said.
    record = Signal(arriving.shape())
    idle = inside.in_state("IDLE")
    count = range(SCATTER_GATHER_ELEMENTS + 3)
    asked, good, gone = Signal(count), Signal(count), Signal(count)
    waits, may_invalidate = Signal(), Signal()
    h.assume(~access.stag.response_valid | waits)
    is_ok = response.status == StagStatus.OK
    refused = Cat(response.status == status for status in REFUSED).any()
    about_pieces = asked <= record.pieces
    with m.If(request.valid & request.ready):
        m.d.sync += [asked.eq(asked + 1), waits.eq(1)]
    with m.If(access.stag.response_valid):
        m.d.sync += waits.eq(0)
        with m.If(about_pieces):
            m.d.sync += good.eq(good + is_ok)
        with m.Else():
            m.d.sync += may_invalidate.eq(~refused)
    with m.If(placement.valid & placement.ready):
        m.d.sync += gone.eq(gone + 1)
    with m.If(idle):
        m.d.sync += [record.eq(arriving), asked.eq(0), good.eq(0), gone.eq(0)]
        m.d.sync += [waits.eq(0), may_invalidate.eq(0)]
    number = h.constant(range(SCATTER_GATHER_ELEMENTS), "number")
    address = Signal(64)
    with m.If(access.stag.response_valid & (asked == number + 1)):
        m.d.sync += address.eq(response.address)

    # What is asked.
    piece = h.word(inside.memory("pieces"), Cat(asked[: len(number)], record.bank))
    first = asked < record.pieces
    same = (request.p.stag == piece.stag) & (request.p.octets == piece.octets)
    same &= request.p.tagged_offset == piece.tagged_offset
    rights = request.p.rights == _rights(record.opcode)
    who = (request.p.pd == record.pd) & (request.p.qp == record.qp)
    h.check("asked about the piece", ~request.valid | ~first | (same & rights & who))
    h.check("asked exclusively", ~request.valid | first | (who & request.p.exclusive))

    # What is placed.
    places = placement.valid & (placement.p.octets != 0)
    judged = ~record.dropped & (record.cause == Cause.NONE) & record.fpdu
    h.check("only what was judged good", ~places | judged)
    h.check("only when all pieces are good", ~places | (good == record.pieces))
    h.check("no request", ~places | ~_is_request(record.opcode))
    h.check("when the STag is invalid", ~places | ~record.invalidates | may_invalidate)
    h.check("no more than its pieces", ~places | (gone < record.pieces))
    length = h.word(inside.memory("lengths"), Cat(number, record.bank))
    here = places & (gone == number)
    there = (placement.p.address == address) & (placement.p.octets == length)
    h.check("where the table says", ~here | there)
    for bank in range(BANKS):
        place = Cat(number, Const(bank, 1))
        whole, part = (h.word(inside.memory(name), place) for name in ("pieces", "lengths"))
        h.invariant(f"bytes of the piece {bank}", whole.octets[: len(part)] == part)
    h.check("of its QP", ~placement.valid | (placement.p.qp == record.qp))

    # How the state machine gets there.
    kept, at = inside.signal("record"), inside.signal("number")
    kept = record.shape()(kept)
    h.invariant("state", inside.legal_state())
    for name in ("qp", "pd", "dropped", "fpdu", "opcode", "invalidates", "bank", "pieces"):
        h.invariant(f"record {name}", idle | (kept[name] == record[name]))
    header = Value.cast(kept.header) == Value.cast(record.header)
    h.invariant("record header", idle | header)
    good_record = ~record.dropped & (record.cause == Cause.NONE)
    h.invariant("pieces", idle | (good_record & record.fpdu) | (record.pieces == 0))
    h.invariant("pieces at most", idle | (record.pieces <= SCATTER_GATHER_ELEMENTS))
    start, lookup = inside.in_state("START"), inside.in_state("LOOKUP")
    answer, verdict = inside.in_state("ANSWER"), inside.in_state("VERDICT")
    asking, invalidating = inside.signal("asking"), inside.signal("invalidating")
    has_octets, next_number = inside.signal("has_octets"), inside.signal("next_number")
    h.invariant("start", ~start | ((asked == 0) & (asking == (record.pieces != 0)) & (at == 0)))
    h.invariant("cause", ~start | (kept.cause == record.cause))
    h.invariant("start next", ~(start | (answer & (at == 0))) | (next_number == 0))
    h.invariant("waits", waits == (answer | inside.in_state("INVALIDATE_ANSWER")))
    pieces_at = start | lookup | answer | verdict
    h.invariant("not invalidating", ~pieces_at | ~invalidating)
    h.invariant("lookup", ~lookup | (asking & (asked == at) & (at < record.pieces) & (at != 0)))
    looked = (asked == at + 1) & (at < record.pieces)
    h.invariant("asked", ~(answer | verdict) | looked)
    h.invariant(
        "asking",
        asking == ((start & (record.pieces != 0)) | lookup | inside.in_state("INVALIDATE_LOOKUP")),
    )
    h.invariant("good", ~(start | lookup | answer) | (good == at))
    h.invariant("verdict", ~verdict | inside.signal("refused") | (good == at + 1))
    h.invariant("gone", ~(pieces_at | idle) | (gone == 0) | idle)
    invalidation = [f"INVALIDATE_{name}" for name in ("CHECK", "LOOKUP", "ANSWER", "VERDICT")]
    invalidation.append("INVALIDATE")
    later = inside.in_state(*invalidation)
    h.invariant(
        "later", ~later | ((good == record.pieces) & good_record & record.invalidates & (gone == 0))
    )
    h.invariant("later asked", ~later | (asked >= record.pieces))
    counts = {"CHECK": 0, "LOOKUP": 0, "ANSWER": 1, "VERDICT": 1}
    for name, more in counts.items():
        here_now = inside.in_state(f"INVALIDATE_{name}")
        h.invariant(f"invalidation {name}", ~here_now | (asked == record.pieces + more))
        h.invariant(f"is one {name}", ~here_now | (invalidating == (name != "CHECK")))
    status = inside.signal("status")
    allowed = Cat(status == Value.cast(each) for each in REFUSED).any()
    h.invariant(
        "invalidation verdict",
        ~inside.in_state("INVALIDATE_VERDICT") | (may_invalidate == ~allowed),
    )
    h.invariant("invalidation", ~inside.in_state("INVALIDATE") | may_invalidate)
    is_request = _is_request(record.opcode)
    h.invariant("no request invalidates", idle | ~record.invalidates | ~is_request)
    h.invariant(
        "places",
        ~verdict
        | (
            inside.signal("places")
            == ((at + 1 >= record.pieces) & ~record.invalidates & ~is_request)
        ),
    )

    # What is loaded to be placed: the first piece when it was answered, the next one when one left.
    at_first = verdict | later | ((lookup | answer) & (at != 0))
    in_place = inside.in_state("PLACE")
    loaded = has_octets & (at_first | in_place)
    h.invariant("no bytes", has_octets | (placement.p.octets == 0))
    h.invariant("releases", idle | start | has_octets | placement.p.release)
    h.invariant("next", ~loaded | (next_number == (gone + 1)[: len(next_number)]))
    h.invariant("of the record", ~loaded | (gone < record.pieces))
    h.invariant("release", ~loaded | (placement.p.release == (gone + 1 >= record.pieces)))
    known = loaded & (gone == number)
    h.invariant("loaded length", ~known | (placement.p.octets == length))
    h.invariant("loaded address", ~known | (good <= number) | (placement.p.address == address))
    h.invariant("none gone", ~at_first | (gone == 0))
    h.invariant("some good", ~at_first | has_octets | (record.pieces == 0) | is_request)
    all_good = (good == record.pieces) & good_record & record.fpdu & ~is_request
    all_good &= ~record.invalidates | may_invalidate
    h.invariant("place", ~(in_place & has_octets) | all_good)
    told = h.word(inside.memory("addresses"), number)
    h.invariant("addresses", idle | (good <= number) | (told == address))


PROPERTIES = (
    Property(
        "rdmap.receive.access.ReceiveAccess",
        "nothing is placed before the STag table found all of the segment good",
        in_harness(_placed),
        mutations=tuple(
            Mutation("stagecoach.gateware.rdmap.receive.access", *change)
            for change in (
                ("with m.If(refused):", "with m.If(misaligned):"),
                (
                    "is_last & ~record.invalidates & ~is_request",
                    "~record.invalidates & ~is_request",
                ),
                ("with m.If(failure != Cause.NONE):", "with m.If(0):"),
                ("request.pd.eq(record.pd)", "request.pd.eq(0)"),
                ("Mux(invalidating, 0, rights)", "0"),
                ("address_read.addr.eq(next_number)", "address_read.addr.eq(number)"),
            )
        ),
        depth=1,
    ),
)
