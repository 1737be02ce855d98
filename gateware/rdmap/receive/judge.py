"""Judges received segments by all that needs no STag, one after another.

RFC 5041, 7.1; RFC 5040, 7.2; RFC 7306, 8.2.
"""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ddp.checks import CAUSE_BITS, first_cause
from stagecoach.gateware.ddp.headers import UNTAGGED_HEADER_OCTETS, from_wire
from stagecoach.gateware.interfaces import (
    EntryPort,
    Layouts,
    QpCommandKind,
    QpFifoReader,
    QpFifoWriter,
    QpStrobe,
    SegmentKind,
)
from stagecoach.gateware.rdmap.atomic.unit import ATOMIC_OCTETS
from stagecoach.gateware.rdmap.headers import ATOMIC_RESPONSE_ULPDU, ULPDU_HEADER, Opcode
from stagecoach.gateware.rdmap.receive.checks import ReceiveChecks
from stagecoach.gateware.rdmap.receive.context import NEW_CONTEXT, ReceiveContexts, follow
from stagecoach.gateware.rdmap.receive.decode import ReceiveDecode
from stagecoach.gateware.rdmap.receive.pieces import PIECE_WRITE, ReceivePieces
from stagecoach.gateware.rdmap.receive.record import fill_record, record_layout
from stagecoach.gateware.rdmap.receive.running import ReceiveRunning
from stagecoach.gateware.rdmap.receive.scan import ENTRY_WORDS
from stagecoach.gateware.registers_apart import keep_apart
from stagecoach.hw.interface.causes import Cause

ORIGINAL_OCTET = ATOMIC_RESPONSE_ULPDU.size // 8 - ATOMIC_OCTETS - UNTAGGED_HEADER_OCTETS
"""Where the original value stands after the DDP header of an Atomic Response."""


