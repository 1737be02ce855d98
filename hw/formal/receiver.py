"""What holds inside the receiver, and what its two steps need: parts of `hw/formal/invariants.py`.

A segment is at work in the judge from DECODE to HAND_OVER. What is a function of it stands in
registers a cycle or more later, and stays there until its record is taken.
"""

from collections.abc import Iterator
from typing import Any

from amaranth.hdl import Cat, Mux, Value
from amaranth.lib import data

from stagecoach.gateware.ddp.headers import from_wire
from stagecoach.gateware.layouts import SegmentKind
from stagecoach.gateware.rdmap.headers import ULPDU_HEADER
from stagecoach.gateware.rdmap.receive.record import VERDICT, record_layout
from stagecoach.gateware.rdmap.receive.scan import ENTRY_WORDS, LOAD_AT
from stagecoach.hw.formal import rfc_checks
from stagecoach.hw.formal.harness import Harness, Inside
from stagecoach.hw.formal.rfc_checks import is_any
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import SCATTER_GATHER_ELEMENTS

Conditions = Iterator[tuple[str, Any]]

TAGGED = (rfc_checks.WRITE, rfc_checks.READ_RESPONSE)
TAKE_ENTRY = (*rfc_checks.SENDS, *rfc_checks.IMMEDIATE)
REQUESTS = (rfc_checks.READ_REQUEST, rfc_checks.ATOMIC_REQUEST)
RESPONSES = (rfc_checks.READ_RESPONSE, rfc_checks.ATOMIC_RESPONSE)
RESPONSE_STATES = ("RESPONSE_EXPECT", "RESPONSE_COMPARE", "RESPONSE_CHECK")

JUDGE_REST = {
    "take": "WORK",
    "header": "PASS",
    "send": "IDLE",
    "request": "IDLE",
    "response": "IDLE",
    "record": "IDLE",
}
JUDGE_STATES = {
    "IDLE": {"take": "IDLE", "header": "IDLE"},
    "COMMAND": {"take": "COMMAND", "header": "IDLE"},
    "DECODE": {"header": "IDLE"},
    "SELECT": {"header": "SELECT"},
    "REFUSE": {"header": "REFUSE"},
    "CONTEXT": {},
    "SEND_CHECK": {"send": "CHECK"},
    "ENTRY": {"send": "ENTRY"},
    "IMMEDIATE": {"send": "IMMEDIATE"},
    "SCAN": {"send": "SCAN"},
    "REQUEST_CHECK": {"request": "CHECK"},
    "RESPONSE_EXPECT": {"response": "EXPECT"},
    "RESPONSE_COMPARE": {"response": "COMPARE"},
    "RESPONSE_CHECK": {"response": "CHECK"},
    "HAND_OVER": {"header": "OVER", "record": "HAND_OVER"},
}
"""Where a segment is in the judge: the states of its steps that are not those of `JUDGE_REST`."""


def is_kind(kind: Any) -> Value:
    """Whether a segment is of a kind that there is."""
    return Cat(kind == each for each in SegmentKind.__members__.values()).any()


def judge_state(judge: Inside, *names: str) -> Value:
    """Whether the steps of the judge are in the states of one of the places of a segment."""
    if "places" not in judge.notes:
        judge.notes["places"] = {
            name: Cat(
                judge.child(step).in_state(state) for step, state in (JUDGE_REST | others).items()
            ).all()
            for name, others in JUDGE_STATES.items()
        }
    return Cat(judge.notes["places"][name] for name in names).any()


def judge_verdict(judge: Inside) -> Any:
    """What the judge tells of a segment, while it hands its record over."""
    return judge.child("record").view("verdict", VERDICT)


def segment_at_work(judge: Inside) -> Any:
    """The segment that the judge took, from DECODE on."""
    return judge.child("decode").ports.segment


