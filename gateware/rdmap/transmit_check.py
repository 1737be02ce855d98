"""The states that have a piece checked by the STag table and append it to those of the FPDU."""

from amaranth.hdl import Module
from amaranth.lib import wiring

from gateware.ddp.checks import first_cause
from gateware.interfaces import StagStatus
from gateware.rdmap.checks import atomic_status_checks, read_status_checks
from gateware.rdmap.transmit_inline import TransmitInline
from gateware.rdmap.transmit_pieces import TransmitPieces
from gateware.rdmap.transmit_visit import TransmitVisit
from hw.interface.causes import Cause
from hw.interface.queue_entries import Rights


def connect_check(
    m: Module,
    ports: wiring.Component,
    visit: TransmitVisit,
    pieces: TransmitPieces,
    inline: TransmitInline,
) -> None:
    """The request to the STag table, and the piece that follows from its answer."""
    request = ports.stag.request.payload
    m.d.comb += [
        request.stag.eq(visit.element_stag),
        request.tagged_offset.eq(visit.address),
        request.octets.eq(visit.piece_octets),
        request.pd.eq(visit.pd),
        request.qp.eq(visit.qp),
    ]
    with m.If(visit.begins_atomic):
        m.d.comb += request.rights.eq(Rights.REMOTE_READ | Rights.REMOTE_WRITE)
    with m.Elif(visit.responding):
        m.d.comb += request.rights.eq(Rights.REMOTE_READ)
    with m.Elif(visit.is_read | visit.is_atomic):
        m.d.comb += request.rights.eq(Rights.LOCAL_WRITE)
    with m.Else():
        m.d.comb += request.rights.eq(Rights.LOCAL_READ)

    # The sink of a request is only checked; the payload is inline.
    with m.If(visit.inline):
        m.d.comb += [
            pieces.item.octets.eq(inline.length),
            pieces.item.last.eq(1),
            pieces.item.inline.eq(1),
        ]
    with m.Else():
        m.d.comb += [
            pieces.item.address.eq(ports.stag.response.address),
            pieces.item.octets.eq(visit.piece_octets),
            pieces.item.last.eq(visit.covers),
        ]


def check_states(
    m: Module, ports: wiring.Component, visit: TransmitVisit, pieces: TransmitPieces
) -> None:
    """From a piece to the next element, to `ISSUE` with all pieces, or to `STOP`.

    From the target of an atomic to `TARGET`.
    """
    status = ports.stag.response.status

    # Ask for the check of the piece, when there is room for the pieces of this FPDU.
    with m.State("REQUEST"):
        m.d.comb += ports.stag.request.valid.eq(pieces.room)
        with m.If(pieces.room & ports.stag.request.ready):
            m.d.comb += ports.atomic_begun.valid.eq(visit.begins_atomic)
            m.next = "CHECK"

    # Wait for the result of the check. The next visit is asked for already if this one is not
    # going to wait for the window: the scheduler takes its time.
    with m.State("CHECK"):
        with m.If(visit.roomy & ~visit.kicked):
            m.d.comb += visit.kick.eq(1)
            m.d.sync += visit.kicked.eq(1)
        m.d.sync += visit.cause.eq(Cause.LOCAL_SEND_PROTECTION)
        with m.If(visit.begins_atomic):
            m.d.sync += visit.cause.eq(first_cause(atomic_status_checks(status)))
        with m.Elif(visit.responding):
            m.d.sync += visit.cause.eq(first_cause(read_status_checks(status)))
        m.d.sync += visit.target.eq(ports.stag.response.address)
        with m.If(ports.stag.response_valid):
            with m.If(status != StagStatus.OK):
                m.d.comb += ports.atomic_refused.valid.eq(visit.begins_atomic)
                m.next = "STOP"
            with m.Elif(visit.begins_atomic):
                m.next = "TARGET"
            with m.Else():
                m.d.comb += pieces.write.eq(1)
                with m.If(visit.covers):
                    m.next = "ISSUE"
                with m.Else():
                    m.d.sync += [
                        visit.left.eq(visit.left - visit.piece_octets),
                        visit.element.eq(visit.element + 1),
                        visit.offset.eq(0),
                    ]
                    m.next = "NEXT_ELEMENT"

    # A message without elements may have an inline piece, if there is room for it.
    with m.State("EMPTY"):
        m.d.comb += pieces.write.eq(pieces.room & visit.inline)
        with m.If(pieces.room | ~visit.inline):
            m.next = "ISSUE"
