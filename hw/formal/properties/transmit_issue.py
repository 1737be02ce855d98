"""What the STag table does not allow neither leaves nor changes memory.

Two steps. `TransmitCheck` asks the table in the cycle before it hands a piece over whose record
says so. `TransmitIssue` gives away what was asked about after an answer that allows it, the atomic
unit gets an aligned target, and no answer is due any more then. That the table gives one answer to
each request is proved of it (`stag_table`).
"""

from amaranth.hdl import Signal, Value

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import StagStatus
from stagecoach.gateware.rdmap.transmit.check import TransmitCheck
from stagecoach.gateware.rdmap.transmit.issue import TransmitIssue, record_layout
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.invariants import invariants, needs
from stagecoach.hw.formal.property import Mutation, Property, in_harness

CONFIG = RnicConfig(qps=4)


def _asks(h: Harness) -> None:
    check = TransmitCheck(CONFIG)
    inside = h.block(check)
    h.assume(h.held(check.piece))
    for _, condition in needs(h, "rdmap.transmit.check.TransmitCheck", inside):
        h.assume(condition)
    invariants(h, "rdmap.transmit.check.TransmitCheck", inside)
    # What `TransmitIssue` does: `free` stays until something is handed over.
    h.assume(~h.past(check.free & ~check.hand) | check.free)
    asked = h.past(check.ask)
    h.check("it is handed over then", ~asked | check.hand)
    h.check("asked when its record says so", ~check.hand | (check.record.asks == asked))
    h.check("handed over when free", ~check.hand | check.free)
    h.check("nothing that failed is asked about", ~check.record.failed | ~check.record.asks)
    good = check.hand & check.record.begins_atomic & ~check.record.failed
    h.check("the target of an atomic is asked about", ~good | check.record.asks)
    request, about = check.request, check.piece.p
    same = (request.stag == about.element_stag) & (request.tagged_offset == about.address)
    same &= request.octets == about.octets
    h.check("about that piece", ~check.ask | same)
    # An atomic has a target; nothing is asked for a Terminate or an operation on an STag.
    piece, message = check.piece, check.piece.p.message
    has_target = piece.p.asks | piece.p.failed | ~message.begins_atomic
    h.assume(~piece.valid | has_target)
    silent = message.is_local | message.terminating
    h.assume(~piece.valid | ~(silent & (piece.p.asks | message.begins_atomic)))
    in_hand = inside.in_state("HAND")
    failed = inside.signal("$signal", 0)
    h.invariant("free", ~(in_hand | inside.in_state("CHANGE")) | check.free)
    h.invariant("asked", ~in_hand | (asked == (piece.p.asks & ~failed)))
    h.invariant("local", ~inside.in_state("CHANGE") | message.is_local)
    h.invariant("only then", ~asked | in_hand)
    h.cover("asked", check.hand & asked)

    # The last piece of an FPDU ends it; the record is right a cycle later (`transmit_cut`).
    of_fpdu = piece.p.asks & ~piece.p.covers
    h.check("the last piece ends it", ~(piece.valid & piece.ready) | check.over | of_fpdu)
    taken = h.past(piece.valid & piece.ready)
    for value in (piece.p.asks, piece.p.octets, message.inline, message.begins_atomic):
        h.assume(~taken | (value == h.past(value)))
    # An FPDU, or an atomic that begins, is handed over once (`transmit_progress`).
    told, begins = Signal(), message.begins_atomic
    tells = check.handed | check.begun
    h.m.d.sync += told.eq((told | tells) & ~check.over)
    h.check("handed over once", ~tells | (piece.valid & ~told & ~message.terminating))
    h.check("an atomic begins", (~check.begun | begins) & (~check.handed | ~begins))
    h.invariant("told", ~told | inside.in_state("HOLD"))
    octets = h.past(piece.p.octets)
    good = (octets != 0) & (octets <= 65535)
    of_memory = piece.p.asks & ~message.inline
    h.assume(~piece.valid | ~of_memory | ((piece.p.octets != 0) & (piece.p.octets <= 65535)))
    record = check.record
    places = h.past(check.hand) & record.places & ~record.inline
    h.check("what is placed is the piece", ~places | (good & (record.octets == octets)))
    h.check("it was asked about", ~places | record.asks)


