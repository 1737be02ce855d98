"""What follows from the registers of a visit, one step a cycle; all states leave it the time."""

from amaranth.hdl import Module, Mux

from stagecoach.gateware.ddp.headers import FIRST_MSN
from stagecoach.gateware.rdmap.headers import Opcode
from stagecoach.gateware.rdmap.transmit.header import TransmitHeader
from stagecoach.gateware.rdmap.transmit.lengths import TransmitLengths
from stagecoach.gateware.rdmap.transmit.visit import TransmitVisit


def connect_lengths(m: Module, visit: TransmitVisit, lengths: TransmitLengths) -> None:
    """Lengths of the FPDU, and whether the window takes it."""
    m.d.comb += [
        lengths.payload.eq(visit.payload),
        lengths.tagged.eq(visit.tagged),
        lengths.position.eq(visit.progress.position),
        lengths.room.eq(visit.room),
        lengths.markers.eq(visit.settings.transmit_markers),
    ]


def connect_header(m: Module, visit: TransmitVisit, header: TransmitHeader) -> None:
    """The fields of the DDP header."""
    opcode = visit.opcode
    m.d.sync += [
        visit.last.eq((visit.fits | visit.inline | visit.is_local) & ~visit.begins_atomic),
        visit.tagged_offset.eq(visit.remote_offset + visit.progress.done),
        opcode.eq(
            Mux(visit.responding, Opcode.RDMA_READ_RESPONSE, visit.entry.opcode[: len(opcode)])
        ),
        visit.msn.eq(
            Mux(visit.is_read | visit.is_atomic, visit.progress.read_msn, visit.progress.send_msn)
        ),
    ]
    with m.If(visit.answers_atomic):
        m.d.sync += [
            opcode.eq(Opcode.ATOMIC_RESPONSE),
            visit.msn.eq(visit.progress.atomic_response_msn),
        ]
    with m.If(visit.terminating):
        m.d.sync += [opcode.eq(Opcode.TERMINATE), visit.msn.eq(FIRST_MSN)]
    m.d.comb += [
        header.fields.opcode.eq(opcode),
        header.fields.last.eq(visit.last),
        header.fields.stag.eq(visit.remote_stag),
        header.fields.tagged_offset.eq(visit.tagged_offset),
        header.fields.msn.eq(visit.msn),
        header.fields.mo.eq(visit.progress.done),
    ]


def connect_offset(m: Module, visit: TransmitVisit) -> None:
    """Octets of the element that were sent. The source of a response is its only element."""
    with m.If(visit.later_element):
        m.d.sync += visit.offset.eq(0)
    with m.Elif(visit.responding):
        m.d.sync += visit.offset.eq(visit.progress.done)
    with m.Else():
        m.d.sync += visit.offset.eq(visit.progress.offset)


def follow(m: Module, visit: TransmitVisit, lengths: TransmitLengths) -> None:
    """Where the QP stands behind the FPDU.

    Of an atomic that begins nothing is sent: only that it has begun, and whose turn it is now.
    """
    progress, followed = visit.progress, visit.followed
    last, responding, begins_atomic = visit.last, visit.responding, visit.begins_atomic
    is_request = visit.is_read | visit.is_atomic
    is_send = ~responding & ~visit.tagged & ~is_request & ~visit.is_local
    sent_length = Mux(visit.is_local | begins_atomic, 0, lengths.sent_length)
    m.d.sync += [
        followed.eq(progress),
        followed.position.eq(progress.position + sent_length),
        followed.active.eq(~last & ~begins_atomic),
        followed.responding.eq(responding),
        followed.element.eq(Mux(last | responding, 0, visit.element + visit.exhausted)),
        followed.offset.eq(
            Mux(last | responding | visit.exhausted, 0, visit.offset + visit.piece_octets)
        ),
        followed.done.eq(Mux(last | begins_atomic, 0, progress.done + visit.payload)),
        followed.remaining.eq(visit.remaining - visit.payload),
        followed.prefer_response.eq(
            Mux(last | begins_atomic, ~responding, progress.prefer_response)
        ),
        followed.send_msn.eq(progress.send_msn + (is_send & last)),
        followed.read_msn.eq(progress.read_msn + is_request),
        followed.response_msn.eq(progress.response_msn + (responding & last)),
        followed.atomic_begun.eq((progress.atomic_begun & ~visit.answers_atomic) | begins_atomic),
        followed.atomic_response_msn.eq(progress.atomic_response_msn + visit.answers_atomic),
        followed.atomic_identifier.eq(progress.atomic_identifier + visit.is_atomic),
        followed.issued.eq(progress.issued + (~responding & last)),
    ]
