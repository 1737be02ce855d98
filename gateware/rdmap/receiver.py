"""Checks received segments, places them and delivers their messages.

RFC 5041, 7; RFC 5040, 7; RFC 7306, 8.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, ValueLike
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gateware.config import RnicConfig
from gateware.ddp.checks import CAUSE_BITS, first_cause, tagged_status_checks
from gateware.ddp.headers import TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS, from_wire
from gateware.interfaces import (
    TERMINATED_HEADER_OCTETS,
    DeliveryKind,
    EntryPort,
    Layouts,
    QpCommandKind,
    QpFifoReader,
    QpFifoWriter,
    QpStrobe,
    SegmentKind,
    StagClient,
    StagStatus,
)
from gateware.rdmap.atomic_unit import ATOMIC_OCTETS
from gateware.rdmap.checks import (
    IMMEDIATE_OPCODES,
    INVALIDATING_OPCODES,
    REQUEST_OPCODES,
    RESPONSE_OPCODES,
    SEND_OPCODES,
    SOLICITING_OPCODES,
    atomic_status_checks,
    invalidate_status_checks,
    is_any,
    rdmap_control,
    read_status_checks,
)
from gateware.rdmap.headers import ATOMIC_RESPONSE_ULPDU, ULPDU_HEADER, Opcode
from gateware.rdmap.receive_checks import ReceiveChecks
from gateware.rdmap.receive_context import CONTEXT, NEW_CONTEXT, ReceiveContexts
from gateware.rdmap.receive_scan import ENTRY_WORDS, PIECE, ReceiveScan
from hw.interface.causes import Cause
from hw.interface.queue_entries import SCATTER_GATHER_ELEMENTS, CompletionFlags, Rights

ORIGINAL_OCTET = ATOMIC_RESPONSE_ULPDU.size // 8 - ATOMIC_OCTETS - UNTAGGED_HEADER_OCTETS
"""Where the original value stands behind the DDP header of an Atomic Response."""

ULPDU_LENGTH_OCTETS = 2
"""Octets of the FPDU before its ULPDU (RFC 5044, 4.1)."""


class Receiver(wiring.Component):
    """Takes segments in order and ends each FPDU of the store with one releasing placement.

    Every check of a segment is made before its first placement. The first failure stops the QP:
    `error` tells the cause once, nothing of the segment is placed, and later segments of the QP
    are only released until it is connected anew. So are segments of QPs that are not `running`.
    A delivery leaves after the last placement of its message and counts in `after` all placements
    with octets so far, which `queues/delivery_gate.py` waits for. A Read or Atomic Request is
    delivered, too: it may be answered when all that came before it is visible (RFC 5040, 5.5). The
    original value in an Atomic Response is placed in the byte order of the host.
    The STag that a Send invalidates is checked last, and is invalid before the last segment of the
    Send is placed. Immediate Data takes a receive entry as a Send does, and is in its delivery.

    One segment at a time; an RDMA Write takes 11 cycles if the STag table answers at once.

    Members
    -------
    qp_command: In(stream): CREATE sets the PD, CONNECT the IRD and starts MSN and MO anew.
    segment: In(stream) from the MPA receiver.
    running: In(config.qps), bit n for QP n.
    receive_entries: consumer's side of the receive rings.
    stag: client of the STag table. invalidate: STags that the peer invalidates.
    placement, delivery, error: Out(stream).
    strict: In(1), the atomics are those of RFC 7306 only.
    inbound_requests: Read and Atomic Requests for the transmitter, each before its delivery.
    outstanding_requests: RDMA Reads and atomics that the transmitter asked for, oldest first;
        `read_space` pulses when one is done.
    first_segment: pulses at the first FPDU of a connection.
    placing: Out(1), from a cycle after the first request to the STag table until a cycle after the
        last placement of a segment: host addresses are held. Low between segments.
    begin, end: Out(1), a pulse when a segment is taken, and when all about it has been issued.
    """

    def __init__(self, config: RnicConfig) -> None:
        self._config = config
        self._layouts = layouts = Layouts(config)
        depth = config.read_queue_depth
        super().__init__(
            {
                "qp_command": In(stream.Signature(layouts.qp_command)),
                "segment": In(stream.Signature(layouts.segment)),
                "running": In(config.qps),
                "strict": In(1),
                "receive_entries": Out(EntryPort(config, ENTRY_WORDS)),
                "stag": Out(StagClient(layouts)),
                "invalidate": Out(stream.Signature(layouts.stag)),
                "placement": Out(stream.Signature(layouts.placement)),
                "delivery": Out(stream.Signature(layouts.delivery)),
                "inbound_requests": Out(QpFifoWriter(config, layouts.inbound_request, depth)),
                "outstanding_requests": Out(
                    QpFifoReader(config, layouts.outstanding_request, depth)
                ),
                "first_segment": Out(QpStrobe(config)),
                "read_space": Out(QpStrobe(config)),
                "error": Out(stream.Signature(layouts.qp_error)),
                "placing": Out(1),
                "begin": Out(1),
                "end": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, layouts = self._config, self._layouts

        # The segment at work
        segment = Signal(layouts.segment)
        header = data.View(ULPDU_HEADER, segment.header)
        tagged, untagged = header.tagged, header.untagged
        read_request = header.read_request.rdmap
        atomic_request = header.atomic_request.rdmap
        is_tagged = tagged.control.tagged
        last = tagged.control.last
        opcode = rdmap_control(tagged).opcode
        invalidate_stag = from_wire(untagged.rsvd_ulp_word)
        mo = from_wire(untagged.mo)

        # Valid one cycle after the segment was taken, as all of what follows.
        is_send = Signal()
        is_immediate = Signal()
        takes_entry = Signal()
        is_request = Signal()
        is_atomic_request = Signal()
        is_response = Signal()
        is_atomic_response = Signal()
        invalidates = Signal()
        m.d.sync += [
            is_send.eq(is_any(opcode, SEND_OPCODES)),
            is_immediate.eq(is_any(opcode, IMMEDIATE_OPCODES)),
            takes_entry.eq(is_any(opcode, (*SEND_OPCODES, *IMMEDIATE_OPCODES))),
            is_request.eq(is_any(opcode, REQUEST_OPCODES)),
            is_atomic_request.eq(opcode == Opcode.ATOMIC_REQUEST),
            is_response.eq(is_any(opcode, RESPONSE_OPCODES)),
            is_atomic_response.eq(opcode == Opcode.ATOMIC_RESPONSE),
            invalidates.eq(last & is_any(opcode, INVALIDATING_OPCODES)),
        ]
        first_octet = Mux(
            is_tagged,
            TAGGED_HEADER_OCTETS + ULPDU_LENGTH_OCTETS,
            UNTAGGED_HEADER_OCTETS + ULPDU_LENGTH_OCTETS,
        )
        first_position = Signal(config.store_address_bits + 3)
        qp_running = Signal()
        m.d.sync += [
            first_position.eq(Cat(Const(0, 3), segment.store_address) + first_octet),
            qp_running.eq(self.running.bit_select(segment.qp, 1)),
        ]

        # What is known of the QP: read with the segment, written when the segment was checked
        m.submodules.contexts = contexts = ReceiveContexts(config)
        context = Signal(CONTEXT)
        command = self.qp_command.payload
        m.d.comb += [
            # Asked for a cycle earlier than the rest, because it is wanted from a register.
            contexts.next_qp.eq(self.segment.payload.qp),
            contexts.qp.eq(segment.qp),
            contexts.write_qp.eq(segment.qp),
            contexts.context.eq(context),
            contexts.command.eq(command),
        ]

        # The neighbours' state of the QP, valid two cycles after the segment was taken
        entries, inbound, outstanding = (
            self.receive_entries,
            self.inbound_requests,
            self.outstanding_requests,
        )
        m.d.comb += [
            entries.select.eq(segment.qp),
            inbound.select.eq(segment.qp),
            outstanding.select.eq(segment.qp),
        ]

        # What needs no STag to be judged
        m.submodules.checks = checks = ReceiveChecks(config)
        payload = checks.payload
        message_end = Signal(33)
        entry_on_chip = Signal()
        m.d.sync += entry_on_chip.eq(entries.level != 0)
        m.d.comb += [
            checks.segment.eq(segment),
            checks.context.eq(context),
            checks.ird.eq(contexts.ird),
            checks.strict.eq(self.strict),
            checks.posted.eq(entries.posted),
            checks.inbound_level.eq(inbound.level),
            checks.outstanding_level.eq(outstanding.level),
            checks.outstanding_head.eq(outstanding.head),
        ]

        # Pieces: ranges to check at the STag table, and then to place if they are payload
        m.submodules.scan = scan = ReceiveScan()
        m.submodules.pieces = pieces = Memory(shape=PIECE, depth=SCATTER_GATHER_ELEMENTS, init=[])
        m.submodules.addresses = addresses = Memory(
            shape=64, depth=SCATTER_GATHER_ELEMENTS, init=[]
        )
        piece_write, piece_read = pieces.write_port(), pieces.read_port(domain="comb")
        address_write, address_read = addresses.write_port(), addresses.read_port(domain="comb")
        piece_number = Signal(range(SCATTER_GATHER_ELEMENTS))
        piece_count = Signal(range(SCATTER_GATHER_ELEMENTS + 1))
        piece = piece_read.data
        is_last_piece = Signal()
        m.d.comb += [
            scan.mo.eq(mo),
            scan.payload.eq(payload),
            scan.word.eq(entries.word),
            entries.word_address.eq(scan.word_address),
            piece_write.addr.eq(scan.count),
            piece_write.data.eq(scan.piece),
            piece_write.en.eq(scan.piece_valid & is_send),
            piece_read.addr.eq(piece_number),
            address_read.addr.eq(piece_number),
            address_write.addr.eq(piece_number),
            address_write.data.eq(self.stag.response.address),
            is_last_piece.eq(piece_number + 1 >= piece_count),
        ]
        rights = Signal(4)
        invalidating = Signal()
        m.d.comb += [
            self.stag.request.payload.stag.eq(Mux(invalidating, invalidate_stag, piece.stag)),
            self.stag.request.payload.tagged_offset.eq(piece.tagged_offset),
            self.stag.request.payload.octets.eq(piece.octets),
            self.stag.request.payload.rights.eq(Mux(invalidating, 0, rights)),
            self.stag.request.payload.exclusive.eq(invalidating),
            self.invalidate.payload.stag.eq(invalidate_stag),
            self.stag.request.payload.pd.eq(contexts.pd),
            self.stag.request.payload.qp.eq(segment.qp),
        ]
        status = self.stag.response.status
        status_cause = Signal(CAUSE_BITS)
        misaligned = Signal()  # the target of an Atomic Request (RFC 7306, 8.2)
        with m.Switch(opcode):
            with m.Case(Opcode.RDMA_WRITE):
                m.d.comb += [
                    rights.eq(Rights.REMOTE_WRITE),
                    status_cause.eq(
                        first_cause(tagged_status_checks(status, Cause.WRITE_NOT_PERMITTED))
                    ),
                ]
            with m.Case(Opcode.RDMA_READ_RESPONSE):
                m.d.comb += [
                    rights.eq(Rights.LOCAL_WRITE),
                    status_cause.eq(
                        first_cause(tagged_status_checks(status, Cause.TAGGED_STAG_INVALID))
                    ),
                ]
            with m.Case(Opcode.RDMA_READ_REQUEST):
                m.d.comb += [
                    rights.eq(Rights.REMOTE_READ),
                    status_cause.eq(first_cause(read_status_checks(status))),
                ]
            with m.Case(Opcode.ATOMIC_REQUEST):
                m.d.comb += [
                    rights.eq(Rights.REMOTE_READ | Rights.REMOTE_WRITE),
                    status_cause.eq(
                        first_cause(
                            [*atomic_status_checks(status), (misaligned, Cause.ATOMIC_MISALIGNED)]
                        )
                    ),
                    misaligned.eq(self.stag.response.address[:3].any()),
                ]
            with m.Case(Opcode.ATOMIC_RESPONSE):
                m.d.comb += [
                    rights.eq(Rights.LOCAL_WRITE),
                    status_cause.eq(Cause.LOCAL_SEND_PROTECTION),
                ]
            with m.Default():
                m.d.comb += [
                    rights.eq(Rights.LOCAL_WRITE),
                    status_cause.eq(Cause.LOCAL_RECEIVE_PROTECTION),
                ]

        # Outputs, held in registers while their states wait
        position = Signal.like(first_position)
        placements = Signal(16)
        cause = Signal(CAUSE_BITS)
        placement = self.placement.payload
        placed_octets = Mux(piece_count == 0, 0, piece.octets[: len(placement.octets)])
        m.d.comb += [
            placement.qp.eq(segment.qp),
            placement.address.eq(address_read.data),
            placement.octets.eq(placed_octets),
            placement.store_octet.eq(position[:3]),
            placement.store_address.eq(position[3:]),
            placement.reversed.eq(is_atomic_response),
            placement.release.eq(is_last_piece),
            placement.store_end.eq(segment.store_end),
        ]
        delivery = self.delivery.payload
        m.d.comb += [
            delivery.kind.eq(
                Mux(
                    takes_entry,
                    DeliveryKind.RECEIVE,
                    Mux(is_response, DeliveryKind.READ, DeliveryKind.REQUEST),
                )
            ),
            delivery.qp.eq(segment.qp),
            delivery.index.eq(Mux(takes_entry, entries.index, 0)),
            delivery.length.eq(
                Mux(
                    is_atomic_response,
                    ATOMIC_OCTETS,
                    Mux(is_response, outstanding.head.length, message_end[:32]),
                )
            ),
            delivery.flags.eq(
                Mux(is_any(opcode, SOLICITING_OPCODES), CompletionFlags.SOLICITED, 0)
                | Mux(is_any(opcode, INVALIDATING_OPCODES), CompletionFlags.INVALIDATED, 0)
                | Mux(is_immediate, CompletionFlags.IMMEDIATE, 0)
            ),
            delivery.detail.eq(Mux(is_immediate, header.immediate.immediate_data, invalidate_stag)),
            delivery.after.eq(placements),
        ]
        error = self.error.payload
        is_fpdu = segment.kind == SegmentKind.FPDU
        first_fpdu = Signal()
        m.d.comb += [
            error.qp.eq(segment.qp),
            error.cause.eq(cause),
        ]
        with m.Switch(cause):
            with m.Case(Cause.LOCAL_RECEIVE_PROTECTION):
                m.d.comb += error.index.eq(entries.index)
            with m.Case(Cause.LOCAL_SEND_PROTECTION):
                m.d.comb += error.index.eq(outstanding.head.length)
        with m.If(is_fpdu):
            m.d.comb += [
                error.ulpdu_length.eq(segment.ulpdu_length),
                error.header.eq(segment.header[: 8 * TERMINATED_HEADER_OCTETS]),
                error.first_fpdu.eq(first_fpdu),
            ]
            # Of a Terminate, what it says.
            with m.If(cause == Cause.TERMINATE_RECEIVED):
                m.d.comb += error.header.eq(segment.header[8 * UNTAGGED_HEADER_OCTETS :])
        item = inbound.item
        read, atomic = item.of.read, item.of.atomic
        m.d.comb += item.atomic.eq(is_atomic_request)
        with m.If(is_atomic_request):
            m.d.comb += [
                atomic.stag.eq(from_wire(atomic_request.stag)),
                atomic.tagged_offset.eq(from_wire(atomic_request.tagged_offset)),
                atomic.identifier.eq(from_wire(atomic_request.identifier)),
                atomic.operands.operation.eq(atomic_request.operation),
            ]
            for name in ("data", "mask", "compare", "compare_mask"):
                m.d.comb += getattr(atomic.operands, name).eq(
                    from_wire(getattr(atomic_request, name))
                )
        with m.Else():
            m.d.comb += [
                read.source_stag.eq(from_wire(read_request.source_stag)),
                read.source_tagged_offset.eq(from_wire(read_request.source_tagged_offset)),
                read.sink_stag.eq(from_wire(read_request.sink_stag)),
                read.sink_tagged_offset.eq(from_wire(read_request.sink_tagged_offset)),
                read.length.eq(from_wire(read_request.length)),
            ]
        m.d.comb += [
            inbound.push_qp.eq(segment.qp),
            self.first_segment.qp.eq(segment.qp),
        ]
        has_delivery = Signal()
        delivered = Signal()
        # The queues hear of it a cycle later; the next segment looks at them after that.
        m.d.sync += [
            entries.pop.eq(delivered & takes_entry),
            entries.pop_qp.eq(segment.qp),
            outstanding.pop.eq(delivered & is_response),
            outstanding.pop_qp.eq(segment.qp),
            self.read_space.valid.eq(delivered & is_response),
            self.read_space.qp.eq(segment.qp),
        ]

        def stop(reason: ValueLike) -> None:
            m.d.sync += [cause.eq(reason), context.stopped.eq(1)]
            m.d.sync += [piece_count.eq(0), has_delivery.eq(0)]
            m.next = "ERROR"

        def finish() -> None:
            m.d.comb += self.end.eq(1)
            m.next = "IDLE"

        with m.FSM() as fsm:
            # Takes a command, or else a segment.
            with m.State("IDLE"):
                m.d.comb += [
                    self.qp_command.ready.eq(1),
                    self.segment.ready.eq(~self.qp_command.valid),
                ]
                m.d.comb += contexts.write_qp.eq(command.qp)
                m.d.comb += contexts.context.eq(NEW_CONTEXT)
                with m.If(self.qp_command.valid):
                    with m.If(command.kind == QpCommandKind.CREATE):
                        m.d.comb += contexts.set_pd.eq(1)
                    with m.If(command.kind == QpCommandKind.CONNECT):
                        m.d.comb += [contexts.set_ird.eq(1), contexts.write.eq(1)]
                with m.Elif(self.segment.valid):
                    m.d.comb += self.begin.eq(1)
                    m.next = "DECODE"
                m.d.sync += segment.eq(self.segment.payload)
                m.d.sync += [piece_number.eq(0), piece_count.eq(0), has_delivery.eq(0)]
                m.d.sync += invalidating.eq(0)
                m.d.comb += scan.restart.eq(1)
            # Waits for the checks of the header.
            with m.State("DECODE"):
                m.next = "CONTEXT"
            # Waits for what is known of the QP.
            with m.State("CONTEXT"):
                m.d.sync += [
                    context.eq(contexts.found),
                    cause.eq(checks.header_cause),
                    position.eq(first_position),
                ]
                m.next = "SELECT"
            # Goes the way of the segment's opcode, if it has one.
            with m.State("SELECT"):
                m.d.comb += piece_write.addr.eq(0)
                with m.If(is_tagged):
                    m.d.comb += [
                        piece_write.data.stag.eq(from_wire(tagged.stag)),
                        piece_write.data.tagged_offset.eq(from_wire(tagged.tagged_offset)),
                        piece_write.data.octets.eq(payload),
                    ]
                with m.Else():
                    m.d.comb += [
                        piece_write.data.stag.eq(read.source_stag),
                        piece_write.data.tagged_offset.eq(read.source_tagged_offset),
                        piece_write.data.octets.eq(
                            Mux(is_atomic_request, ATOMIC_OCTETS, read.length)
                        ),
                    ]
                m.d.comb += piece_write.en.eq(1)
                m.d.sync += message_end.eq(context.send_mo + payload)
                with m.If(~qp_running | context.stopped):
                    with m.If(is_fpdu):
                        m.next = "PLACE"
                    with m.Else():
                        finish()
                with m.Elif(~is_fpdu):
                    stop(first_cause([(segment.kind == kind, c) for kind, c in _KINDS.items()]))
                with m.Else():
                    m.d.comb += self.first_segment.valid.eq(~context.started)
                    m.d.sync += [context.started.eq(1), first_fpdu.eq(~context.started)]
                    with m.If(cause != Cause.NONE):
                        stop(cause)
                    with m.Else():
                        with m.Switch(opcode):
                            with m.Case(Opcode.RDMA_WRITE):
                                # An empty Write says nothing of a buffer (RFC 5041, 5.2).
                                with m.If(payload == 0):
                                    m.next = "PLACE"
                                with m.Else():
                                    m.d.sync += piece_count.eq(1)
                                    m.next = "LOOKUP"
                            with m.Case(*REQUEST_OPCODES):
                                m.next = "REQUEST_CHECK"
                            with m.Case(*RESPONSE_OPCODES):
                                m.next = "RESPONSE_EXPECT"
                            with m.Default():
                                m.next = "SEND_CHECK"
            # Judges a segment that takes a receive entry, without its payload.
            with m.State("SEND_CHECK"):
                with m.If(checks.send_cause != Cause.NONE):
                    stop(checks.send_cause)
                with m.Elif(~entry_on_chip):
                    m.next = "ENTRY"
                with m.Elif(is_immediate):
                    m.next = "IMMEDIATE"
                with m.Else():
                    m.next = "SCAN"
            # Waits for the receive entry, which is being fetched, unless the QP fails meanwhile.
            with m.State("ENTRY"):
                m.d.comb += scan.restart.eq(1)
                with m.If(~qp_running):
                    m.next = "PLACE"
                with m.Elif(entries.level != 0):
                    with m.If(is_immediate):
                        m.next = "IMMEDIATE"
                    with m.Else():
                        m.next = "SCAN"
            # Judges the length of Immediate Data, of which nothing is placed.
            with m.State("IMMEDIATE"):
                with m.If(checks.immediate_cause != Cause.NONE):
                    stop(checks.immediate_cause)
                with m.Else():
                    m.d.sync += [has_delivery.eq(1), context.send_msn.eq(context.send_msn + 1)]
                    m.next = "PLACE"
            # Waits until the payload was cut over the elements of the receive entry.
            with m.State("SCAN"):
                m.d.sync += piece_count.eq(scan.count)
                with m.If(scan.complete & ~message_end[32]):
                    m.d.sync += [
                        has_delivery.eq(last),
                        context.send_mo.eq(Mux(last, 0, message_end)),
                        context.send_msn.eq(context.send_msn + last),
                        context.send_begun.eq(~last),
                        context.send_opcode.eq(opcode),
                    ]
                    with m.If(checks.other_opcode):
                        stop(Cause.UNEXPECTED_OPCODE)
                    with m.Elif(scan.count != 0):
                        m.next = "LOOKUP"
                    with m.Elif(invalidates):
                        m.next = "INVALIDATE_CHECK"
                    with m.Else():
                        m.next = "PLACE"
                with m.Elif(scan.complete | scan.exhausted):
                    stop(Cause.UNTAGGED_TOO_LONG)
            # Judges a request but for its source or target.
            with m.State("REQUEST_CHECK"):
                request_cause = Mux(
                    is_atomic_request, checks.atomic_request_cause, checks.request_cause
                )
                with m.If(request_cause != Cause.NONE):
                    stop(request_cause)
                with m.Elif(~is_atomic_request & (read.length == 0)):
                    m.next = "PUSH"
                with m.Else():
                    m.d.sync += piece_count.eq(1)
                    m.next = "LOOKUP"
            # Hands a request to the transmitter.
            with m.State("PUSH"):
                m.d.comb += inbound.push.eq(1)
                m.d.sync += context.request_msn.eq(context.request_msn + 1)
                m.d.sync += [piece_count.eq(0), has_delivery.eq(1)]
                m.next = "PLACE"
            # Waits for the RDMA Read or atomic that is answered.
            with m.State("RESPONSE_EXPECT"):
                m.next = "RESPONSE_COMPARE"
            # Waits for the comparison with it.
            with m.State("RESPONSE_COMPARE"):
                m.next = "RESPONSE_CHECK"
            # Judges a response but for the rights of its STag.
            with m.State("RESPONSE_CHECK"):
                m.d.sync += has_delivery.eq(last)
                m.d.sync += context.response_octets.eq(Mux(last, 0, checks.response_octets))
                with m.If(is_atomic_response):
                    m.d.comb += [
                        piece_write.addr.eq(0),
                        piece_write.data.stag.eq(outstanding.head.sink_stag),
                        piece_write.data.tagged_offset.eq(outstanding.head.sink_tagged_offset),
                        piece_write.data.octets.eq(ATOMIC_OCTETS),
                        piece_write.en.eq(1),
                    ]
                    m.d.sync += [
                        position.eq(first_position + ORIGINAL_OCTET),
                        context.atomic_msn.eq(context.atomic_msn + 1),
                        context.response_octets.eq(0),
                        piece_count.eq(1),
                    ]
                    with m.If(checks.atomic_response_cause != Cause.NONE):
                        stop(checks.atomic_response_cause)
                    with m.Else():
                        m.next = "LOOKUP"
                with m.Elif(checks.response_cause != Cause.NONE):
                    stop(checks.response_cause)
                with m.Elif(payload == 0):
                    m.next = "PLACE"
                with m.Else():
                    m.d.sync += piece_count.eq(1)
                    m.next = "LOOKUP"
            # Asks the STag table about a piece.
            with m.State("LOOKUP"):
                m.d.comb += self.stag.request.valid.eq(1)
                with m.If(self.stag.request.ready):
                    m.next = "ANSWER"
            # Waits for the answer; nothing is placed before all pieces are good.
            with m.State("ANSWER"), m.If(self.stag.response_valid):
                m.d.comb += address_write.en.eq(1)
                with m.If((status != StagStatus.OK) | misaligned):
                    stop(status_cause)
                with m.Elif(~is_last_piece):
                    m.d.sync += piece_number.eq(piece_number + 1)
                    m.next = "LOOKUP"
                with m.Else():
                    m.d.sync += piece_number.eq(0)
                    with m.If(is_request):
                        m.next = "PUSH"
                    with m.Elif(invalidates):
                        m.next = "INVALIDATE_CHECK"
                    with m.Else():
                        m.next = "PLACE"
            # The request to the STag table is about the STag to invalidate from here on.
            with m.State("INVALIDATE_CHECK"):
                m.d.sync += invalidating.eq(1)
                m.next = "INVALIDATE_LOOKUP"
            # Asks the STag table whether the peer may invalidate the STag.
            with m.State("INVALIDATE_LOOKUP"):
                m.d.comb += self.stag.request.valid.eq(1)
                with m.If(self.stag.request.ready):
                    m.next = "INVALIDATE_ANSWER"
            # Waits for the answer.
            with m.State("INVALIDATE_ANSWER"), m.If(self.stag.response_valid):
                failure = first_cause(invalidate_status_checks(status))
                with m.If(failure != Cause.NONE):
                    stop(failure)
                with m.Else():
                    m.next = "INVALIDATE"
            # Waits until the STag is invalid: nothing that comes later may use it.
            with m.State("INVALIDATE"):
                m.d.comb += self.invalidate.valid.eq(1)
                with m.If(self.invalidate.ready):
                    m.next = "PLACE"
            # Tells why the QP stops.
            with m.State("ERROR"):
                m.d.comb += [self.error.valid.eq(1), contexts.write.eq(1)]
                m.d.sync += piece_number.eq(0)
                with m.If(self.error.ready):
                    with m.If(is_fpdu):
                        m.next = "PLACE"
                    with m.Else():
                        finish()
            # Issues the placements; the last one, which may be empty, releases the FPDU.
            with m.State("PLACE"):
                m.d.comb += [self.placement.valid.eq(1), contexts.write.eq(1)]
                with m.If(self.placement.ready):
                    m.d.sync += piece_number.eq(piece_number + 1)
                    m.d.sync += position.eq(position + placed_octets)
                    # Every piece has octets.
                    m.d.sync += placements.eq(placements + (piece_count != 0))
                    with m.If(is_last_piece):
                        with m.If(has_delivery):
                            m.next = "DELIVER"
                        with m.Else():
                            finish()
            # Delivers the message that the segment ended.
            with m.State("DELIVER"):
                m.d.comb += self.delivery.valid.eq(1)
                with m.If(self.delivery.ready):
                    m.d.comb += delivered.eq(1)
                    finish()
        holding = [fsm.ongoing(name) for name in _ADDRESS_STATES]
        m.d.sync += self.placing.eq(Cat(holding).any())
        return m


_KINDS = {
    SegmentKind.CRC_ERROR: Cause.CRC_ERROR,
    SegmentKind.CLOSED: Cause.LLP_CLOSED,
    SegmentKind.MARKER_ERROR: Cause.MARKER_MISMATCH,
}
"""What the MPA receiver reports instead of an FPDU."""

_ADDRESS_STATES = (
    "LOOKUP",
    "ANSWER",
    "INVALIDATE_CHECK",
    "INVALIDATE_LOOKUP",
    "INVALIDATE_ANSWER",
    "INVALIDATE",
    "PUSH",
    "PLACE",
)
"""The states in which an STag was found good, or is being looked up, and something is placed."""
