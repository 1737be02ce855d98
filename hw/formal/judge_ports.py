"""What the judge does to the queues of a QP, by the rules of their ports."""

from amaranth.hdl import Cat, Signal, Value

from stagecoach.gateware.layouts import SegmentKind
from stagecoach.gateware.rdmap.receive.scan import ENTRY_WORDS
from stagecoach.hw.formal import receiver, rfc_checks
from stagecoach.hw.formal.judge import Followed
from stagecoach.hw.interface.causes import Cause


def strobe(f: Followed, name: str, pulse: Value, qp: Value, allowed: Value) -> None:
    """A pulse to a FIFO of a QP: only if `allowed` a cycle before, and by the rules of its port."""
    h = f.h
    h.check(f"{name} only then", ~pulse | (h.started & h.past(allowed)))
    h.check(f"{name} of its QP", ~pulse | (h.past(f.segment.qp) == qp))
    h.check(f"QP of a {name} a cycle before", ~pulse | (qp == h.past(qp)))
    h.check(f"{name} every second cycle", ~pulse | ~h.past(pulse))
    h.invariant(f"{name} when it left", ~pulse | f.state("IDLE"))


def entries(f: Followed) -> None:
    """A receive entry is popped or kept by the rules of `shared_entries`."""
    h, port, state = f.h, f.ports.receive_entries, f.state
    uses, record = port.pop | port.keep, f.ports.record
    over, waits = record.valid & record.ready, state("HAND_OVER")
    coming, shared = Signal.like(port.select), Signal()
    with h.m.If(~port.stays):
        h.m.d.sync += coming.eq(port.arriving)
    with h.m.If(state("SCAN")):
        h.m.d.sync += shared.eq(port.shared)
    read = f.inside.child("pieces").ports.read
    before = h.past(coming), h.past(h.past(coming)), h.past(h.past(h.past(coming)))
    stood = Cat(each == port.select for each in before).all()
    stands = (port.select == h.past(port.select)) & h.past(port.select == h.past(port.select))
    h.check("pop or keep", ~(port.pop & port.keep) & (port.popping == port.pop))
    h.check("of a record that left", ~uses | (h.started & h.past(over)))
    h.check("entry of its QP", ~uses | (stands & (port.select == f.segment.qp)))
    h.check("its ring is looked up", ~uses | stood)
    h.check("three cycles", ~uses | ~(h.past(uses) | h.past(h.past(uses))))
    h.check("read before it is kept", ~port.keep | h.past(read | ~shared))
    h.check("one is there", ~uses | h.past(f.posted != 0))
    h.invariant("used when it left", ~uses | state("IDLE"))
    h.invariant("used before", ~h.past(uses) | state("IDLE", "COMMAND", "DECODE"))
    at_work, verdict = f.at_work, receiver.judge_verdict(f.inside)
    coming_kind = f.ports.segment.p.kind
    h.assume(~f.ports.segment.valid | receiver.is_kind(coming_kind))
    kind = f.segment.kind
    h.invariant("kinds", ~at_work | receiver.is_kind(kind))
    told = (kind == SegmentKind.FPDU) | verdict.dropped | (verdict.cause != Cause.NONE)
    h.invariant("no FPDU, no entry", ~waits | told)
    h.invariant("looked up", ~at_work | (coming == f.segment.qp))
    for age, value in enumerate((coming, *before[:2], port.select), start=1):
        h.invariant(f"for {age}", ~at_work | (f.age < age) | (value == f.segment.qp))
    selects = h.past(port.select), h.past(h.past(port.select))
    for age, value in enumerate(selects, start=2):
        h.invariant(f"selected for {age}", ~at_work | (f.age < age) | (value == f.segment.qp))
    scan = f.inside.child("pieces").child("scan")
    asked, coming_next = scan.signal("asked"), scan.signal("arriving_next")
    h.invariant("all is read", ~read | ((asked == ENTRY_WORDS) & ~coming_next))
    kept = waits & f.ulpdu.is_any(rfc_checks.SENDS) & ~verdict.delivers
    h.invariant("read", ~(kept & (verdict.cause == Cause.NONE)) | read | ~shared | verdict.dropped)
    ends = waits & f.ulpdu.is_any(rfc_checks.IMMEDIATE) & (verdict.cause == Cause.NONE)
    h.invariant("Immediate Data ends", ~ends | verdict.delivers | verdict.dropped)
