"""The first step of the receiver finds a segment good only if all checks passed that need no STag.

The checks of `rfc_checks` are made of the segment as it came, and of what the block keeps of its
QP. That this is what its good segments said since CONNECT is the first property, for one QP, any.
What the neighbours say of the queues of a QP is any; it counts as it stands at the ports when their
contracts (`EntryPort`, `QpFifoReader`, `QpFifoWriter`) allow to look: three cycles after the
segment was taken, of the outstanding requests four.
"""

from collections.abc import Callable, Sequence

from amaranth.hdl import Cat, Mux, Value

from stagecoach.gateware.rdmap.receive.context import CONTEXT
from stagecoach.hw.formal import receiver, rfc_checks
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.judge import Followed, stages
from stagecoach.hw.formal.judge_ports import entries, strobe
from stagecoach.hw.formal.property import Mutation, Property, in_harness
from stagecoach.hw.formal.rfc_checks import EXPECTED
from stagecoach.hw.interface.causes import Cause


def _expected(f: Followed) -> None:
    """What the block keeps of the QP that is followed is what its segments said."""
    h = f.h
    f.follow(h)
    qp = f.qp
    ours = f.stored("contexts", qp)
    for name in EXPECTED.members:
        same = getattr(ours, name) == getattr(f.expected, name)
        h.check(f"expected {name}", ~f.connected | same)
    h.check("IRD", ~f.connected | (f.stored("irds", qp) == f.ird))
    h.check("extensions", ~f.connected | (f.stored("extended", qp) == f.extensions))
    h.check("PD", ~f.created | (f.stored("pds", qp) == f.pd))

    # How it goes on
    age, at_work = f.age, f.at_work
    context = f.checks.ports.context
    octets, later = f.checks.ports.response_octets, at_work & (age >= 4)
    come = (context.response_octets + f.ulpdu.payload)[:32]
    h.invariant("response bytes", ~later | (octets == come))
    following = f.following.view("following", CONTEXT)
    behind = rfc_checks.behind(f.ulpdu, context)
    same = Cat(getattr(following, name) == behind[name] for name in EXPECTED.members).all()
    h.invariant("following", ~at_work | (age < 5) | same)


NOTHING_PLACED = (rfc_checks.READ_REQUEST, rfc_checks.ATOMIC_REQUEST, *rfc_checks.IMMEDIATE)
"""Opcodes of segments without bytes for a buffer."""


def _judged(f: Followed) -> Value:
    """The header is found good, and all else is looked at."""
    in_entry = ("SEND_CHECK", "ENTRY", "IMMEDIATE", "SCAN")
    return f.state("CONTEXT", *in_entry, "REQUEST_CHECK", *receiver.RESPONSE_STATES)


def header(f: Followed) -> None:
    """The header of a good segment passes its checks."""
    h, state, told = f.h, f.state, f.checks.ports
    header = rfc_checks.header_passes(f.ulpdu, f.stored("extended", f.segment.qp))
    h.invariant("header looked at", ~state("SELECT") | told.header_failed | header)
    h.invariant("header judged", ~_judged(f) | header)
    h.check("header", ~f.good | header)


def _sends(f: Followed) -> None:
    h, state, ulpdu, told = f.h, f.state, f.ulpdu, f.checks.ports
    expected = f.stored("contexts", f.segment.qp)
    send = rfc_checks.send_passes(ulpdu, expected, f.posted)
    immediate = rfc_checks.immediate_passes(ulpdu, expected)
    other = expected.send_begun & (ulpdu.opcode != expected.send_opcode)
    waits = state("ENTRY", "IMMEDIATE", "SCAN")
    h.invariant("other Send", ~(state("SEND_CHECK") | waits) | (told.other_opcode == other))
    h.invariant("looked at", ~state("SEND_CHECK") | (told.send_cause != Cause.NONE) | send)
    h.invariant("judged", ~waits | f.inside.child("send").signal("refused") | send)
    is_send, is_immediate = ulpdu.is_any(rfc_checks.SENDS), ulpdu.is_any(rfc_checks.IMMEDIATE)
    looked = ~state("IMMEDIATE") | (told.immediate_cause != Cause.NONE)
    h.invariant("Immediate Data looked at", looked | immediate)
    h.check("Send", ~f.good | ~is_send | (send & rfc_checks.same_send(ulpdu, expected)))
    h.check("Immediate Data", ~f.good | ~is_immediate | (send & immediate))


