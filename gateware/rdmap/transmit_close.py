"""The states that end the connection of a QP that stopped: Terminate and request to close."""

from amaranth.hdl import Module
from amaranth.lib import wiring

from gateware.rdmap.transmit_context import TransmitContexts
from gateware.rdmap.transmit_inline import TransmitInline
from gateware.rdmap.transmit_issue import give_away
from gateware.rdmap.transmit_lengths import TransmitLengths
from gateware.rdmap.transmit_pieces import TransmitPieces
from gateware.rdmap.transmit_terminate import TransmitTerminate
from gateware.rdmap.transmit_visit import TransmitVisit


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
    """From a termination to the end of its visit, which nothing holds up but room."""

    # The memories see the QP number.
    with m.State("TERMINATE_CONTEXT"):
        m.d.comb += ports.begin.eq(1)
        m.next = "TERMINATE_LOAD"

    # The context comes out of the memories; the Terminate is a message of its own.
    with m.State("TERMINATE_LOAD"):
        m.d.sync += [
            visit.progress.eq(contexts.progress),
            visit.progress.done.eq(0),
            visit.payload.eq(terminate.octets),
        ]
        m.d.comb += [lengths.start.eq(1), lengths.unlimited.eq(1)]
        m.next = "TERMINATE_SETTLE"

    # Lengths and header settle; wait for room for the inline piece.
    with m.State("TERMINATE_SETTLE"):
        with m.If(lengths.settled & ~terminate.speak):
            m.next = "TERMINATE_ISSUE"
        with m.Elif(lengths.settled & pieces.room & inline.room):
            m.d.comb += pieces.write.eq(1)
            m.next = "TERMINATE_ISSUE"

    # Give the Terminate away, or only the request to close.
    with m.State("TERMINATE_ISSUE"):
        m.d.comb += ports.job.valid.eq(1)
        with m.If(ports.job.ready):
            give_away(m, ports, pieces)
            with m.If(terminate.speak):
                m.d.comb += inline.start.eq(1)
                m.next = "INLINE"
            with m.Else():
                m.d.comb += ports.termination.ready.eq(1)
