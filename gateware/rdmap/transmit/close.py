"""The states that end the connection of a QP that stopped: Terminate and request to close."""

from amaranth.hdl import Module
from amaranth.lib import wiring

from stagecoach.gateware.rdmap.transmit.context import TransmitContexts
from stagecoach.gateware.rdmap.transmit.inline import TransmitInline
from stagecoach.gateware.rdmap.transmit.lengths import TransmitLengths
from stagecoach.gateware.rdmap.transmit.pieces import TransmitPieces
from stagecoach.gateware.rdmap.transmit.terminate import TransmitTerminate
from stagecoach.gateware.rdmap.transmit.visit import TransmitVisit


def close_states(
    m: Module,
    ports: wiring.Component,
    visit: TransmitVisit,
    contexts: TransmitContexts,
    lengths: TransmitLengths,
    pieces: TransmitPieces,
    inline: TransmitInline,
    terminate: TransmitTerminate,
) -> None:
    """From a termination to `HAND`; nothing holds it up but room."""

    # The memories see the QP number.
    with m.State("TERMINATE_CONTEXT"):
        m.d.comb += ports.begin.eq(1)
        m.next = "TERMINATE_LOAD"

    # The context comes out of the memories; the Terminate is a message of its own.
    with m.State("TERMINATE_LOAD"):
        m.d.sync += [
            visit.progress.eq(contexts.progress),
            visit.progress.done.eq(0),
            visit.halt.eq(contexts.halt),
            visit.payload.eq(terminate.octets),
            visit.inline.eq(terminate.speak),
        ]
        m.next = "TERMINATE_POSITION"

    # The FPDU that failed was not sent, nor was any behind it.
    with m.State("TERMINATE_POSITION"):
        with m.If(visit.halt.halted):
            m.d.sync += visit.progress.position[2:9].eq(visit.halt.units)
        m.d.comb += [lengths.start.eq(1), lengths.unlimited.eq(1)]
        m.next = "TERMINATE_SETTLE"

    # Lengths and header settle; wait for room for the inline piece.
    with m.State("TERMINATE_SETTLE"):
        with m.If(lengths.settled & ((pieces.room & inline.room) | ~visit.inline)):
            m.next = "HAND"