def _allowed(h: Harness) -> None:
    m = h.m
    issue = TransmitIssue(CONFIG)
    inside = h.block(issue)
    invariants(h, "rdmap.transmit.issue.TransmitIssue", inside)
    given = issue.record
    h.assume(~issue.begin | issue.free)
    begun = h.past(issue.begin)
    # An answer comes for what was asked, once; `about` says what that was.
    asked = h.free(1, "asked")
    due = Signal()
    h.assume(~issue.begin | ~due)
    h.assume(~issue.response_valid | due)
    with m.If(issue.begin):
        m.d.sync += due.eq(asked)
    with m.Elif(issue.response_valid):
        m.d.sync += due.eq(0)
    h.assume(~begun | (given.asks == h.past(asked)))
    h.assume(~given.failed | ~given.asks)
    h.assume(~given.begins_atomic | given.failed | given.asks)
    # What the last answer was, and what it is about
    about, address = Signal(record_layout(CONFIG), name="about"), Signal(64, name="target")
    allowed, answered = Signal(), Signal()
    with m.If(begun):
        m.d.sync += about.eq(given)
    with m.If(issue.begin):
        m.d.sync += [answered.eq(0), allowed.eq(0)]
    with m.If(issue.response_valid):
        m.d.sync += [
            answered.eq(1),
            allowed.eq(issue.response.status == StagStatus.OK),
            address.eq(issue.response.address),
        ]
    atomic = issue.atomic
    h.check("none is due while the atomic unit is asked", ~atomic.valid | ~due)
    h.check("an atomic begins", ~atomic.valid | (about.begins_atomic & allowed))
    aligned = (address[:3] == 0) & (atomic.p.address == address)
    h.check("its target is aligned", ~atomic.valid | aligned)
    h.check("of its QP", ~atomic.valid | (atomic.p.qp == about.job.qp))
    good = ~about.failed & (~about.asks | allowed)
    h.check("what goes is allowed", ~(issue.job.valid | issue.write) | good)
    from_there = about.inline | (issue.item.address == address)
    h.check("a piece is where the table says", ~issue.write | from_there)
    # Only the latest atomic is cancelled, once; no job begins after the end of its visit.
    cancels = Signal()
    with m.If(issue.refused.valid | (atomic.valid & atomic.ready)):
        m.d.sync += cancels.eq(0)
    with m.If(begun):
        m.d.sync += cancels.eq(given.begins_atomic & given.asks)
    h.check("the atomic that was begun last", ~issue.refused.valid | cancels)
    h.check("once, before another one begins", ~issue.free | ~cancels)
    h.check("an atomic was begun", ~atomic.valid | cancels)
    h.check("a job ends its visit", ~issue.job_begin.valid | issue.end)
    h.check("none is due when it is free", ~issue.free | issue.begin | ~due)
    h.check("free until a piece comes", ~h.past(issue.free & ~issue.begin) | issue.free)
    # A piece of memory is given away as it came, with bytes.
    h.assume(~(given.places & ~given.inline) | ((given.octets != 0) & (given.octets <= 65535)))
    placed, item = issue.write & ~issue.item.inline, issue.item
    h.check("1 to 65535 bytes", ~placed | ((item.octets != 0) & (item.octets <= 65535)))
    as_it_came = (item.octets == about.octets) & (item.inline == about.inline)
    h.check("a piece goes as it came", ~issue.write | as_it_came)
    h.check("only what is placed goes", ~issue.write | about.places)
    same = Value.cast(item) == h.past(Value.cast(item))
    h.check("one of them at a time", issue.write + issue.commit + issue.discard <= 1)
    h.check("it was offered before", ~issue.write | (h.past(issue.offer) & same))
    h.cover("atomic", atomic.valid & ~atomic.ready)
    h.cover("refused", inside.in_state("STOP") & about.asks)

    at_work = inside.in_state("ANSWER", "ISSUE", "ATOMIC", "STOP", "REPORT")
    here, record = inside.in_state("TAKE"), inside.view("record", about.shape())
    h.invariant("free", issue.free == inside.in_state("IDLE"))
    h.invariant("taken", here == begun)
    h.invariant("record", ~(at_work | issue.write) | (Value.cast(record) == Value.cast(about)))
    h.invariant("failed", ~(at_work | issue.write) | ~(about.failed & about.asks))
    h.invariant("target", ~at_work | ~about.begins_atomic | about.failed | about.asks)
    asks = (here & h.past(asked)) | (at_work & about.asks)
    of_memory = (at_work | issue.write) & about.places & ~about.inline
    h.invariant("bytes", ~of_memory | ((about.octets != 0) & (about.octets <= 65535)))
    h.invariant(
        "may cancel",
        ~at_work | inside.in_state("REPORT") | (cancels == (about.begins_atomic & about.asks)),
    )
    h.invariant("a job", ~inside.in_state("ISSUE") | ~about.begins_atomic)
    h.invariant("no more", ~(cancels & inside.in_state("IDLE", "REPORT")))
    h.invariant("placed", ~issue.write | about.places)
    late = issue.write + issue.commit
    h.invariant("one late", (late <= 1) & (~at_work | inside.in_state("ISSUE", "ATOMIC") | ~late))
    offers = issue.offer == (inside.in_state("ANSWER") & about.places)
    h.invariant("offered", offers)
    h.invariant("due", due == (asks & ~answered))
    h.invariant("answered", inside.signal("answered") == answered)
    is_known = ~answered | (issue.address == address)
    ok = allowed == (inside.signal("status") == StagStatus.OK)
    h.invariant("known", is_known & (~answered | ok) & (answered | ~allowed))
    done = inside.in_state("ISSUE", "ATOMIC") | issue.write
    h.invariant("allowed", ~done | good)
    aims = ~about.begins_atomic | (address[:3] == 0)
    h.invariant("aligned", ~inside.in_state("ATOMIC") | (aims & about.begins_atomic & allowed))
    over = inside.in_state("STOP", "REPORT", "ISSUE", "ATOMIC")
    failure = about.failed | answered | ~about.asks
    h.invariant("over", ~over | failure)


