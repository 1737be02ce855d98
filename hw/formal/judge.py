"""The first step of the receiver in a harness, with the segment that it took, as it came."""

from typing import Any

from amaranth.hdl import Signal, Value

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpCommandKind
from stagecoach.gateware.rdmap.receive.judge import ReceiveJudge
from stagecoach.hw.formal import receiver, rfc_checks
from stagecoach.hw.formal.harness import Harness, Inside
from stagecoach.hw.formal.rfc_checks import EXPECTED, FIRST, Ulpdu
from stagecoach.hw.interface.causes import Cause

CONFIG = RnicConfig(qps=4)
FPDU = 0
"""Kind of a segment (`SegmentKind`)."""

TAKEN, ENTRIES_KNOWN, HEAD_KNOWN = 1, 3, 4
"""Cycles since a segment was taken, when it is looked at what the queues say."""


def inside_judge(h: Harness, judge: Inside) -> None:
    """What holds inside, if the neighbours do what they must."""
    for _, condition in receiver.judge_needs(h, judge):
        h.assume(condition)
    for name, condition in receiver.judge(h, judge):
        h.invariant(f"judge {name}", condition)
    for name, condition in receiver.scan(h, judge.child("pieces").child("scan")):
        h.invariant(f"scan {name}", condition)


class Followed:
    """A judge in a harness, the segment that it took, and what is known of a QP, any."""

    def __init__(self, h: Harness):
        self.h = h
        self.ports = judge = ReceiveJudge(CONFIG)
        self.inside = inside = h.block(judge)
        h.assume(h.held(judge.segment))
        h.assume(h.held(judge.qp_command))
        inside_judge(h, inside)
        self.checks = inside.child("checks")
        self.following = inside.child("following")
        self.context = self.following.child("contexts")
        self._take(h)

    def _take(self, h: Harness) -> None:
        """The segment as it came, and what the queues said of its QP."""
        ports = self.ports
        self.segment = taken = Signal(Layouts(CONFIG).segment, name="taken")
        self.ulpdu = Ulpdu(taken.header, taken.ulpdu_length)
        self.age = age = Signal(range(8))
        with h.m.If(ports.segment.valid & ports.segment.ready):
            h.m.d.sync += [taken.eq(ports.segment.payload), age.eq(TAKEN)]
        with h.m.Elif(age < 6):
            h.m.d.sync += age.eq(age + 1)
        self.posted, self.level = Signal(16), Signal.like(ports.inbound_requests.level)
        self.strict = Signal()
        with h.m.If(age == ENTRIES_KNOWN):
            h.m.d.sync += [
                self.posted.eq(ports.receive_entries.posted),
                self.level.eq(ports.inbound_requests.level),
                self.strict.eq(ports.strict),
            ]
        outstanding = ports.outstanding_requests
        self.waiting, self.oldest = Signal.like(outstanding.level), Signal.like(outstanding.head)
        with h.m.If(age == HEAD_KNOWN):
            h.m.d.sync += [self.waiting.eq(outstanding.level), self.oldest.eq(outstanding.head)]

    def follow(self, h: Harness) -> None:
        """What the segments of a QP said of the next one, as the texts have it."""
        ports, record = self.ports, self.ports.record
        qp = h.constant(CONFIG.qp_bits, "qp")
        self.is_ours = self.segment.qp == qp
        self.connected, self.expected = Signal(), Signal(EXPECTED)
        self.ird, self.extensions = Signal(range(CONFIG.read_queue_depth + 1)), Signal()
        self.created, self.pd = Signal(), Signal(16)
        leaves = record.valid & record.ready & ~record.p.dropped & self.is_ours
        with h.m.If(leaves):
            for name, value in rfc_checks.behind(self.ulpdu, self.expected).items():
                h.m.d.sync += self.expected[name].eq(value)
            with h.m.If(~record.p.fpdu | (record.p.cause != Cause.NONE)):
                h.m.d.sync += self.connected.eq(0)
        command = ports.qp_command
        with h.m.If(command.valid & command.ready & (command.p.qp == qp)):
            with h.m.If(command.p.kind == QpCommandKind.CONNECT):
                h.m.d.sync += [
                    self.connected.eq(1),
                    self.expected.eq(FIRST),
                    self.ird.eq(command.p.ird),
                    self.extensions.eq(command.p.rfc7306),
                ]
            with h.m.If(command.p.kind == QpCommandKind.CREATE):
                h.m.d.sync += [self.created.eq(1), self.pd.eq(command.p.pd)]
        self.qp = qp

    def stored(self, name: str, qp: Value) -> Any:
        """What a memory of the block has of a QP."""
        return self.h.word(self.context.memory(name), qp)

    def state(self, *places: str) -> Value:
        """Whether the segment is at one of the places of `receiver.JUDGE_STATES`."""
        return receiver.judge_state(self.inside, *places)

    @property
    def at_work(self) -> Value:
        return ~self.state("IDLE", "COMMAND")

    @property
    def good(self) -> Value:
        """A record waits, or leaves, that has no failure, and was not dropped from the start.

        That includes all that leave without a failure and are not `dropped`.
        """
        record = self.ports.record
        dropped = receiver.judge_verdict(self.inside).dropped
        return record.valid & ~dropped & record.p.fpdu & (record.p.cause == Cause.NONE)


