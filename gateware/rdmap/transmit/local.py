"""The states that carry out a work request about a local STag: nothing of it is sent."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring

from stagecoach.gateware.rdmap.transmit.visit import TransmitVisit, fail
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import Rights

RIGHTS_BITS = max(Rights).bit_length()


def connect_local(m: Module, ports: wiring.Component, visit: TransmitVisit) -> None:
    """What the STag table is to change, out of registers that hold until it has."""
    change = ports.stag_change.payload
    m.d.comb += [
        change.register.eq(visit.registers),
        change.entry.stag.eq(visit.remote_stag),
        change.entry.pd.eq(visit.pd),
        change.entry.qp.eq(visit.qp),
        change.entry.rights.eq(visit.element_stag[:RIGHTS_BITS]),
        change.entry.base.eq(visit.remote_offset),
        change.entry.length.eq(visit.element_length),
        change.entry.address.eq(visit.element_offset),
    ]


def local_states(m: Module, ports: wiring.Component, visit: TransmitVisit) -> None:
    """From `CHANGE` to `HAND`, with an error to `READY`.

    Its completion takes its turn behind the FPDUs of the QP by a job of no FPDU; what the QP sends
    next may use the STag. The window does not matter.
    """
    no_rights = Signal()  # there is no such right
    m.d.sync += no_rights.eq(visit.registers & visit.element_stag[RIGHTS_BITS:].any())

    # Wait until the table has changed, or refuses to.
    with m.State("CHANGE"):
        with m.If(no_rights):
            fail(m, visit)  # with the cause of a bad entry
        with m.Else():
            m.d.comb += ports.stag_change.valid.eq(1)
            with m.If(ports.stag_change.ready):
                m.d.sync += visit.cause.eq(Cause.LOCAL_STAG_OPERATION)
                m.next = "HAND"
                with m.If(ports.stag_refused):
                    fail(m, visit)