def scan(h: Harness, inside: Inside) -> Conditions:
    """Words come two cycles after they were asked for, elements a cycle after their last word."""
    asked, elements, count = (inside.signal(name) for name in ("asked", "elements", "count"))
    coming, here = inside.signal("arriving_next"), inside.signal("arriving")
    arrived = asked - coming - here
    yield "asked", asked <= ENTRY_WORDS
    yield "coming", (asked == ENTRY_WORDS) | (coming == (asked >= 1))
    yield "here", (asked == ENTRY_WORDS) | (here == (asked >= LOAD_AT))
    yield "none comes late", ~coming | here | (asked == 1)
    yield "arrived", inside.signal("arrived") == arrived[0]
    element, room = inside.signal("element_valid"), inside.signal("room_valid")
    yield "none before", (asked > LOAD_AT) | ~(element | room)
    yield "elements", (asked <= LOAD_AT) | (elements + room + element == arrived[1:4])
    yield "at most", (count <= elements) & (elements <= SCATTER_GATHER_ELEMENTS)


def _decoded(kind: Any, segment: Any) -> Value:
    """Whether `kind` is that of the segment (tables.md, 4.1 and 5)."""
    control, opcode = segment.header[:8], segment.header[8:12]
    last, tagged = control[6], control[7]
    return Cat(
        kind.opcode == opcode,
        kind.last == last,
        kind.tagged == tagged,
        kind.send == is_any(opcode, rfc_checks.SENDS),
        kind.immediate == is_any(opcode, rfc_checks.IMMEDIATE),
        kind.takes_entry == is_any(opcode, TAKE_ENTRY),
        kind.request == is_any(opcode, REQUESTS),
        kind.atomic_request == (opcode == REQUESTS[1]),
        kind.response == is_any(opcode, RESPONSES),
        kind.atomic_response == (opcode == RESPONSES[1]),
        kind.invalidates == (last & is_any(opcode, rfc_checks.INVALIDATING)),
    ).all()


def _only_piece(inside: Inside, segment: Any) -> Value:
    """Whether the piece is that of a segment that takes no receive entry."""
    ports, kind = inside.ports, inside.child("decode").ports.kind
    header, piece = data.View(ULPDU_HEADER, segment.header), ports.piece.piece
    head, read, atomic = (
        ports.outstanding_requests.head,
        header.read_request.rdmap,
        header.atomic_request.rdmap,
    )
    payload = inside.child("checks").ports.payload

    def range_is(stag: Any, offset: Any, octets: Any) -> Value:
        same = (piece.stag == stag) & (piece.tagged_offset == offset)
        return same & (piece.octets == octets)

    tagged = range_is(
        from_wire(header.tagged.stag), from_wire(header.tagged.tagged_offset), payload
    )
    response = range_is(head.sink_stag, head.sink_tagged_offset, 8)
    target = range_is(from_wire(atomic.stag), from_wire(atomic.tagged_offset), 8)
    source = range_is(
        from_wire(read.source_stag), from_wire(read.source_tagged_offset), from_wire(read.length)
    )
    request = Mux(kind.atomic_request, target, source)
    same = Mux(kind.tagged, tagged, Mux(kind.response, response, request))
    return ports.piece.valid & (ports.piece.number == 0) & same


def judge_steps(h: Harness, inside: Inside) -> Conditions:
    """A segment is at one place, and what kind it is of stands."""
    segment, kind = segment_at_work(inside), inside.child("decode").ports.kind
    yield "place of a segment", judge_state(inside, *JUDGE_STATES)
    known = ~judge_state(inside, "IDLE", "COMMAND", "DECODE")
    yield "kind", ~known | _decoded(kind, segment)
    for name in ("send", "request", "response"):
        step = inside.child(name)
        yield f"{name} has it", step.in_state("IDLE") | step.ports.segment.valid


def judge_header_needs(h: Harness, inside: Inside) -> Conditions:
    """What a segment is stands while it is passed on."""
    ports = inside.ports
    kind = Value.cast(ports.kind)
    waits = Cat(each.valid & ~each.ready for each in (ports.send, ports.request, ports.response))
    yield "kind", ~h.past(waits.any()) | (kind == h.past(kind))