def _requests(f: Followed) -> None:
    h, told = f.h, f.checks.ports
    expected = f.stored("contexts", f.segment.qp)
    asks = f.ulpdu, expected, f.level, f.stored("irds", f.segment.qp)
    for what, opcode, cause, passes in (
        (
            "Read Request",
            rfc_checks.READ_REQUEST,
            told.request_cause,
            rfc_checks.read_request_passes(*asks),
        ),
        (
            "Atomic Request",
            rfc_checks.ATOMIC_REQUEST,
            told.atomic_request_cause,
            rfc_checks.atomic_request_passes(*asks, f.strict),
        ),
    ):
        looks = f.state("REQUEST_CHECK") & (cause == Cause.NONE)
        h.invariant(f"{what} looked at", ~looks | passes)
        h.check(what, ~f.good | (f.ulpdu.opcode != opcode) | passes)
    inbound = f.ports.inbound_requests
    below = f.level < f.stored("irds", f.segment.qp)
    strobe(f, "push", inbound.push, inbound.push_qp, below)


def _responses(f: Followed) -> None:
    h, ulpdu, checks, oldest = f.h, f.ulpdu, f.checks, f.oldest
    expected = f.stored("contexts", f.segment.qp)
    none, octets = f.waiting == 0, expected.response_octets
    for name, value in {
        "expected_offset": (oldest.sink_tagged_offset + octets)[:64],
        "remaining": (oldest.length - octets)[:32],
        "other_stag": ulpdu.stag != oldest.sink_stag,
        "none_outstanding": none | oldest.atomic,
        "none_atomic": none | ~oldest.atomic,
    }.items():
        h.invariant(name, ~f.state("RESPONSE_COMPARE") | (checks.signal(name) == value))
    answers = ulpdu, expected, f.waiting, oldest
    for what, opcode, cause, passes in (
        (
            "Read Response",
            rfc_checks.READ_RESPONSE,
            checks.ports.response_cause,
            rfc_checks.read_response_passes(*answers),
        ),
        (
            "Atomic Response",
            rfc_checks.ATOMIC_RESPONSE,
            checks.ports.atomic_response_cause,
            rfc_checks.atomic_response_passes(*answers),
        ),
    ):
        looks = f.state("RESPONSE_CHECK") & (cause == Cause.NONE)
        other = ulpdu.opcode != opcode
        h.invariant(f"{what} looked at", ~looks | other | passes)
        h.check(what, ~f.good | other | passes)


def _pops(f: Followed) -> None:
    outstanding = f.ports.outstanding_requests
    strobe(f, "pop", outstanding.pop, outstanding.pop_qp, ~(f.waiting == 0))


