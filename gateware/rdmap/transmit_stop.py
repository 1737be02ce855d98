"""The states that stop a QP after an error and report it."""

from amaranth.hdl import Cat, Module, Mux
from amaranth.lib import wiring

from gateware.rdmap.headers import (
    ATOMIC_REQUEST_ULPDU_OCTETS,
    READ_REQUEST_ULPDU_OCTETS,
    Opcode,
)
from gateware.rdmap.transmit_context import TransmitContexts
from gateware.rdmap.transmit_header import read_request_header, request_ddp_header
from gateware.rdmap.transmit_pieces import TransmitPieces
from gateware.rdmap.transmit_visit import TransmitVisit, end_visit


def connect_error(m: Module, ports: wiring.Component, visit: TransmitVisit) -> None:
    """What is reported of an error."""
    error = ports.error.payload
    # The Read Request that cannot be answered, as it came (its Rsv bits apart), but for what was
    # answered already (RFC 5040, 4.8). Of an Atomic Request only the DDP header is told.
    about_atomic = visit.begins_atomic | visit.answers_atomic
    opcode = Mux(about_atomic, Opcode.ATOMIC_REQUEST, Opcode.RDMA_READ_REQUEST)
    read_request = Cat(
        request_ddp_header(opcode, visit.progress.response_msn),
        read_request_header(
            sink_stag=visit.remote_stag,
            sink_tagged_offset=visit.tagged_offset,
            length=visit.remaining,
            source_stag=visit.element_stag,
            source_tagged_offset=visit.address,
        ),
    )
    m.d.comb += [error.qp.eq(visit.qp), error.cause.eq(visit.cause)]
    with m.If(visit.responding):
        m.d.comb += [
            error.ulpdu_length.eq(
                Mux(about_atomic, ATOMIC_REQUEST_ULPDU_OCTETS, READ_REQUEST_ULPDU_OCTETS)
            ),
            error.header.eq(read_request),
        ]
    with m.Else():
        m.d.comb += error.index.eq(visit.index)


def stop_states(
    m: Module,
    ports: wiring.Component,
    visit: TransmitVisit,
    contexts: TransmitContexts,
    pieces: TransmitPieces,
) -> None:
    """From an error with its cause to the end of the visit."""

    # The QP sends nothing any more.
    with m.State("STOP"):
        m.d.comb += [
            pieces.discard.eq(1),
            contexts.store.eq(1),
            contexts.followed.stopped.eq(1),
        ]
        m.next = "REPORT"

    # Wait until the error is taken.
    with m.State("REPORT"):
        m.d.comb += ports.error.valid.eq(1)
        with m.If(ports.error.ready):
            end_visit(m, ports)