def stages(f: Followed) -> None:
    """How old the segment is in each state; it stands, and so does what is known of its QP."""
    h, state, age, at_work = f.h, f.state, f.age, f.at_work
    segment, inside, ports = f.segment, f.inside, f.ports
    take = inside.child("take")
    stands = Value.cast(receiver.segment_at_work(inside)) == Value.cast(segment)
    h.invariant("segment stands", ~at_work | stands)
    for number, names in {
        1: ("DECODE",),
        2: ("SELECT",),
        3: ("CONTEXT", "REFUSE"),
        4: ("SEND_CHECK", "REQUEST_CHECK", "RESPONSE_EXPECT"),
        5: ("RESPONSE_COMPARE",),
        6: ("RESPONSE_CHECK",),
    }.items():
        h.invariant(f"age {number}", ~state(*names) | (age == number))
    h.invariant("age in the end", ~state("HAND_OVER") | (age >= 3))
    h.invariant("age in an entry", ~state("ENTRY", "IMMEDIATE", "SCAN") | (age >= 5))
    refused = f.segment.kind.as_value() != FPDU
    refused |= f.checks.ports.header_cause != Cause.NONE
    h.invariant("refused", ~state("REFUSE") | refused)
    is_immediate = f.ulpdu.is_any(rfc_checks.IMMEDIATE)
    h.invariant("Immediate Data here", ~state("IMMEDIATE") | is_immediate)
    h.invariant("Send here", ~state("SCAN") | ~is_immediate)
    takes = take.signal("takes")
    coming = ports.segment
    h.invariant("takes", ~takes | (state("IDLE") & coming.valid))
    next_qp = f.context.ports.next_qp
    h.invariant("next QP", ~takes | (next_qp == coming.p.qp))
    h.invariant("its QP", ~at_work | (next_qp == segment.qp))

    # A command
    command, connects = ports.qp_command, f.context.ports.connect
    kept = f.context.ports.command
    waits, sets = take.signal("command_waits"), f.context.ports.set_pd
    in_command = state("COMMAND")
    same = Value.cast(kept) == Value.cast(command.payload)
    h.invariant("command waits", ~waits | (command.valid & same))
    h.invariant("command", ~in_command | waits)
    kind = command.p.kind
    h.invariant("connects", connects == (in_command & (kind == QpCommandKind.CONNECT)))
    h.invariant("creates", sets == (in_command & (kind == QpCommandKind.CREATE)))

    # The neighbours are asked about its QP.
    for name, select in (
        ("entries", ports.receive_entries.select),
        ("inbound", ports.inbound_requests.select),
        ("outstanding", ports.outstanding_requests.select),
    ):
        h.invariant(f"{name} of its QP", ~at_work | (select == segment.qp))
    # What they are told before is what `next_qp` becomes.
    entries = ports.receive_entries
    h.invariant("entries to come", entries.stays | (entries.arriving == coming.p.qp))
    h.invariant("entries stay", ~entries.stays | at_work)

    stays = f.following.signal("stays")
    writes = f.ulpdu.opcode == rfc_checks.WRITE
    h.invariant("stays", ~at_work | (age < 3) | (stays == writes))
    h.invariant("age of a record", ~f.good | stays | (age >= 5))

    # What is known of the QP, through two registers
    contexts = f.context
    known, word = contexts.ports, {}
    ages = {"contexts": 2, "irds": 3, "pds": 3, "extended": 1}
    registers = {"contexts": "found", "irds": "ird", "pds": "pd", "extended": "rfc7306"}
    for name, since in ages.items():
        word[name] = Value.cast(f.stored(name, segment.qp))
        read = Value.cast(contexts.memory(name).read_ports[0].data)
        register = Value.cast(getattr(known, registers[name]))
        if since > 1:
            h.invariant(f"{name} read", ~at_work | (age < since - 1) | (read == word[name]))
        h.invariant(f"{name} found", ~at_work | (age < since) | (register == word[name]))
    context = f.checks.ports.context
    end = f.following.ports.message_end == context.send_mo + f.ulpdu.payload
    h.invariant("message end", ~at_work | (age < 4) | end)
    h.invariant("context", ~at_work | (age < 3) | (Value.cast(context) == word["contexts"]))