def _records(f: Followed) -> None:
    """What the second step is told, and of what pieces."""
    h, ulpdu, inside, ports, state = f.h, f.ulpdu, f.inside, f.ports, f.state
    record, piece = ports.record.payload, ports.piece
    opcode, segment = ulpdu.opcode, f.segment
    told = len(record.header)
    is_send = ulpdu.is_any(rfc_checks.SENDS)
    writes, reads = opcode == rfc_checks.WRITE, opcode == rfc_checks.READ_REQUEST
    answers = opcode == rfc_checks.ATOMIC_RESPONSE
    invalidates = ulpdu.last & ulpdu.is_any(rfc_checks.INVALIDATING)
    for name, value in {
        "qp": segment.qp,
        "pd": f.stored("pds", segment.qp),
        "opcode": opcode,
        "invalidates": invalidates,
        "header": segment.header[:told],
        "stored": segment.stored,
        "delivers": (ulpdu.last | ulpdu.is_any(NOTHING_PLACED)) & ~writes,
    }.items():
        h.check(f"its {name}", ~f.good | (Value.cast(getattr(record, name)) == Value.cast(value)))
    place = rfc_checks.position(ulpdu, segment.store_address)
    h.check("its position", ~f.good | ulpdu.is_any(NOTHING_PLACED) | (record.position == place))
    tells = receiver.judge_verdict(inside).tells
    failed = (record.cause != Cause.NONE) | ~record.fpdu
    h.invariant("tells", ~f.at_work | ~tells | (state("HAND_OVER") & failed))
    position = rfc_checks.position(ulpdu, segment.store_address)
    known = inside.child("decode").ports.position
    back = (known + Mux(answers & ~ulpdu.tagged, 4, 0))[: len(known)]
    h.invariant("position known", ~f.at_work | (f.age < 2) | (back == position))
    kept = inside.child("record").signal("position")
    original = Mux(inside.child("decode").ports.kind.atomic_response, 4, 0)
    h.invariant("position kept", ~state("HAND_OVER") | (kept == (known + original)[: len(known)]))

    # The one piece of a segment that takes no receive entry
    count = receiver.judge_verdict(inside).pieces
    only = ulpdu.payload != 0
    only = Mux(reads, ulpdu.number(18 + 12, 4) != 0, only)
    only |= opcode == rfc_checks.ATOMIC_REQUEST
    entry = ulpdu.is_any((*rfc_checks.SENDS, *rfc_checks.IMMEDIATE))
    h.check("one piece", ~f.good | entry | (count == only))
    h.check("Immediate Data has none", ~f.good | ~entry | is_send | (count == 0))
    queue = ports.outstanding_requests
    looked = state("RESPONSE_COMPARE", "RESPONSE_CHECK") | f.good
    stands = (Value.cast(queue.head) == Value.cast(f.oldest)) & (queue.level != 0)
    h.invariant("oldest", ~(looked & answers & (f.waiting != 0)) | stands)
    ranges = {
        rfc_checks.WRITE: (ulpdu.stag, ulpdu.tagged_offset, ulpdu.payload),
        rfc_checks.READ_RESPONSE: (ulpdu.stag, ulpdu.tagged_offset, ulpdu.payload),
        rfc_checks.READ_REQUEST: (
            ulpdu.number(18 + 16, 4),
            ulpdu.number(18 + 20, 8),
            ulpdu.number(18 + 12, 4),
        ),
        rfc_checks.ATOMIC_REQUEST: (ulpdu.number(18 + 8, 4), ulpdu.number(18 + 12, 8), 8),
        rfc_checks.ATOMIC_RESPONSE: (f.oldest.sink_stag, f.oldest.sink_tagged_offset, 8),
    }
    here = piece.valid & (piece.number == 0) & (piece.bank == record.bank)
    for number, (stag, offset, octets) in ranges.items():
        same = (piece.piece.stag == stag) & (piece.piece.tagged_offset == offset)
        same &= here & (piece.piece.octets == octets)
        h.check(f"piece of {number}", ~f.good | (opcode != number) | (count == 0) | same)


def _checked(*parts: Callable[[Followed], None]) -> Callable[[Harness], None]:
    def build(h: Harness) -> None:
        f = Followed(h)
        for part in parts:
            part(f)

    return build


def judge_property(
    name: str,
    parts: Sequence[Callable[[Followed], None]],
    changes: Sequence[tuple[str, str, str]],
    mutant_cycles: int = 8,
) -> Property:
    """A property of the judge: `parts` together, each broken by a change of `gateware/rdmap`."""
    return Property(
        "rdmap.receive.judge.ReceiveJudge",
        name,
        in_harness(_checked(stages, *parts)),
        mutations=tuple(
            Mutation(f"stagecoach.gateware.rdmap.{where}", *change) for where, *change in changes
        ),
        depth=1,
        mutant_cycles=mutant_cycles,
    )