def judge(h: Harness, inside: Inside) -> Conditions:
    """What a record has if it is dropped or has failed, and that its pieces stand."""
    ports, segment = inside.ports, segment_at_work(inside)
    kind, scanning = inside.child("decode").ports.kind, inside.child("pieces").child("scan")
    payload = inside.child("checks").ports.payload
    verdict, send = judge_verdict(inside), inside.child("send")
    cause, count, delivers = verdict.cause, verdict.pieces, verdict.delivers
    complete, fpdu = send.signal("complete"), segment.kind.as_value() == 0
    bank = inside.child("pieces").ports.bank

    def state(*names: str) -> Value:
        return judge_state(inside, *names)

    # The segment
    yield from judge_steps(h, inside)
    known = ~state("IDLE", "COMMAND", "DECODE")
    octets = segment.ulpdu_length - Mux(segment.header[7], 14, 18)
    yield "payload", ~known | (payload == octets[: len(payload)])
    judged = state("CONTEXT", "SEND_CHECK", "ENTRY", "IMMEDIATE", "SCAN", "REQUEST_CHECK")
    judged |= state("RESPONSE_EXPECT", "RESPONSE_COMPARE", "RESPONSE_CHECK")
    yield "FPDU is judged", ~judged | fpdu
    in_entry = state("SEND_CHECK", "ENTRY", "IMMEDIATE", "SCAN")
    writes = kind.opcode == 0
    yield "judged otherwise", ~judged | ~writes
    model = kind.tagged == is_any(kind.opcode, TAGGED)
    passed = judged | (state("SELECT") & ~inside.child("checks").ports.header_failed)
    judges = is_any(kind.opcode, (*TAGGED, *TAKE_ENTRY, *REQUESTS, *RESPONSES))
    yield "opcode and buffer model", ~passed | (model & judges)  # no Terminate
    yield "takes an entry", ~in_entry | kind.takes_entry
    requested, responded = state("REQUEST_CHECK"), state(*RESPONSE_STATES)
    yield "request", ~requested | kind.request
    yield "response", ~responded | kind.response

    # The record
    waits = state("ENTRY", "IMMEDIATE", "SCAN")
    yield "refused", ~waits | (send.signal("refused") == (send.signal("cause") != Cause.NONE))
    yield "failed", (cause == Cause.NONE) | ((count == 0) & ~delivers)
    leaves = state("HAND_OVER")
    good = fpdu & (cause == Cause.NONE)
    yield "record", ~leaves | verdict.dropped | good | ((count == 0) & ~delivers)
    yield "pieces at most", count <= SCATTER_GATHER_ELEMENTS

    # Pieces of a receive entry: all of the payload is in those that are there.
    left, asked, given = (scanning.signal(name) for name in ("left", "asked", "count"))
    elements = scanning.signal("elements")
    begins = state("ENTRY") | (state("SCAN") & (asked <= LOAD_AT))
    anew = (left == payload) & (given == 0) & (elements == 0) & ~scanning.signal("room_valid")
    yield "begins anew", ~begins | anew
    yield "scan follows the load", ~state("SEND_CHECK") | (asked == LOAD_AT + 1)
    yield "loaded", ~state("SEND_CHECK") | anew
    yield "at first", ~state("DECODE") | (asked == 0)
    yield "then", ~state("SELECT") | (asked == 1)
    yield "and loads", ~state("CONTEXT") | (asked == LOAD_AT)
    yield "complete", ~state("SCAN") | ~complete | (left == 0)
    cut = (left == 0) & (asked > LOAD_AT) & (given == count)
    yield "cut", ~(state("SCAN", "HAND_OVER") & kind.takes_entry & (count != 0)) | cut

    # The one piece of another segment
    checks = inside.child("checks")
    asked_for = ports.outstanding_requests.level != 0
    yield "compared", ~state("RESPONSE_COMPARE") | checks.signal("none_atomic") | asked_for
    none_failed = checks.ports.atomic_response_cause == Cause.NONE
    yield "checked", ~state("RESPONSE_CHECK") | ~none_failed | asked_for
    answers = kind.response & ~kind.tagged & (count != 0)
    yield "answers", ~leaves | ~answers | asked_for
    stands = known & ~state("SELECT") & ~kind.takes_entry
    answered = ~(kind.response & ~kind.tagged) | (leaves & (count != 0))
    yield "piece", ~(stands & answered) | _only_piece(inside, segment)
    moved = h.past(ports.record.valid & ports.record.ready, "past_record")
    yield "bank", ports.piece.bank == (bank ^ moved)


