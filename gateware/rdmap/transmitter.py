"""The transmitter: cuts the messages of a QP into ULPDUs, one at each visit (RFC 5041, 5.2)."""

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gateware.config import RnicConfig
from gateware.ddp.headers import (
    FIRST_MSN,
    TAGGED_HEADER_OCTETS,
    UNTAGGED_HEADER_OCTETS,
)
from gateware.interfaces import (
    EntryPort,
    Layouts,
    QpCommandKind,
    QpFifoReader,
    QpFifoWriter,
    QpStrobe,
    StagClient,
    StagStatus,
)
from gateware.mpa.marker_count import MarkerCount
from gateware.rdmap.headers import (
    READ_REQUEST_HEADER_OCTETS,
    READ_REQUEST_ULPDU_OCTETS,
    TERMINATE_HEADER_OCTETS,
    Opcode,
)
from gateware.rdmap.transmit_context import RetiredSends, progress_layout, settings_layout
from gateware.rdmap.transmit_header import (
    TransmitHeader,
    read_request_ddp_header,
    read_request_header,
)
from gateware.rdmap.transmit_inline import TransmitInline
from gateware.rdmap.transmit_limits import TransmitLimits
from gateware.rdmap.transmit_pieces import TransmitPieces
from gateware.rdmap.transmit_terminate import TransmitTerminate
from hw.interface.causes import Cause
from hw.interface.queue_entries import (
    SCATTER_GATHER_ELEMENT_OCTETS,
    SCATTER_GATHER_ELEMENTS,
    SEND_ENTRY,
    SEND_ENTRY_OCTETS,
    Fields,
    Rights,
    SendFlags,
    SendOpcode,
    offset_of,
    size_of,
)

WORD_OCTETS = 8
SEND_ENTRY_WORDS = SEND_ENTRY_OCTETS // WORD_OCTETS
REMOTE_STAG_WORD = offset_of(SEND_ENTRY, "remote_stag") // WORD_OCTETS
REMOTE_OFFSET_WORD = offset_of(SEND_ENTRY, "remote_tagged_offset") // WORD_OCTETS
ELEMENTS_WORD = offset_of(SEND_ENTRY, "elements") // WORD_OCTETS
ELEMENT_WORDS = SCATTER_GATHER_ELEMENT_OCTETS // WORD_OCTETS

HEADER_SETTLE = 2
"""Cycles from the number of payload octets to the job's header and ULPDU_Length."""

WINDOW_SETTLE = 4
"""Cycles from the number of payload octets to the comparison with the window, without Markers."""

LENGTH_OCTETS = 2
CRC_OCTETS = 4
"""Octets of an FPDU beside ULPDU and PAD (RFC 5044, 4.1)."""


def _word_layout(fields: Fields, word: int) -> data.StructLayout:
    """The fields of a queue entry that stand in one of its words."""
    first = word * WORD_OCTETS
    inside = {
        name: 8 * octets
        for name, octets in fields
        if first <= offset_of(fields, name) < first + WORD_OCTETS
    }
    return data.StructLayout(inside)


ENTRY_WORD = _word_layout(SEND_ENTRY, 0)
"""Opcode, flags, count and length of a send entry."""

ELEMENT_WORD = data.StructLayout({"length": 32, "stag": 32})
"""Second word of an element; the first is its Tagged Offset."""

SEND_OPCODES = (
    SendOpcode.SEND,
    SendOpcode.SEND_WITH_INVALIDATE,
    SendOpcode.SEND_WITH_SE,
    SendOpcode.SEND_WITH_SE_AND_INVALIDATE,
)

READ_CAUSES = {
    StagStatus.INVALID: Cause.READ_STAG_INVALID,
    StagStatus.NOT_ASSOCIATED: Cause.READ_STAG_NOT_ASSOCIATED,
    StagStatus.NOT_PERMITTED: Cause.READ_NOT_PERMITTED,
    StagStatus.WRAP: Cause.READ_TO_WRAP,
    StagStatus.BOUNDS: Cause.READ_BOUNDS,
}
"""What a failed check of the Data Source of an RDMA Read is called (RFC 5040, 7.2)."""


