"""Each segment has one record, whose placements read the bytes after its position and release it.

The STag table is any that answers each request once, later. That the bytes are those of the pieces
is said in `receive_access`, and that those are the payload in `receive_judge`.
"""

from amaranth.hdl import Cat, Signal, Value

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.rdmap.receive.access import ReceiveAccess
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.judge import FPDU, Followed, stages
from stagecoach.hw.formal.property import Mutation, Property, in_harness
from stagecoach.hw.formal.receiver import access_needs

CONFIG = RnicConfig(qps=4)


def _released(h: Harness) -> None:
    m = h.m
    access = ReceiveAccess(CONFIG)
    inside = h.block(access)
    request, placement, arriving = access.stag.request, access.placement, access.record
    for _, condition in access_needs(h, inside):
        h.assume(condition)
    waits = Signal()
    with m.If(request.valid & request.ready):
        m.d.sync += waits.eq(1)
    with m.If(access.stag.response_valid):
        m.d.sync += waits.eq(0)
    h.assume(~access.stag.response_valid | waits)

    # The record at work as it came, the byte that is read next, and whether it was released
    idle = inside.in_state("IDLE")
    record = Signal(arriving.p.shape(), name="came")
    octet = Signal(len(arriving.p.position), name="octet")
    released, under_way = Signal(name="released"), Signal(name="under_way")
    with m.If(arriving.valid & arriving.ready):
        m.d.sync += [record.eq(arriving.p), octet.eq(arriving.p.position)]
        m.d.sync += [released.eq(0), under_way.eq(1)]
    with m.Elif(placement.valid & placement.ready):
        m.d.sync += [octet.eq(octet + placement.p.octets), released.eq(placement.p.release)]
    with m.If(access.end):
        m.d.sync += under_way.eq(arriving.valid & arriving.ready)
    place = Cat(placement.p.store_octet, placement.p.store_address) == octet
    h.check("the bytes follow each other", ~placement.valid | (placement.p.octets == 0) | place)
    h.check("of a record at work", ~placement.valid | (under_way & ~released))
    h.check("of an FPDU", ~placement.valid | record.fpdu)
    stored = Value.cast(placement.p.stored) == Value.cast(record.stored)
    h.check("as its segment names it", ~placement.valid | stored)
    h.check("released in the end", ~access.end | (released == record.fpdu))
    h.check("none is left out", ~(arriving.valid & arriving.ready) | access.end | ~under_way)
    h.cover("two", placement.valid & placement.p.release & (octet != record.position))
    h.cover("end", access.end & released)

    # How the state machine gets there
    kept = inside.view("record", arriving.p.shape())
    h.invariant("state", inside.legal_state())
    h.invariant("FPDU", idle | (kept.fpdu == record.fpdu))
    h.invariant("stored", idle | (Value.cast(kept.stored) == Value.cast(record.stored)))
    h.invariant("idle", idle == ~under_way | access.end)
    h.invariant("end", ~access.end | idle)
    delivers = inside.in_state("DELIVER")
    h.invariant("is released", idle | (released == (delivers & record.fpdu)))
    h.invariant("released at the end", ~access.end | (released == record.fpdu))
    position, has_octets = inside.signal("position"), inside.signal("has_octets")
    none = inside.in_state("ERROR") | (inside.in_state("PLACE") & ~has_octets)
    h.invariant("position", idle | delivers | none | (position == octet))
    start = inside.in_state("START")
    h.invariant("no bytes", idle | start | has_octets | (placement.p.octets == 0))
    about = inside.in_state("LOOKUP", "ANSWER", "VERDICT")
    h.invariant("bytes are of an FPDU", idle | start | delivers | ~has_octets | record.fpdu)
    h.invariant("releases", idle | start | has_octets | placement.p.release)
    h.invariant("pieces are of an FPDU", ~about | record.fpdu)
    h.invariant("first", ~(start & inside.signal("asking")) | record.fpdu)


def _once(h: Harness) -> None:
    """A record for each segment, and none besides."""
    judge = Followed(h)
    stages(judge)
    ports = judge.ports
    taken = ports.segment.valid & ports.segment.ready
    given = ports.record.valid & ports.record.ready
    under_way = Signal(name="under_way")
    with h.m.If(taken):
        h.m.d.sync += under_way.eq(1)
    with h.m.Elif(given):
        h.m.d.sync += under_way.eq(0)
    h.check("one segment after the other", ~taken | ~under_way)
    h.check("a record is of a segment", ~ports.record.valid | under_way)
    stored = Value.cast(ports.record.p.stored) == Value.cast(judge.segment.stored)
    h.check("it is released as the segment names it", ~ports.record.valid | stored)
    is_fpdu = ports.record.p.fpdu == (judge.segment.kind.as_value() == FPDU)
    h.check("of an FPDU if that is one", ~ports.record.valid | is_fpdu)
    h.cover("record", ports.record.valid & is_fpdu)
    h.invariant("under way", under_way == judge.at_work)
    takes = judge.inside.child("take").signal("takes")
    h.invariant("takes one", ~takes | ~under_way)


PROPERTIES = (
    Property(
        "rdmap.receive.judge.ReceiveJudge",
        "each segment has one record, by which it is released",
        in_harness(_once),
        mutations=(
            Mutation(
                "stagecoach.gateware.rdmap.receive.record",
                "record.stored.eq(segment.stored)",
                "record.stored.end.eq(segment.stored.end)",
            ),
            Mutation(
                "stagecoach.gateware.rdmap.receive.record",
                "with m.If(self.record.ready):",
                "with m.If(0):",
            ),
        ),
        depth=1,
        reached=1,
    ),
    Property(
        "rdmap.receive.access.ReceiveAccess",
        "the placements of a record are read one after the other, and the last one releases it",
        in_harness(_released),
        mutations=tuple(
            Mutation("stagecoach.gateware.rdmap.receive.access", *change)
            for change in (
                ("position.eq(position + placement.octets)", "position.eq(position)"),
                (
                    "placement.octets.eq(0), has_octets.eq(0), placement.release.eq(1)",
                    "placement.octets.eq(0), has_octets.eq(0)",
                ),
                ("placement.valid.eq(record.fpdu)", "placement.valid.eq(1)"),
                ("placement.stored.eq(record.stored)", "placement.stored.eq(arriving.stored)"),
                (
                    "with m.If(placement.release):\n                with m.If(record.delivers)",
                    "with m.If(1):\n                with m.If(record.delivers)",
                ),
            )
        ),
        depth=1,
        reached=6,
    ),
)