def judge_needs(h: Harness, inside: Inside) -> Conditions:
    """The oldest outstanding request stands from RESPONSE_EXPECT until its record is taken."""
    queue = inside.ports.outstanding_requests
    response = inside.child("decode").ports.kind.response
    leaves = judge_state(inside, "HAND_OVER") & (judge_verdict(inside).pieces != 0)
    asked = (judge_state(inside, *RESPONSE_STATES) | leaves) & response & (queue.level != 0)
    head = Value.cast(queue.head)
    yield "head", ~h.past(asked) | ((head == h.past(head)) & (queue.level != 0))


def access(h: Harness, inside: Inside) -> Conditions:
    """What is looked up, and that nothing is invalidated before."""
    asking, invalidating = inside.signal("asking"), inside.signal("invalidating")
    asks = inside.in_state("START", "LOOKUP", "INVALIDATE_LOOKUP")
    yield "asking", ~asking | asks
    pieces = inside.in_state("START", "LOOKUP", "ANSWER", "VERDICT")
    yield "not yet to invalidate", ~pieces | ~invalidating
    record = inside.view("record", record_layout(inside.ports._config))
    about_pieces = inside.in_state("LOOKUP", "ANSWER", "VERDICT")
    asks_first = inside.in_state("START") & asking
    yield "pieces are of an FPDU", ~(about_pieces | asks_first) | record.fpdu
    yield "there is a first piece", ~asks_first | (record.pieces != 0)
    yield "first", ~inside.in_state("START") | (inside.signal("number") == 0)


def access_needs(h: Harness, inside: Inside) -> Conditions:
    """Only a good FPDU has pieces, no more than 4, and those of the record at work stand.

    In the cycle after the one in which the record is taken, the judge writes what it wrote before.
    """
    coming = inside.ports.record
    record = coming.payload
    good = ~record.dropped & (record.cause == Cause.NONE) & record.fpdu
    yield "good", ~coming.valid | good | (record.pieces == 0)
    yield "at most", ~coming.valid | (record.pieces <= SCATTER_GATHER_ELEMENTS)
    is_request = is_any(record.opcode, REQUESTS)
    yield "no request invalidates", ~coming.valid | ~record.invalidates | ~is_request
    piece, at_work = inside.ports.piece, inside.view("record", record.shape())
    stands = h.word(inside.memory("pieces"), Cat(piece.number, piece.bank))
    same = Value.cast(stands) == Value.cast(piece.piece)
    taken, start = ~inside.in_state("IDLE"), inside.in_state("START")
    none = start & (piece.number >= at_work.pieces)
    changes = piece.valid & taken & (piece.bank == at_work.bank)
    yield "piece", ~changes | none | (start & same)


def receiver(h: Harness, inside: Inside) -> Conditions:
    """The judge works for one bank while the record of the other one is placed."""
    first, second = inside.child("judge"), inside.child("access")
    record = second.view("record", record_layout(inside.ports._config))
    at_work = ~second.in_state("IDLE")
    yield "banks", ~at_work | (record.bank != first.child("pieces").ports.bank)
    moved = h.past(first.ports.record.valid & first.ports.record.ready, "past_record_taken")
    yield "taken", ~moved | second.in_state("START")