PROPERTIES = (
    judge_property(
        "what is kept of a QP is what its good segments said since it was connected",
        [_expected],
        [
            (
                "receive.following",
                "context.send_msn + (kind.takes_entry & last)",
                "context.send_msn + kind.takes_entry",
            ),
            ("receive.following", "Mux(last, 0, self.message_end)", "self.message_end"),
            ("receive.following", "context.request_msn + kind.request", "context.request_msn"),
            ("receive.following", "Mux(last, 0, self.response_octets)", "self.response_octets"),
            ("receive.context", "ird_write.en.eq(self.connect)", "ird_write.en.eq(self.set_pd)"),
            ("receive.following", "Mux(self.connect, self.command.qp, self.qp)", "self.qp"),
            ("receive.following", "Mux(stays, context, following)", "following"),
            ("receive.take", "segment.eq(self.segment.payload),", "segment.eq(0),"),
        ],
    ),
    judge_property(
        "a good segment has passed the checks of its header: versions, opcode, T, queue, length",
        [header],
        [
            ("receive.checks", "*version_checks(tagged),", ""),
            ("receive.checks", "*header_checks(tagged.control, segment.ulpdu_length),", ""),
            ("receive.checks", "*opcode_checks(tagged, self.rfc7306),", ""),
            ("receive.checks", "*queue_opcode_checks(untagged),", ""),
            ("receive.checks", "opcode_checks(tagged, self.rfc7306)", "opcode_checks(tagged)"),
            (
                "receive.header",
                "with m.If(self.drops | (is_write & ~failed)):",
                "with m.If(self.drops | is_write):",
            ),
        ],
    ),
    judge_property(
        "a good Send or Immediate Data is the next one, and there is a receive entry",
        [header, _sends],
        [
            ("receive.checks", "wrong_msn=msn != context.send_msn", "wrong_msn=0"),
            ("receive.checks", "no_buffer=self.posted == 0", "no_buffer=0"),
            ("receive.checks", "wrong_mo=mo != context.send_mo", "wrong_mo=0"),
            ("receive.checks", "inside_send=context.send_begun", "inside_send=0"),
            (
                "receive.judge",
                "entries.select.eq(segment.qp)",
                "entries.select.eq(take.command.qp)",
            ),
            ("receive.send", "complete & ~self.too_long", "complete"),
            ("receive.send", "fits & ~self.other_opcode", "fits"),
        ],
    ),
    judge_property(
        "receive entries are popped and kept by the rules of their port",
        [header, _sends, entries],
        [
            ("receive.send", "kind.last | ~self.shared | self.read", "kind.last | self.read | 1"),
            (
                "receive.record",
                "self.keep_entry.eq(goes_on & kind.takes_entry)",
                "self.keep_entry.eq(kind.takes_entry)",
            ),
        ],
    ),
    judge_property(
        "a good Read or Atomic Request is the next one, alone in its segment, and within the IRD",
        [header, _requests],
        [
            ("receive.checks", "wrong_msn=msn != context.request_msn", "wrong_msn=0"),
            ("receive.checks", "self.inbound_level >= self.ird", "self.inbound_level > self.ird"),
            (
                "receive.checks",
                "[*position_checks, *read_request_length_checks(payload, last)]",
                "position_checks",
            ),
            (
                "receive.checks",
                "atomic_request_checks(payload, last, operation, self.strict)",
                "atomic_request_checks(payload, last, operation, 0)",
            ),
            ("receive.record", "self.push.eq(consumed & kind.request)", "self.push.eq(consumed)"),
            ("receive.judge", "inbound.push_qp.eq(take.qp)", "inbound.push_qp.eq(take.coming)"),
            ("checks", "(header_octets < READ_REQUEST_HEADER_OCTETS) | ~last", "~last"),
        ],
    ),
    judge_property(
        "a good response is the next part of what the oldest outstanding request asks for",
        [header, _responses, _pops],
        [
            ("receive.checks", "(self.outstanding_level == 0) | read.atomic", "read.atomic"),
            ("receive.checks", "(self.outstanding_level == 0) | ~read.atomic", "~read.atomic"),
            ("receive.checks", "from_wire(tagged.stag) != read.sink_stag", "0"),
            (
                "receive.checks",
                "expected_offset.eq(read.sink_tagged_offset + context.response_octets)",
                "expected_offset.eq(read.sink_tagged_offset)",
            ),
            (
                "receive.checks",
                "remaining.eq(read.length - context.response_octets)",
                "remaining.eq(read.length)",
            ),
            ("receive.checks", "wrong_msn=msn != context.atomic_msn", "wrong_msn=0"),
            (
                "receive.checks",
                "other_identifier=identifier != context.atomic_msn",
                "other_identifier=0",
            ),
            ("receive.record", "self.pop.eq(consumed & kind.response)", "self.pop.eq(consumed)"),
            ("receive.judge", "outstanding.pop_qp.eq(take.qp)", "outstanding.pop_qp.eq(0)"),
        ],
    ),
    judge_property(
        "a good record says of its segment what the bytes say, and so do its pieces",
        [header, _responses, _records],
        [
            ("receive.judge", "record.pd.eq(following.pd)", "record.pd.eq(0)"),
            ("receive.record", "self.position + ORIGINAL_OCTET", "self.position"),
            (
                "receive.header",
                "verdict.pieces.eq(is_write & (self.payload != 0))",
                "verdict.pieces.eq(is_write)",
            ),
            (
                "receive.record",
                "record.invalidates.eq(kind.invalidates)",
                "record.invalidates.eq(0)",
            ),
            (
                "receive.pieces",
                "piece.tagged_offset.eq(from_wire(read.source_tagged_offset))",
                "piece.tagged_offset.eq(from_wire(read.sink_tagged_offset))",
            ),
        ],
    ),
)