class ReceiveJudge(wiring.Component):
    """Turns segments into records, in order, and cuts their payload into pieces.

    A record leaves when `record` is ready, and what comes with it happens then: the context of its
    QP goes on, a receive entry or outstanding request that its message ends is popped, and a Read
    or Atomic Request is pushed. That is before its STags are looked up: if one is refused, the QP
    stops, and none of it is looked at again until it is connected anew. A record must be taken
    only when all before it are dealt with; `stop` is then known here, and such a record is
    `dropped`, with no effect.

    A segment is taken in the cycle after the one in which it came, at the earliest. A record comes
    3 cycles after its segment was taken (Write), 5 (Read or Atomic Request), 7 (response), 9 (Send
    of one element, 2 more for each further one), if the receive entry is on chip; the next segment
    is taken in the cycle after it. Nothing is taken while it waits.

    Members
    -------
    qp_command: In(stream): CREATE sets the PD, CONNECT the IRD and whether the messages of RFC 7306
        are taken, and starts MSN and MO anew. Taken while `idle`, two cycles after it came at the
        earliest, one every three cycles.
    segment: In(stream) from the MPA receiver.
    running: In(config.qps), bit n for QP n.
    strict: In(1), the atomics are those of RFC 7306 only.
    receive_entries, inbound_requests, outstanding_requests, read_space: as of the `Receiver`.
    begin: Out(1), a pulse when a segment is taken.
    dropped: Out(1), a pulse for an FPDU that is dropped: its QP does not run.
    idle: In(1), all records before are dealt with.
    stop: In(QpStrobe), a record of the QP failed.
    record: Out(stream of `record_layout`).
    piece: Out, `PIECE_WRITE`; the last one of a record comes in the cycle of the record.
    """

    def __init__(self, config: RnicConfig) -> None:
        self._config = config
        layouts = Layouts(config)
        depth = config.read_queue_depth
        super().__init__(
            {
                "qp_command": In(stream.Signature(layouts.qp_command)),
                "segment": In(stream.Signature(layouts.segment)),
                "running": In(config.qps),
                "strict": In(1),
                "receive_entries": Out(EntryPort(config, ENTRY_WORDS)),
                "inbound_requests": Out(QpFifoWriter(config, layouts.inbound_request, depth)),
                "outstanding_requests": Out(
                    QpFifoReader(config, layouts.outstanding_request, depth)
                ),
                "read_space": Out(QpStrobe(config)),
                "begin": Out(1),
                "dropped": Out(1),
                "idle": In(1),
                "stop": In(QpStrobe(config)),
                "record": Out(stream.Signature(record_layout(config))),
                "piece": Out(PIECE_WRITE),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config

        entries, inbound, outstanding = (
            self.receive_entries,
            self.inbound_requests,
            self.outstanding_requests,
        )

        # The segment at work; its kind is valid a cycle after it was taken, as all of what follows
        segment = Signal(Layouts(config).segment)
        header = data.View(ULPDU_HEADER, segment.header)
        is_fpdu = segment.kind == SegmentKind.FPDU
        m.submodules.decode = decode = ReceiveDecode(config)
        kind = decode.kind
        m.d.comb += decode.segment.eq(segment)

        # A command, and in the cycle in which it is taken what it does
        command = Signal(Layouts(config).qp_command)
        command_waits = Signal()
        connecting, creating = Signal(), Signal()
        takes_command = Signal()
        m.d.sync += [
            command_waits.eq(self.qp_command.valid & ~self.qp_command.ready),
            command.eq(self.qp_command.payload),
            connecting.eq(takes_command & (self.qp_command.p.kind == QpCommandKind.CONNECT)),
            creating.eq(takes_command & (self.qp_command.p.kind == QpCommandKind.CREATE)),
        ]

        # What is far asks by registers: what they are while a segment is awaited is known a cycle
        # before. The QP of the next cycle's segment has two, for the entries and for what is near.
        takes = Signal()  # the segment that came; only in IDLE
        next_qp = Signal.like(segment.qp)
        keep_apart(next_qp, entries.coming)
        m.d.sync += [takes.eq(0), next_qp.eq(segment.qp), entries.coming.eq(segment.qp)]
        m.d.comb += [self.segment.ready.eq(takes), self.begin.eq(takes)]

        def wait() -> None:
            """IDLE follows; a command that has waited by now goes before a segment."""
            arriving = self.segment.payload.qp
            m.d.sync += [
                takes.eq(self.segment.valid & ~command_waits),
                next_qp.eq(arriving),
                entries.coming.eq(arriving),
            ]
            m.next = "IDLE"

        # Whether its QP runs
        m.submodules.running = running = ReceiveRunning(config)
        drops = running.drops
        m.d.comb += [
            running.running.eq(self.running),
            running.coming.eq(next_qp),
            running.qp.eq(segment.qp),
            running.connect.valid.eq(connecting),
            running.connect.qp.eq(command.qp),
            running.stop.valid.eq(self.stop.valid),
            running.stop.qp.eq(self.stop.qp),
        ]

        # What is known of the QP
        m.submodules.contexts = contexts = ReceiveContexts(config)
        context = Signal.like(contexts.found)
        message_end = Signal(33)
        m.d.comb += [
            # Asked for a cycle earlier than the rest, because it is wanted from a register.
            contexts.next_qp.eq(next_qp),
            contexts.qp.eq(segment.qp),
            contexts.write_qp.eq(Mux(connecting, command.qp, segment.qp)),
            contexts.command.eq(command),
            contexts.set_pd.eq(creating),
            contexts.connect.eq(connecting),
        ]

        # The neighbours' state of the QP, valid two cycles after the segment was taken. The QP has
        # a register for it.
        asked = Signal(config.qp_bits)
        keep_apart(asked, segment)
        m.d.comb += [
            entries.select.eq(segment.qp),
            inbound.select.eq(asked),
            outstanding.select.eq(asked),
        ]

        # The checks
        m.submodules.checks = checks = ReceiveChecks(config)
        payload = checks.payload
        entry_on_chip = Signal()
        m.d.sync += entry_on_chip.eq(entries.level != 0)
        m.d.comb += [
            checks.segment.eq(segment),
            checks.context.eq(context),
            checks.ird.eq(contexts.ird),
            checks.rfc7306.eq(contexts.rfc7306),
            checks.strict.eq(self.strict),
            checks.posted.eq(entries.posted),
            checks.inbound_level.eq(inbound.level),
            checks.outstanding_level.eq(outstanding.level),
            checks.outstanding_head.eq(outstanding.head),
        ]
        following = follow(m, context, kind, message_end, checks.response_octets)
        m.d.sync += message_end.eq(context.send_mo + payload)
        stays = Signal()  # a Write changes nothing, but may be the first FPDU
        m.d.comb += contexts.context.eq(Mux(stays, context, following))
        with m.If(stays):
            m.d.comb += contexts.context.started.eq(1)
        with m.If(connecting):
            m.d.comb += contexts.context.eq(NEW_CONTEXT)

        # Pieces
        m.submodules.pieces = pieces = ReceivePieces(config)
        bank = Signal()
        m.d.comb += [
            pieces.header.eq(header),
            pieces.kind.eq(kind),
            pieces.payload.eq(payload),
            pieces.outstanding.eq(outstanding.head),
            pieces.bank.eq(bank),
            pieces.word.eq(entries.word),
            entries.word_address.eq(pieces.word_address),
            self.piece.eq(pieces.piece),
        ]
        complete = Signal()
        exhausted = Signal()
        m.d.sync += [complete.eq(pieces.complete), exhausted.eq(pieces.exhausted)]
        _fill_inbound_request(m, inbound.item, header, kind.atomic_request)
        read_octets = from_wire(header.read_request.rdmap.length)

        # The record
        record = self.record.payload
        dropped = Signal()
        halted = Signal()  # `drops` as it was a cycle ago
        first = Signal()
        cause = Signal(CAUSE_BITS)
        failed = ~is_fpdu | checks.header_failed
        is_write = kind.opcode == Opcode.RDMA_WRITE
        tells = Signal()  # a Terminate: it is what is told
        refused = Signal()  # a segment that takes a receive entry failed without its payload
        piece_count = Signal.like(record.pieces)
        delivers = Signal()
        position = Signal.like(record.position)
        fill_record(m, record, segment, kind, outstanding.head, message_end, tells)
        m.d.comb += [
            record.pd.eq(contexts.pd),
            record.dropped.eq(dropped | halted | running.stopped),
            record.first.eq(first),
            record.cause.eq(cause),
            record.bank.eq(bank),
            record.pieces.eq(Mux(record.dropped, 0, piece_count)),
            record.position.eq(position),
            record.delivers.eq(delivers),
        ]
        with m.If(kind.takes_entry):
            m.d.comb += record.index.eq(entries.index)

        # The queues hear of it a cycle later; the next segment looks at them after that.
        leaving = Signal()
        consumed = Signal()
        popping = Signal()
        keep_apart(popping, entries.pop)
        m.d.comb += [
            entries.popping.eq(popping),
            leaving.eq(self.record.valid & self.record.ready & ~record.dropped),
            consumed.eq(leaving & delivers),
            contexts.write.eq(leaving | connecting),
            inbound.push_qp.eq(asked),
            outstanding.pop_qp.eq(asked),
        ]
        m.d.sync += [
            self.dropped.eq(self.record.valid & self.record.ready & record.dropped & is_fpdu),
            entries.pop.eq(consumed & kind.takes_entry),
            popping.eq(consumed & kind.takes_entry),
            outstanding.pop.eq(consumed & kind.response),
            inbound.push.eq(consumed & kind.request),
            halted.eq(drops),
            # Far away: a cycle later
            self.read_space.valid.eq(outstanding.pop),
            self.read_space.qp.eq(asked),
        ]

        # A state that looks for a failure takes it whether there is one or not: the enables of the
        # registers do not wait for it.
        with m.FSM():
            # Takes a segment, or a command.
            with m.State("IDLE"):
                m.d.comb += [
                    takes_command.eq(command_waits & self.idle & ~takes),
                    pieces.restart.eq(1),
                ]
                m.d.sync += [
                    segment.eq(self.segment.payload),
                    asked.eq(self.segment.payload.qp),
                    cause.eq(Cause.NONE),
                    tells.eq(0),
                    piece_count.eq(0),
                    delivers.eq(0),
                ]
                wait()
                with m.If(takes_command):
                    m.next = "COMMAND"
                with m.If(takes):
                    m.d.sync += takes.eq(0)
                    m.next = "DECODE"
            # The command is carried out; `command_waits` is still about it.
            with m.State("COMMAND"):
                m.d.comb += self.qp_command.ready.eq(1)
                wait()
            # Waits for the checks of the header.
            with m.State("DECODE"):
                m.next = "SELECT"
            # Lets a segment go that is dropped, or a Write: that is known by its header.
            with m.State("SELECT"):
                m.d.sync += [
                    context.eq(contexts.found),
                    position.eq(decode.position),
                    dropped.eq(drops),
                    first.eq(is_fpdu & ~contexts.found.started),
                    stays.eq(is_write),
                    # An empty Write says nothing of a buffer (RFC 5041, 5.2).
                    piece_count.eq(is_write & (payload != 0)),
                ]
                m.next = "CONTEXT"
                with m.If(drops | (is_write & ~failed)):
                    m.next = "HAND_OVER"
                with m.Elif(failed):
                    m.next = "REFUSE"
            # Waits for the context; goes the way of the segment's opcode.
            with m.State("CONTEXT"):
                with m.If(kind.request):
                    m.next = "REQUEST_CHECK"
                with m.Elif(kind.response):
                    m.next = "RESPONSE_EXPECT"
                with m.Else():
                    m.next = "SEND_CHECK"
            # Takes the failure of the header, or what there is instead of an FPDU.
            with m.State("REFUSE"):
                reports = [(segment.kind == report, c) for report, c in _REPORTS.items()]
                m.d.sync += [
                    tells.eq(checks.header_cause == Cause.TERMINATE_RECEIVED),
                    cause.eq(Mux(is_fpdu, checks.header_cause, first_cause(reports))),
                    piece_count.eq(0),
                ]
                m.next = "HAND_OVER"
            # Judges a segment that takes a receive entry, without its payload. A failure is looked
            # at in the next state, the choice of which does not wait for it.
            with m.State("SEND_CHECK"):
                m.d.sync += [
                    cause.eq(checks.send_cause),
                    refused.eq(checks.send_cause != Cause.NONE),
                ]
                with m.If(~entry_on_chip):
                    m.next = "ENTRY"
                with m.Elif(kind.immediate):
                    m.next = "IMMEDIATE"
                with m.Else():
                    m.next = "SCAN"
            # Waits for the receive entry, which is being fetched, unless the segment or QP failed.
            with m.State("ENTRY"):
                m.d.comb += pieces.restart.eq(1)
                with m.If(drops | refused):
                    m.d.sync += dropped.eq(drops)
                    m.next = "HAND_OVER"
                with m.Elif(entry_on_chip):
                    m.next = "SCAN"
                    with m.If(kind.immediate):
                        m.next = "IMMEDIATE"
            # Judges the length of Immediate Data, of which nothing is placed.
            with m.State("IMMEDIATE"):
                with m.If(~refused):
                    m.d.sync += [
                        cause.eq(checks.immediate_cause),
                        delivers.eq(checks.immediate_cause == Cause.NONE),
                    ]
                m.next = "HAND_OVER"
            # Waits until the payload was cut over the elements of the receive entry.
            with m.State("SCAN"):
                fits = complete & ~message_end[32]
                good = fits & ~checks.other_opcode
                with m.If(~refused):
                    m.d.sync += [
                        cause.eq(
                            Mux(
                                fits,
                                Mux(checks.other_opcode, Cause.UNEXPECTED_OPCODE, Cause.NONE),
                                Cause.UNTAGGED_TOO_LONG,
                            )
                        ),
                        piece_count.eq(Mux(good, pieces.count, 0)),
                        delivers.eq(kind.last & good),
                    ]
                with m.If(refused | complete | exhausted):
                    m.next = "HAND_OVER"
            # Judges a request but for its source or target.
            with m.State("REQUEST_CHECK"):
                request_cause = Mux(
                    kind.atomic_request, checks.atomic_request_cause, checks.request_cause
                )
                good = request_cause == Cause.NONE
                m.d.sync += [
                    cause.eq(request_cause),
                    piece_count.eq((kind.atomic_request | (read_octets != 0)) & good),
                    delivers.eq(good),
                ]
                m.next = "HAND_OVER"
            # Waits for the RDMA Read or atomic that is answered.
            with m.State("RESPONSE_EXPECT"):
                m.next = "RESPONSE_COMPARE"
            # Waits for the comparison with it.
            with m.State("RESPONSE_COMPARE"):
                m.next = "RESPONSE_CHECK"
            # Judges a response but for the rights of its STag.
            with m.State("RESPONSE_CHECK"):
                response_cause = Mux(
                    kind.atomic_response, checks.atomic_response_cause, checks.response_cause
                )
                good = response_cause == Cause.NONE
                m.d.sync += [
                    cause.eq(response_cause),
                    piece_count.eq((kind.atomic_response | (payload != 0)) & good),
                    delivers.eq(kind.last & good),
                ]
                with m.If(kind.atomic_response):
                    m.d.sync += position.eq(decode.position + ORIGINAL_OCTET)
                m.next = "HAND_OVER"
            # Waits until the record is taken.
            with m.State("HAND_OVER"):
                m.d.comb += self.record.valid.eq(1)
                with m.If(self.record.ready):
                    m.d.sync += bank.eq(~bank)
                    wait()
        return m


_REPORTS = {
    SegmentKind.CRC_ERROR: Cause.CRC_ERROR,
    SegmentKind.CLOSED: Cause.LLP_CLOSED,
    SegmentKind.CLOSED_INSIDE: Cause.LLP_CLOSED_INSIDE_FPDU,
    SegmentKind.MARKER_ERROR: Cause.MARKER_MISMATCH,
}
"""What the MPA receiver reports instead of an FPDU."""


def _fill_inbound_request(m: Module, item: data.View, header: data.View, is_atomic: Value) -> None:
    """Drives `item`, an `inbound_request`, with the fields of the `ULPDU_HEADER` `header`."""
    read, atomic = item.of.read, item.of.atomic
    read_request = header.read_request.rdmap
    atomic_request = header.atomic_request.rdmap
    m.d.comb += [
        item.atomic.eq(is_atomic),
        atomic.stag.eq(from_wire(atomic_request.stag)),
        atomic.tagged_offset.eq(from_wire(atomic_request.tagged_offset)),
        atomic.identifier.eq(from_wire(atomic_request.identifier)),
        atomic.operands.operation.eq(atomic_request.operation),
    ]
    for name in ("data", "mask", "compare", "compare_mask"):
        m.d.comb += getattr(atomic.operands, name).eq(from_wire(getattr(atomic_request, name)))
    # What only an atomic has keeps whatever stands there: no logic for bits that mean nothing.
    with m.If(~is_atomic):
        m.d.comb += [
            read.source_stag.eq(from_wire(read_request.source_stag)),
            read.source_tagged_offset.eq(from_wire(read_request.source_tagged_offset)),
            read.sink_stag.eq(from_wire(read_request.sink_stag)),
            read.sink_tagged_offset.eq(from_wire(read_request.sink_tagged_offset)),
            read.length.eq(from_wire(read_request.length)),
        ]
