"""Each visit of the transmitter ends once, and two at most are under way.

Three of its steps are joined as in `transmitter`: the choice of a message, the check of its pieces,
and what gives them away. The pieces are any that `TransmitCut` makes. A visit may end in each of
the three: `at_choose` is one that has not, `after` one whose last piece is being given away.
"""

from amaranth.hdl import Signal, Value

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.rdmap.transmit.check import TransmitCheck
from stagecoach.gateware.rdmap.transmit.choose import TransmitChoose
from stagecoach.gateware.rdmap.transmit.issue import TransmitIssue, record_layout
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import Mutation, Property, in_harness

CONFIG = RnicConfig(qps=4)


def _visits(h: Harness) -> None:
    m = h.m
    choose, check, issue = TransmitChoose(CONFIG), TransmitCheck(CONFIG), TransmitIssue(CONFIG)
    chooses, checks = h.block(choose, "choose"), h.block(check, "check")
    issues = h.block(issue, "issue")
    piece, message = check.piece, choose.message
    offered = h.free(piece.p.shape(), "offered")
    valid = h.free(1, "piece_valid")
    m.d.comb += [
        piece.payload.eq(offered),
        piece.p.message.eq(message.payload),
        piece.valid.eq(valid & message.valid),
        message.ready.eq(check.over),
        choose.free.eq(issue.free),
        check.free.eq(issue.free),
        check.failing.eq(issue.failing),
        check.fresh.eq(choose.fresh),
        issue.begin.eq(check.hand),
        issue.record.eq(check.record),
    ]
    h.assume(h.held(choose.qp_command))
    h.assume(h.held(choose.termination))
    # What `TransmitCut` does: a piece stands until it is taken, and for a cycle more. Nothing is
    # asked for a Terminate or an operation on an STag; what an atomic names is one piece.
    stands = h.past(piece.valid)
    for name in ("asks", "covers", "failed"):
        h.assume(~stands | (offered[name] == h.past(offered[name])))
    h.assume(~(stands & ~h.past(piece.ready)) | valid)
    p = message.p
    h.assume(~(p.is_local | p.terminating) | ~offered.asks)
    h.assume(~(p.is_atomic | p.begins_atomic) | offered.covers | ~offered.asks)

    begins, ends = choose.begin, (choose.end, check.end, issue.end)
    under_way = Signal(3)
    end = sum(ends, start=0)
    m.d.sync += under_way.eq(under_way + begins - end)
    h.check("one end at a time", Value.cast(end) <= 1)
    h.check("a visit that ends has begun", ~Value.cast(end).bool() | (under_way != 0))
    h.check("two at most", under_way <= 2)
    goes = issue.job.valid & issue.job.ready
    h.check("a job begins when it is taken", issue.job_begin.valid == goes)
    h.cover("two", under_way == 2)

    ended, current = Signal(), Signal()  # the visit at `choose`; it has a piece at `issue`
    visits = ~chooses.in_state("IDLE", "COMMAND")
    with m.If(issue.end & current):
        m.d.sync += ended.eq(1)
    with m.If(check.hand):
        m.d.sync += current.eq(1)
    with m.Elif(issue.free):
        m.d.sync += current.eq(0)
    with m.If(check.over | begins):
        m.d.sync += [ended.eq(0), current.eq(0)]
    at_choose, after = Signal(), Signal()
    m.d.comb += [
        at_choose.eq(visits & ~begins & ~ended),
        after.eq(~issue.free & ~current),
    ]
    h.invariant("counted", under_way == at_choose + after)

    offers = chooses.in_state("MESSAGE", "BARE_MESSAGE")
    begun, failed = checks.signal("begun", 0), checks.signal("$signal", 0)
    ready, hand, hold = (checks.in_state(name) for name in ("READY", "HAND", "HOLD"))
    change = checks.in_state("CHANGE")
    for name, inside in (("choose", chooses), ("check", checks), ("issue", issues)):
        h.invariant(f"{name} legal", inside.legal_state())
    h.invariant("free", issue.free == issues.in_state("IDLE"))
    h.invariant("piece", ready | piece.valid)
    h.invariant("only of a message", offers | ~(begun | failed | current | ended))
    h.invariant("hands when free", ~(hand | change) | issue.free)
    h.invariant("not handed", begun | ~(current | ended | hold))
    h.invariant("not ended", ~(hand | change) | ~ended)
    h.invariant("held", ~hold | ended | current)
    record = issues.view("record", record_layout(CONFIG))
    taking = issues.in_state("TAKE")
    coming = check.record
    h.invariant("not over", ~(hold & ~ended) | ~issue.free)
    h.invariant("doomed", ~(ended & ready) | check.doomed)
    h.invariant("not doomed", ~(hand | change) | ~check.doomed)
    h.invariant("of elements", ~(begun & ready) | ~(p.is_local | p.terminating))
    h.invariant("local", ~change | (p.is_local & ~begun & ~failed))
    h.invariant("doomed alone", ~(ready & check.doomed & begun & issue.free) | ended)
    h.invariant("failed", ~(failed & ready) | (~begun & ~ended))
    doing = ~issue.free & ~taking
    h.invariant("ends", ~(doing & (~current | hold)) | record.ends | record.failed)
    h.invariant("none before it", ~begun | ~after)
    h.invariant("fails", ~(begun & check.doomed & ~ended & ready) | issue.failing)
    h.invariant("ended", ~ended | issue.free)
    goes_on = ready & current
    h.invariant("not the last", ~(doing & goes_on) | ~(record.ends | record.begins_atomic))
    h.invariant("takes no last", ~(taking & goes_on) | ~(coming.ends | coming.begins_atomic))
    h.invariant("issue", ~issues.in_state("ISSUE") | record.ends)
    h.invariant("atomic", ~issues.in_state("ATOMIC") | record.begins_atomic)
    h.invariant("takes", ~(taking & (~current | hold)) | coming.ends | coming.failed)


CHECK = "stagecoach.gateware.rdmap.transmit.check"

PROPERTIES = (
    Property(
        "rdmap.transmit.transmitter.Transmitter",
        "each visit ends once, and two at most are under way",
        in_harness(_visits),
        mutations=(
            Mutation(
                CHECK,
                "[self.kick_again.eq(~begun), self.end.eq(~begun)]",
                "[self.kick_again.eq(~begun), self.end.eq(1)]",
            ),
            Mutation(CHECK, "with m.Elif(self.fresh):", "with m.Elif(1):"),
            Mutation(
                "stagecoach.gateware.rdmap.transmit.choose",
                'with m.State("NOTHING"), m.If(self.free):',
                'with m.State("NOTHING"), m.If(1):',
            ),
            Mutation(
                "stagecoach.gateware.rdmap.transmit.issue",
                "[self.job_begin.valid.eq(1), self.end.eq(1)]",
                "self.job_begin.valid.eq(1)",
            ),
        ),
        depth=1,
        reached=8,
    ),
)