CHECK = "stagecoach.gateware.rdmap.transmit.check"
ISSUE = "stagecoach.gateware.rdmap.transmit.issue"

PROPERTIES = (
    Property(
        "rdmap.transmit.check.TransmitCheck",
        "the STag table is asked about each piece that needs it, when that is handed over",
        in_harness(_asks),
        mutations=(
            Mutation(CHECK, "m.d.comb += self.ask.eq(piece.asks)", "m.d.comb += self.ask.eq(1)"),
            Mutation(CHECK, "self.piece.valid & self.free", "self.piece.valid"),
            Mutation(CHECK, "request.octets.eq(piece.octets)", "request.octets.eq(piece.payload)"),
            Mutation(CHECK, "asks.eq(piece.asks & ~failed)", "asks.eq(piece.asks)"),
            Mutation(CHECK, "goes = ends & ~failed", "goes = ~failed"),
            Mutation(
                CHECK, "with m.Elif(piece.covers | ~piece.asks):", "with m.Elif(~piece.asks):"
            ),
            Mutation(
                CHECK,
                "record.octets.eq(Mux(message.inline, self.inline_length, piece.octets))",
                "record.octets.eq(self.inline_length)",
            ),
        ),
        depth=1,
        reached=6,
    ),
    Property(
        "rdmap.transmit.issue.TransmitIssue",
        "what the STag table did not allow does not go, and none of its answers is late",
        in_harness(_allowed),
        mutations=(
            Mutation(ISSUE, "with m.Elif(~record.asks | answered):", "with m.Else():"),
            Mutation(ISSUE, "(status != StagStatus.OK) | misaligned", "misaligned"),
            Mutation(
                ISSUE,
                "record.begins_atomic & self.address[:WORD_BITS].any()",
                "record.begins_atomic & self.address[:1].any()",
            ),
            Mutation(ISSUE, "[self.free.eq(0), answered.eq(0)]", "self.free.eq(0)"),
            Mutation(ISSUE, "with m.If(self.begin):", "with m.If(1):"),
            Mutation(
                ISSUE,
                "self.refused.valid.eq(record.begins_atomic & record.asks)",
                "self.refused.valid.eq(record.asks)",
            ),
            Mutation(
                ISSUE,
                "[self.job_begin.valid.eq(1), self.end.eq(1)]",
                "self.job_begin.valid.eq(1)",
            ),
            Mutation(ISSUE, "self.item.octets.eq(record.octets)", "self.item.octets.eq(0)"),
            Mutation(
                ISSUE, "self.offer.eq(self.record.places)", "self.offer.eq(self.record.inline)"
            ),
        ),
        depth=1,
        reached=6,
    ),
)