class Transmitter(wiring.Component):
    """Sends one FPDU of a QP for each QP number that the scheduler gives.

    A visit reads the context of the QP, goes on with its message or chooses the oldest inbound
    RDMA Read or the oldest send entry, cuts off what fits the MULPDU, has each local piece of
    it checked by the STag table, and gives pieces and job away together. Nothing of an FPDU is
    seen outside unless all of its checks were good. A visit that can send nothing ends without
    a trace; `kick` asks for another one once for every FPDU given away (during its visit) and
    when the LLP widens the limits, and the queues do so when they get work or room.

    A one-element FPDU takes 11 cycles and those of the STag table; each further element 7 and
    those of the table; the first FPDU of a message of another number of elements 10 more.

    Members
    -------
    qp_command: In(stream qp_command). CREATE stores the PD; CONNECT starts the QP with counters
        anew; all others stop it. `ready` says that it is done.
    llp_event: In(stream llp_event), taken at any time.
    work: In(stream qp_number), QP to visit.
    kick: Out(QpStrobe), visit this QP (again).
    running, may_send: In, one bit a QP.
    retired: In(QpStrobe), a work request left the completer.
    send_entries: Out(EntryPort), the send rings.
    inbound_reads: Out(QpFifoReader), RDMA Reads to answer.
    outstanding_reads: Out(QpFifoWriter), RDMA Reads that were sent.
    stag: Out(StagClient).
    piece, job: Out(stream), for gather and assembler; pieces in the order of their jobs.
    inline: Out(stream), the words of the inline pieces, some cycles behind them.
    termination: In(stream termination), a QP that stopped: after all that it sent before go a
        Terminate, whatever the window, and the request to close, or only that.
    error: Out(stream qp_error), the first error of a QP; it is stopped here already.
    begin, end: Out(1), pulses around each visit.
    job_begin: Out(1), pulse when a job is given away, not after the `end` of its visit.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        layouts = Layouts(config)
        self._layouts = layouts
        depth = config.read_queue_depth
        super().__init__(
            {
                "qp_command": In(stream.Signature(layouts.qp_command)),
                "llp_event": In(stream.Signature(layouts.llp_event)),
                "work": In(stream.Signature(layouts.qp_number)),
                "kick": Out(QpStrobe(config)),
                "running": In(config.qps),
                "may_send": In(config.qps),
                "retired": In(QpStrobe(config)),
                "send_entries": Out(EntryPort(config, SEND_ENTRY_WORDS)),
                "inbound_reads": Out(QpFifoReader(config, layouts.inbound_read, depth)),
                "outstanding_reads": Out(QpFifoWriter(config, layouts.outstanding_read, depth)),
                "stag": Out(StagClient(layouts)),
                "piece": Out(stream.Signature(layouts.gather_piece)),
                "job": Out(stream.Signature(layouts.ulpdu_job)),
                "termination": In(stream.Signature(layouts.termination)),
                "inline": Out(stream.Signature(64)),
                "error": Out(stream.Signature(layouts.qp_error)),
                "begin": Out(1),
                "end": Out(1),
                "job_begin": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        config, layouts = self._config, self._layouts
        qps = config.qps
        progress_shape = progress_layout(config)

        m.submodules.limits = limits = TransmitLimits(config)
        m.submodules.retired_sends = retired_sends = RetiredSends(config)
        m.submodules.pieces = pieces = TransmitPieces(config)
        m.submodules.header = header = TransmitHeader()
        m.submodules.inline = inline = TransmitInline()
        m.submodules.terminate = terminate = TransmitTerminate(config)
        m.submodules.marker_count = marker_count = MarkerCount()
        m.submodules.progress = progress_memory = Memory(shape=progress_shape, depth=qps, init=[])
        m.submodules.settings = settings_memory = Memory(
            shape=settings_layout(config), depth=qps, init=[]
        )
        m.submodules.protection = protection_memory = Memory(shape=16, depth=qps, init=[])
        progress_write, progress_read = (
            progress_memory.write_port(),
            progress_memory.read_port(),
        )
        settings_write, settings_read = (
            settings_memory.write_port(),
            settings_memory.read_port(),
        )
        protection_write, protection_read = (
            protection_memory.write_port(),
            protection_memory.read_port(),
        )

        # Registers of the visit, in the order in which they are filled.
        qp = Signal(config.qp_bits)
        allowed = Signal()
        progress = Signal(progress_shape)
        settings = Signal(settings_layout(config))
        pd = Signal(16)
        window = Signal(32)
        mulpdu = Signal(16)
        retired_count = Signal.like(retired_sends.count)
        element = Signal.like(progress.element)
        offset = Signal(32)
        entry = Signal(ENTRY_WORD)
        index = Signal(16)
        has_entry = Signal()
        fenced = Signal()
        is_inline = Signal()  # the RDMAP header is the payload
        inline_octets = Signal(range(TERMINATE_HEADER_OCTETS + 1))
        in_flight = Signal.like(retired_sends.count)
        read_allowed = Signal()
        inbound = Signal(layouts.inbound_read)
        has_inbound = Signal()
        room = Signal(32)
        tagged_capacity = Signal(16)
        untagged_capacity = Signal(16)
        responding = Signal()
        tagged = Signal()
        is_read = Signal()
        terminating = Signal()
        remaining = Signal(32)
        capacity = Signal(16)
        first_piece = Signal()
        summed = Signal()
        bad_entry = Signal()
        fits = Signal()
        element_length = Signal(32)
        element_stag = Signal(32)
        element_offset = Signal(64)  # Tagged Offset of the element
        element_remaining = Signal(32)
        length_matches = Signal()
        payload = Signal(32)  # octets of this FPDU, or of the whole message of an RDMA Read
        left = Signal(32)  # of them, without a piece so far
        remote_stag = Signal(32)
        remote_offset = Signal(64)
        address = Signal(64)  # Tagged Offset of the piece
        covers = Signal()  # the element has all that is left
        exhausted = Signal()  # and the FPDU needs all that the element has
        piece_octets = Signal(32)

        m.d.comb += [
            progress_read.addr.eq(qp),
            settings_read.addr.eq(qp),
            protection_read.addr.eq(qp),
            limits.select.eq(qp),
            retired_sends.select.eq(qp),
            self.send_entries.select.eq(qp),
            self.inbound_reads.select.eq(qp),
            self.outstanding_reads.select.eq(qp),
            progress_write.addr.eq(qp),
            settings_write.addr.eq(qp),
            protection_write.addr.eq(qp),
        ]
        # What no visit changes needs no enable between memory and register.
        m.d.sync += [
            settings.eq(settings_read.data),
            pd.eq(protection_read.data),
            window.eq(limits.window),
            mulpdu.eq(limits.mulpdu),
            retired_count.eq(retired_sends.count),
        ]
        wiring.connect(m, wiring.flipped(self.llp_event), limits.llp_event)
        wiring.connect(m, pieces.piece, wiring.flipped(self.piece))
        wiring.connect(m, inline.o, wiring.flipped(self.inline))
        m.d.comb += [
            retired_sends.retired.valid.eq(self.retired.valid),
            retired_sends.retired.qp.eq(self.retired.qp),
        ]

        # Values that follow from the registers above, one step a cycle. Every path through the
        # visit gives them the time to settle.
        ulpdu_length = Signal(16)
        fpdu_length = Signal(17)
        sent_length = Signal(17)  # with Markers
        until_marker = Signal(7)
        window_open = Signal()
        settling = Signal(range(WINDOW_SETTLE + MarkerCount.LATENCY + 1))
        with m.If(settling != 0):
            m.d.sync += settling.eq(settling - 1)
        roomy = Signal()  # any FPDU fits the window
        last = Signal()
        message_tagged_offset = Signal(64)
        opcode = Signal(Opcode)
        msn = Signal(32)
        followed = Signal(progress_shape, reset_less=True)
        m.d.sync += [
            last.eq(fits | is_read | terminating),
            ulpdu_length.eq(
                Mux(
                    is_read,
                    READ_REQUEST_ULPDU_OCTETS,
                    payload[:16] + Mux(tagged, TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS),
                )
            ),
            # ULPDU_Length, ULPDU and PAD are a multiple of 4 (RFC 5044, 4.1).
            fpdu_length.eq(Cat(Const(0, 2), (ulpdu_length + LENGTH_OCTETS + 3)[2:]) + CRC_OCTETS),
            sent_length.eq(fpdu_length + Mux(settings.transmit_markers, marker_count.octets, 0)),
            window_open.eq(sent_length <= room),
            message_tagged_offset.eq(remote_offset + progress.done),
            opcode.eq(Mux(responding, Opcode.RDMA_READ_RESPONSE, entry.opcode[: len(opcode)])),
            msn.eq(Mux(is_read, progress.read_msn, progress.send_msn)),
        ]
        with m.If(terminating):
            m.d.sync += [opcode.eq(Opcode.TERMINATE), msn.eq(FIRST_MSN)]
        m.d.comb += [
            marker_count.fpdu_length.eq(fpdu_length),
            marker_count.until_marker.eq(until_marker),
        ]
        is_send = ~responding & ~tagged & ~is_read
        m.d.sync += [
            followed.eq(progress),
            followed.position.eq(progress.position + sent_length),
            followed.active.eq(~last),
            followed.responding.eq(responding),
            followed.element.eq(Mux(last | responding, 0, element + exhausted)),
            followed.offset.eq(Mux(last | responding | exhausted, 0, offset + piece_octets)),
            followed.done.eq(Mux(last, 0, progress.done + payload)),
            followed.remaining.eq(remaining - payload),
            followed.prefer_response.eq(Mux(last, ~responding, progress.prefer_response)),
            followed.send_msn.eq(progress.send_msn + (is_send & last)),
            followed.read_msn.eq(progress.read_msn + is_read),
            followed.response_msn.eq(progress.response_msn + (responding & last)),
            followed.issued.eq(progress.issued + (~responding & last)),
        ]
        m.d.comb += progress_write.data.eq(followed)

        # A job's payload comes from registers that hold until it is taken.
        m.d.comb += [
            header.fields.opcode.eq(opcode),
            header.fields.last.eq(last),
            header.fields.stag.eq(remote_stag),
            header.fields.tagged_offset.eq(message_tagged_offset),
            header.fields.msn.eq(msn),
            header.fields.mo.eq(progress.done),
            # The distance from the position to the next multiple of 512, in units of 4 octets
            until_marker.eq((-progress.position[2:9])[:7]),
        ]
        read_request = read_request_header(
            sink_stag=element_stag,
            sink_tagged_offset=element_offset,
            length=entry.length,
            source_stag=remote_stag,
            source_tagged_offset=remote_offset,
        )
        m.d.comb += [
            inline.octets.eq(Mux(terminating, terminate.header, read_request)),
            inline.words.eq((inline_octets + WORD_OCTETS - 1) >> 3),
            inline_octets.eq(
                Mux(terminating, terminate.octets, READ_REQUEST_HEADER_OCTETS),
            ),
            terminate.termination.eq(self.termination.payload),
        ]
        job = self.job.payload
        m.d.comb += [
            job.qp.eq(qp),
            job.ulpdu_length.eq(ulpdu_length),
            job.tagged.eq(tagged),
            job.header.eq(header.header),
            job.crc.eq(settings.crc),
            job.markers.eq(settings.transmit_markers),
            job.until_marker.eq(until_marker),
            job.empty.eq(terminating & ~terminate.speak),
            job.close.eq(terminating),
            job.report.eq(last & ~responding & ~terminating),
            job.sent.qp.eq(qp),
            job.sent.index.eq(index),
            job.sent.opcode.eq(entry.opcode),
            job.sent.signaled.eq((entry.flags & SendFlags.SIGNALED).any()),
            job.sent.length.eq(entry.length),
        ]
        push = self.outstanding_reads.item
        # The queues hear of it a cycle later; the next visit looks at them after that.
        m.d.sync += [
            self.send_entries.pop.eq(progress_write.en & self.job_begin & last & ~responding),
            self.send_entries.pop_qp.eq(qp),
            self.inbound_reads.pop.eq(progress_write.en & self.job_begin & last & responding),
            self.inbound_reads.pop_qp.eq(qp),
            self.outstanding_reads.push.eq(self.job_begin & is_read),
            self.outstanding_reads.push_qp.eq(qp),
            push.sink_stag.eq(element_stag),
            push.sink_tagged_offset.eq(element_offset),
            push.length.eq(entry.length),
        ]

        request = self.stag.request.payload
        m.d.comb += [
            request.stag.eq(element_stag),
            request.tagged_offset.eq(address),
            request.octets.eq(piece_octets),
            request.pd.eq(pd),
            request.qp.eq(qp),
        ]
        with m.If(responding):
            m.d.comb += request.rights.eq(Rights.REMOTE_READ)
        with m.Elif(is_read):
            m.d.comb += request.rights.eq(Rights.LOCAL_WRITE)
        with m.Else():
            m.d.comb += request.rights.eq(Rights.LOCAL_READ)
        m.d.comb += [
            pieces.item.address.eq(self.stag.response.address),
            pieces.item.octets.eq(piece_octets),
            pieces.item.last.eq(covers),
            is_inline.eq(is_read | terminating),
        ]
        with m.If(is_inline):
            m.d.comb += [
                pieces.item.address.eq(0),
                pieces.item.octets.eq(inline_octets),
                pieces.item.last.eq(1),
                pieces.item.inline.eq(1),
            ]

        cause = Signal(8)
        error = self.error.payload
        m.d.comb += [error.qp.eq(qp), error.cause.eq(cause)]
        with m.If(responding):
            m.d.comb += [
                error.ulpdu_length.eq(READ_REQUEST_ULPDU_OCTETS),
                # The Read Request that cannot be answered, as it came (its Rsv bits apart), but
                # for what was answered already (RFC 5040, 4.8).
                error.header.eq(
                    Cat(
                        read_request_ddp_header(progress.response_msn),
                        read_request_header(
                            sink_stag=remote_stag,
                            sink_tagged_offset=message_tagged_offset,
                            length=remaining,
                            source_stag=element_stag,
                            source_tagged_offset=address,
                        ),
                    )
                ),
            ]
        with m.Else():
            m.d.comb += error.index.eq(index)

        word = self.send_entries.word
        word_address = self.send_entries.word_address
        element_word = data.View(ELEMENT_WORD, word)
        m.d.comb += word_address.eq(REMOTE_OFFSET_WORD)

        def element_address(number: ValueLike, word: int) -> Value:
            return ELEMENTS_WORD + ELEMENT_WORDS * number + word

        # Sum over the elements of an entry.
        step = Signal(range(SCATTER_GATHER_ELEMENTS + 4))
        total = Signal(34)

        kick = Signal()
        kicked = Signal()
        m.d.comb += limits.kick_taken.eq(~kick)
        m.d.sync += [
            self.kick.valid.eq(kick | limits.kick),
            self.kick.qp.eq(Mux(kick, qp, limits.kick_qp)),
        ]

        command = self.qp_command.payload
        m.d.comb += [
            limits.connect.payload.qp.eq(command.qp),
            limits.connect.payload.emss.eq(command.emss),
            limits.connect.payload.markers.eq(command.transmit_markers),
            protection_write.data.eq(command.pd),
            settings_write.data.ord.eq(command.ord),
            settings_write.data.crc.eq(command.crc),
            settings_write.data.transmit_markers.eq(command.transmit_markers),
        ]
        # The number of sends in flight starts at zero whatever the counters say.
        command_wait = Signal(2)

        with m.FSM():
            # Wait for a command or a QP to visit.
            with m.State("IDLE"):
                m.d.sync += [command_wait.eq(0), terminating.eq(0)]
                with m.If(self.qp_command.valid):
                    m.d.sync += qp.eq(command.qp)
                    m.next = "COMMAND"
                with m.Elif(self.termination.valid):
                    m.d.sync += [
                        qp.eq(self.termination.payload.qp),
                        terminating.eq(1),
                        responding.eq(0),
                        is_read.eq(0),
                        tagged.eq(0),
                        kicked.eq(1),
                    ]
                    m.next = "TERMINATE_CONTEXT"
                with m.Else():
                    m.d.sync += qp.eq(self.work.payload.qp)
                    with m.If(self.work.valid):
                        m.next = "ADDRESS"

            # The memories and queues see the QP number; it is taken from the scheduler.
            with m.State("ADDRESS"):
                m.d.comb += [self.work.ready.eq(1), self.begin.eq(1), word_address.eq(0)]
                m.d.sync += allowed.eq(
                    self.running.bit_select(qp, 1) & self.may_send.bit_select(qp, 1)
                )
                m.next = "CONTEXT"

            # The context comes out of the memories.
            with m.State("CONTEXT"):
                m.d.sync += [
                    progress.eq(progress_read.data),
                    element.eq(progress_read.data.element),
                    offset.eq(progress_read.data.offset),
                ]
                with m.If(allowed):
                    m.next = "QUEUES"
                with m.Else():
                    m.d.comb += self.end.eq(1)
                    m.next = "IDLE"

            # The queues answer.
            with m.State("QUEUES"):
                m.d.comb += word_address.eq(element_address(element, 1))
                m.d.sync += [
                    entry.eq(word),
                    fenced.eq((data.View(ENTRY_WORD, word).flags & SendFlags.FENCE).any()),
                    index.eq(self.send_entries.index),
                    has_entry.eq(self.send_entries.level != 0),
                    has_inbound.eq(self.inbound_reads.level != 0),
                    read_allowed.eq(self.outstanding_reads.level < settings.ord),
                    in_flight.eq(progress.issued - retired_count),
                    room.eq(window - progress.position),
                    tagged_capacity.eq(mulpdu - TAGGED_HEADER_OCTETS),
                    untagged_capacity.eq(mulpdu - UNTAGGED_HEADER_OCTETS),
                    first_piece.eq(1),
                    kicked.eq(0),
                    summed.eq(0),
                    bad_entry.eq(0),
                ]
                with m.If(progress.stopped):
                    m.d.comb += self.end.eq(1)
                    m.next = "IDLE"
                with m.Else():
                    m.next = "CHOOSE"

            # Go on, or begin with what waits and may be sent.
            with m.State("CHOOSE"):
                entry_is_read = Signal()
                can_send = Signal()
                respond = Signal()
                m.d.comb += [
                    word_address.eq(element_address(element, 0)),
                    entry_is_read.eq(entry.opcode == SendOpcode.RDMA_READ),
                    # Fewer than config.pending_sends, which is the top bit, are in flight.
                    can_send.eq(
                        has_entry
                        & ~in_flight[-1]
                        & (~entry_is_read | read_allowed)
                        & ~(fenced & (in_flight != 0))
                    ),
                    respond.eq(
                        Mux(
                            progress.active,
                            progress.responding,
                            has_inbound & (~can_send | progress.prefer_response),
                        )
                    ),
                ]
                m.d.sync += [
                    responding.eq(respond),
                    is_read.eq(~respond & entry_is_read),
                    tagged.eq(respond | (entry.opcode == SendOpcode.RDMA_WRITE)),
                ]
                with m.If(respond):
                    # The source is one element, of which `done` octets were sent.
                    m.d.sync += offset.eq(progress.done)
                m.d.sync += inbound.eq(self.inbound_reads.head)
                with m.If(progress.active):
                    m.d.sync += remaining.eq(progress.remaining)
                with m.Elif(respond):
                    m.d.sync += remaining.eq(self.inbound_reads.head.length)
                with m.Else():
                    m.d.sync += remaining.eq(entry.length)
                with m.If(respond | (entry.opcode == SendOpcode.RDMA_WRITE)):
                    m.d.sync += capacity.eq(tagged_capacity)
                with m.Else():
                    m.d.sync += capacity.eq(untagged_capacity)
                # A window that was taken back is closed.
                with m.If(room[-1]):
                    m.d.sync += room.eq(0)
                m.d.sync += roomy.eq(~room[-1] & room[17:].any())
                with m.If(progress.active | has_inbound | can_send):
                    m.next = "ELEMENT_LENGTH"
                with m.Else():
                    m.d.comb += self.end.eq(1)
                    m.next = "IDLE"

            # Ask for the next element, unless there is none.
            with m.State("NEXT_ELEMENT"):
                m.d.comb += word_address.eq(element_address(element, 1))
                m.d.sync += cause.eq(Cause.LOCAL_BAD_ENTRY)
                with m.If(element == entry.element_count):
                    m.next = "STOP"
                with m.Else():
                    m.next = "NEXT_ELEMENT_OFFSET"

            with m.State("NEXT_ELEMENT_OFFSET"):
                m.d.comb += word_address.eq(element_address(element, 0))
                m.next = "ELEMENT_LENGTH"

            # Length and STag of the element arrive; compare the message with the MULPDU.
            with m.State("ELEMENT_LENGTH"):
                m.d.comb += word_address.eq(REMOTE_STAG_WORD)
                m.d.sync += [
                    fits.eq(remaining <= capacity),
                    element_length.eq(Mux(responding, inbound.length, element_word.length)),
                    element_stag.eq(Mux(responding, inbound.source_stag, element_word.stag)),
                    step.eq(0),
                    total.eq(0),
                ]
                known = Signal()
                m.d.comb += known.eq(
                    (entry.opcode == SendOpcode.RDMA_WRITE)
                    | (entry.opcode == SendOpcode.RDMA_READ)
                    | Cat(entry.opcode == opcode for opcode in SEND_OPCODES).any()
                )
                with m.If(~responding):
                    m.d.sync += bad_entry.eq(
                        ~known
                        | (entry.element_count > SCATTER_GATHER_ELEMENTS)
                        | (is_read & (entry.element_count > 1))
                    )
                with m.If(~responding & ~progress.active & ~summed & (entry.element_count != 1)):
                    m.next = "SUM"
                with m.Else():
                    m.next = "ELEMENT_OFFSET"

            # Add up the lengths of the elements: a request a cycle, two cycles for an answer.
            with m.State("SUM"):
                m.d.comb += word_address.eq(element_address(step[:2], 1))
                m.d.sync += step.eq(step + 1)
                with m.If((step >= 2) & (step - 2 < entry.element_count)):
                    m.d.sync += total.eq(total + element_word.length)
                with m.If(step == SCATTER_GATHER_ELEMENTS + 2):
                    m.next = "SUM_CHECK"

            with m.State("SUM_CHECK"):
                m.d.sync += [length_matches.eq(total == entry.length), summed.eq(1)]
                m.next = "ELEMENT_AGAIN"

            # Ask for the first element again.
            with m.State("ELEMENT_AGAIN"):
                m.d.comb += word_address.eq(element_address(element, 1))
                m.next = "NEXT_ELEMENT_OFFSET"

            # The Tagged Offset of the element arrives; what is left of it?
            with m.State("ELEMENT_OFFSET"):
                m.d.comb += word_address.eq(REMOTE_OFFSET_WORD)
                m.d.sync += [
                    element_offset.eq(Mux(responding, inbound.source_tagged_offset, word)),
                    element_remaining.eq(element_length - offset),
                ]
                with m.If(~summed):
                    m.d.sync += length_matches.eq(
                        responding | progress.active | (element_length == entry.length)
                    )
                with m.If(first_piece):
                    m.d.sync += [
                        left.eq(Mux(fits | is_read, remaining, capacity)),
                        payload.eq(Mux(is_read, 0, Mux(fits, remaining, capacity))),
                        settling.eq(
                            WINDOW_SETTLE + Mux(settings.transmit_markers, MarkerCount.LATENCY, 0)
                        ),
                    ]
                m.next = "REMOTE_STAG"

            # The remote STag arrives; compare the element with what the FPDU needs.
            with m.State("REMOTE_STAG"):
                m.d.sync += [
                    remote_stag.eq(Mux(responding, inbound.sink_stag, word)),
                    address.eq(element_offset + offset),
                    covers.eq(left <= element_remaining),
                    exhausted.eq(element_remaining <= left),
                    cause.eq(Cause.LOCAL_BAD_ENTRY),
                ]
                with m.If(bad_entry | ~length_matches):
                    m.next = "STOP"
                with m.Else():
                    m.next = "REMOTE_OFFSET"

            # The remote Tagged Offset arrives; decide on the piece.
            with m.State("REMOTE_OFFSET"):
                m.d.sync += [
                    remote_offset.eq(Mux(responding, inbound.sink_tagged_offset, word)),
                    piece_octets.eq(Mux(covers, left, element_remaining)),
                    first_piece.eq(0),
                    summed.eq(1),
                ]
                with m.If(left == 0):
                    m.next = "EMPTY"
                with m.Elif(element_remaining == 0):
                    m.d.sync += [element.eq(element + 1), offset.eq(0)]
                    m.next = "NEXT_ELEMENT"
                with m.Else():
                    m.next = "REQUEST"

            # Ask for the check of the piece, when there is room for the pieces of this FPDU.
            with m.State("REQUEST"):
                m.d.comb += self.stag.request.valid.eq(pieces.room)
                with m.If(pieces.room & self.stag.request.ready):
                    m.next = "CHECK"

            # The context comes out of the memories.
            with m.State("TERMINATE_CONTEXT"):
                m.d.comb += self.begin.eq(1)
                m.next = "TERMINATE_LOAD"

            with m.State("TERMINATE_LOAD"):
                m.d.sync += [
                    progress.eq(progress_read.data),
                    progress.done.eq(0),
                    payload.eq(terminate.octets),
                    settling.eq(HEADER_SETTLE),
                ]
                m.next = "TERMINATE_SETTLE"

            # Lengths and header settle; wait for room for the inline piece.
            with m.State("TERMINATE_SETTLE"):
                with m.If((settling == 0) & ~terminate.speak):
                    m.next = "TERMINATE_ISSUE"
                with m.Elif((settling == 0) & pieces.room & inline.room):
                    m.d.comb += pieces.write.eq(1)
                    m.next = "TERMINATE_ISSUE"

            # Give the Terminate away, or only the request to close.
            with m.State("TERMINATE_ISSUE"):
                m.d.comb += self.job.valid.eq(1)
                with m.If(self.job.ready):
                    m.d.comb += [
                        pieces.commit.eq(1),
                        self.job_begin.eq(1),
                        self.end.eq(1),
                    ]
                    with m.If(terminate.speak):
                        m.d.comb += inline.start.eq(1)
                        m.next = "INLINE"
                    with m.Else():
                        m.d.comb += self.termination.ready.eq(1)
                        m.next = "IDLE"

            # The RDMAP header follows its piece.
            with m.State("INLINE"):
                with m.If(inline.done):
                    m.d.comb += self.termination.ready.eq(terminating)
                    m.next = "IDLE"

            # Wait for the result of the check. The next visit is asked for already if this one is
            # not going to wait for the window: the scheduler takes its time.
            with m.State("CHECK"):
                with m.If(roomy & ~kicked):
                    m.d.comb += kick.eq(1)
                    m.d.sync += kicked.eq(1)
                m.d.sync += cause.eq(Cause.LOCAL_SEND_PROTECTION)
                with m.If(responding):
                    with m.Switch(self.stag.response.status):
                        for status, read_cause in READ_CAUSES.items():
                            with m.Case(status):
                                m.d.sync += cause.eq(read_cause)
                with m.If(self.stag.response_valid):
                    with m.If(self.stag.response.status != StagStatus.OK):
                        m.next = "STOP"
                    with m.Else():
                        m.d.comb += pieces.write.eq(1)
                        with m.If(covers):
                            m.next = "ISSUE"
                        with m.Else():
                            m.d.sync += [
                                left.eq(left - piece_octets),
                                element.eq(element + 1),
                                offset.eq(0),
                            ]
                            m.next = "NEXT_ELEMENT"

            # A Read without octets has its header to send, if there is room for the piece.
            with m.State("EMPTY"):
                m.d.comb += pieces.write.eq(pieces.room & is_read)
                with m.If(pieces.room | ~is_read):
                    m.next = "ISSUE"

            # Give the FPDU away as soon as its lengths are right, if the window takes it.
            with m.State("ISSUE"):
                settled = settling == 0
                m.d.comb += self.job.valid.eq(settled & window_open & (inline.room | ~is_read))
                with m.If(settled & ~window_open):
                    m.d.comb += [pieces.discard.eq(1), self.end.eq(1)]
                    m.next = "IDLE"
                with m.Elif(self.job.valid & self.job.ready):
                    m.d.comb += [
                        pieces.commit.eq(1),
                        progress_write.en.eq(1),
                        self.job_begin.eq(1),
                        self.end.eq(1),
                        kick.eq(~kicked),
                        inline.start.eq(is_read),
                    ]
                    m.next = "IDLE"
                    with m.If(is_read):
                        m.next = "INLINE"

            # An error: the QP sends nothing any more.
            with m.State("STOP"):
                m.d.comb += [
                    pieces.discard.eq(1),
                    progress_write.en.eq(1),
                    progress_write.data.stopped.eq(1),
                ]
                m.next = "REPORT"

            # Wait until the error is taken.
            with m.State("REPORT"):
                m.d.comb += self.error.valid.eq(1)
                with m.If(self.error.ready):
                    m.d.comb += self.end.eq(1)
                    m.next = "IDLE"

            # Read how many sends of the QP were retired ever.
            with m.State("COMMAND"):
                m.d.sync += command_wait.eq(command_wait + 1)
                with m.If(command_wait == 2):
                    m.next = "COMMAND_CONTEXT"

            # A message begins nowhere.
            with m.State("COMMAND_CONTEXT"):
                m.d.sync += [
                    followed.eq(0),
                    followed.stopped.eq(command.kind != QpCommandKind.CONNECT),
                    followed.send_msn.eq(FIRST_MSN),
                    followed.read_msn.eq(FIRST_MSN),
                    followed.response_msn.eq(FIRST_MSN),
                    followed.issued.eq(retired_count),
                ]
                m.next = "COMMAND_STORE"

            # Store what the command says.
            with m.State("COMMAND_STORE"):
                m.d.comb += [
                    progress_write.en.eq(1),
                    protection_write.en.eq(command.kind == QpCommandKind.CREATE),
                    settings_write.en.eq(command.kind == QpCommandKind.CONNECT),
                ]
                m.next = "COMMAND_LIMITS"

            # Wait until window and MULPDU start anew.
            with m.State("COMMAND_LIMITS"):
                is_connect = command.kind == QpCommandKind.CONNECT
                m.d.comb += limits.connect.valid.eq(is_connect)
                with m.If(~is_connect | limits.connect.ready):
                    m.d.comb += self.qp_command.ready.eq(1)
                    m.next = "IDLE"
        return m


assert size_of(SEND_ENTRY) == SEND_ENTRY_OCTETS
assert ENTRY_WORD.size == 8 * WORD_OCTETS
