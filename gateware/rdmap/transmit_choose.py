"""The states that begin a visit: read the context of the QP and choose what to send."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring

from gateware.ddp.headers import TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS
from gateware.rdmap.atomic_unit import ATOMIC_OCTETS
from gateware.rdmap.checks import is_any
from gateware.rdmap.transmit_context import TransmitContexts
from gateware.rdmap.transmit_entry import (
    OPERATION,
    OPERATION_ADDRESS,
    element_offset_address,
    element_range_address,
    takes_two_units,
)
from gateware.rdmap.transmit_visit import TransmitVisit, end_visit
from hw.interface.queue_entries import (
    IMMEDIATE_OPERATIONS,
    STAG_OPERATIONS,
    SendFlags,
    SendOpcode,
)


def choose_states(
    m: Module, ports: wiring.Component, visit: TransmitVisit, contexts: TransmitContexts
) -> None:
    """From `IDLE` until the first element arrives, a termination or a command begins."""
    entries = ports.send_entries

    # Wait for a command, or a QP to terminate or to visit.
    with m.State("IDLE"):
        m.d.sync += visit.terminating.eq(0)
        with m.If(ports.qp_command.valid):
            m.d.sync += visit.qp.eq(ports.qp_command.payload.qp)
            m.next = "COMMAND"
        with m.Elif(ports.termination.valid):
            m.d.sync += [
                visit.qp.eq(ports.termination.payload.qp),
                visit.terminating.eq(1),
                visit.responding.eq(0),
                visit.is_read.eq(0),
                visit.is_atomic.eq(0),
                visit.inline.eq(1),
                visit.is_local.eq(0),
                visit.tagged.eq(0),
                visit.kicked.eq(1),
            ]
            m.next = "TERMINATE_CONTEXT"
        with m.Else():
            m.d.sync += visit.qp.eq(ports.work.payload.qp)
            with m.If(ports.work.valid):
                m.next = "ADDRESS"

    # The memories and queues see the QP number; it is taken from the scheduler.
    with m.State("ADDRESS"):
        m.d.comb += [
            ports.work.ready.eq(1),
            ports.begin.eq(1),
            entries.word_address.eq(OPERATION_ADDRESS),
        ]
        m.d.sync += visit.allowed.eq(
            ports.running.bit_select(visit.qp, 1) & ports.may_send.bit_select(visit.qp, 1)
        )
        m.next = "CONTEXT"

    # The context comes out of the memories.
    with m.State("CONTEXT"):
        m.d.sync += [
            visit.progress.eq(contexts.progress),
            visit.element.eq(contexts.progress.element),
            visit.offset.eq(contexts.progress.offset),
        ]
        with m.If(visit.allowed):
            m.next = "QUEUES"
        with m.Else():
            end_visit(m, ports)

    # The queues answer.
    with m.State("QUEUES"):
        entry = data.View(OPERATION, entries.word)
        m.d.comb += entries.word_address.eq(element_range_address(visit.element))
        m.d.sync += [
            visit.entry.eq(entry),
            visit.fenced.eq((entry.flags & SendFlags.FENCE).any()),
            visit.index.eq(entries.index),
            visit.has_unit.eq(entries.level != 0),
            visit.has_two_units.eq(entries.level >= 2),
            visit.is_cut.eq(entries.posted == 1),
            visit.has_inbound.eq(
                (ports.inbound_requests.level != 0)
                & (~visit.progress.atomic_begun | visit.answered)
            ),
            visit.request_allowed.eq(ports.outstanding_requests.level < visit.settings.ord),
            visit.in_flight.eq(visit.progress.issued - visit.retired_count),
            visit.room.eq(visit.window - visit.progress.position),
            visit.tagged_capacity.eq(visit.mulpdu - TAGGED_HEADER_OCTETS),
            visit.untagged_capacity.eq(visit.mulpdu - UNTAGGED_HEADER_OCTETS),
            visit.first_piece.eq(1),
            visit.kicked.eq(0),
            visit.summed.eq(0),
            visit.bad_entry.eq(0),
        ]
        with m.If(visit.progress.stopped):
            end_visit(m, ports)
        with m.Else():
            m.next = "CHOOSE"

    # Go on, or begin with what waits and may be sent.
    with m.State("CHOOSE"):
        head = ports.inbound_requests.head
        has_entry = Signal()
        entry_is_read = Signal()
        entry_is_immediate = Signal()
        entry_is_atomic = Signal()
        can_respond = Signal()
        can_send = Signal()
        respond = Signal()
        tagged = Signal()
        m.d.comb += [
            entries.word_address.eq(element_offset_address(visit.element)),
            # What never comes is not waited for.
            has_entry.eq(
                visit.has_unit
                & (~takes_two_units(visit.entry) | visit.has_two_units | visit.is_cut)
            ),
            entry_is_read.eq(visit.entry.opcode == SendOpcode.RDMA_READ),
            entry_is_immediate.eq(is_any(visit.entry.opcode, IMMEDIATE_OPERATIONS)),
            entry_is_atomic.eq(visit.entry.opcode == SendOpcode.ATOMIC),
            # What the Reads before an atomic found is from before it.
            can_respond.eq(
                visit.has_inbound & ~(head.atomic & ~visit.progress.atomic_begun & visit.leaving)
            ),
            # Fewer than config.pending_sends, which is the top bit, are in flight.
            can_send.eq(
                has_entry
                & ~visit.in_flight[-1]
                & (~(entry_is_read | entry_is_atomic) | visit.request_allowed)
                & ~(visit.fenced & (visit.in_flight != 0))
            ),
            respond.eq(
                Mux(
                    visit.progress.active,
                    visit.progress.responding,
                    can_respond & (~can_send | visit.progress.prefer_response),
                )
            ),
            tagged.eq(Mux(respond, ~head.atomic, visit.entry.opcode == SendOpcode.RDMA_WRITE)),
        ]
        m.d.sync += [
            visit.responding.eq(respond),
            visit.begins_atomic.eq(respond & head.atomic & ~visit.progress.atomic_begun),
            visit.answers_atomic.eq(respond & head.atomic & visit.progress.atomic_begun),
            visit.is_read.eq(~respond & entry_is_read),
            visit.is_atomic.eq(~respond & entry_is_atomic),
            visit.is_immediate.eq(~respond & entry_is_immediate),
            visit.inline.eq(
                Mux(
                    respond,
                    head.atomic & visit.progress.atomic_begun,
                    entry_is_read | entry_is_atomic | entry_is_immediate,
                )
            ),
            visit.is_local.eq(~respond & is_any(visit.entry.opcode, STAG_OPERATIONS)),
            visit.takes_two.eq(takes_two_units(visit.entry)),
            visit.registers.eq(visit.entry.opcode == SendOpcode.FAST_REGISTER),
            visit.tagged.eq(tagged),
            visit.capacity.eq(Mux(tagged, visit.tagged_capacity, visit.untagged_capacity)),
            visit.inbound.eq(head.of.read),
            visit.roomy.eq(~visit.room[-1] & visit.room[17:].any()),
        ]
        with m.If(head.atomic):
            m.d.sync += visit.inbound.length.eq(ATOMIC_OCTETS)
        with m.If(respond):
            # The source is one element, of which `done` octets were sent.
            m.d.sync += visit.offset.eq(visit.progress.done)
        with m.If(visit.progress.active):
            m.d.sync += visit.remaining.eq(visit.progress.remaining)
        with m.Elif(respond):
            m.d.sync += visit.remaining.eq(Mux(head.atomic, ATOMIC_OCTETS, head.of.read.length))
        with m.Else():
            m.d.sync += visit.remaining.eq(visit.entry.length)
        # A window that was taken back is closed.
        with m.If(visit.room[-1]):
            m.d.sync += visit.room.eq(0)
        with m.If(visit.progress.active | can_respond | can_send):
            m.next = "ELEMENT_RANGE"
            with m.If(respond & head.atomic & visit.progress.atomic_begun):
                m.next = "ATOMIC_ANSWER"
        with m.Else():
            end_visit(m, ports)
