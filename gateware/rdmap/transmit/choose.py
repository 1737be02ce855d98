"""The states that begin a visit: read the context of the QP and choose what to send."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring

from stagecoach.gateware.ddp.headers import TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS
from stagecoach.gateware.interfaces import AtomicOperation
from stagecoach.gateware.rdmap.atomic.unit import ATOMIC_OCTETS
from stagecoach.gateware.rdmap.checks import is_any
from stagecoach.gateware.rdmap.headers import ATOMIC_RESPONSE_HEADER_OCTETS
from stagecoach.gateware.rdmap.transmit.back import TransmitBack
from stagecoach.gateware.rdmap.transmit.context import TransmitContexts
from stagecoach.gateware.rdmap.transmit.entry import (
    OPERATION,
    OPERATION_ADDRESS,
    REMOTE_STAG_ADDRESS,
    element_offset_address,
    element_range_address,
    takes_two_units,
)
from stagecoach.gateware.rdmap.transmit.lengths import TransmitLengths
from stagecoach.gateware.rdmap.transmit.visit import TransmitVisit, end_visit
from stagecoach.hw.interface.queue_entries import (
    IMMEDIATE_OPERATIONS,
    SCATTER_GATHER_ELEMENTS,
    SendFlags,
    SendOpcode,
)

SHORT_FPDU_OCTETS = 256
"""More than any FPDU without payload from host memory has, whatever the MULPDU is."""


def choose_states(
    m: Module,
    ports: wiring.Component,
    work: stream.Interface,
    visit: TransmitVisit,
    contexts: TransmitContexts,
    lengths: TransmitLengths,
    back: TransmitBack,
) -> None:
    """From `IDLE` until the first element arrives, a termination or a command begins."""
    entries = ports.send_entries
    word_address = entries.word_address
    entry_is = visit.entry_is

    # Wait for a command, or a QP to terminate or to visit; the first two wait for all FPDUs before
    # them. No visit begins before an error of another one is out of the way.
    with m.State("IDLE"):
        m.d.sync += [
            visit.terminating.eq(0),
            visit.asked.eq(work.payload.qp),
            word_address.eq(OPERATION_ADDRESS),
        ]
        with m.If(ports.qp_command.valid):
            with m.If(back.free):
                m.d.sync += [visit.qp.eq(ports.qp_command.payload.qp), visit.idle.eq(0)]
                m.next = "COMMAND"
        with m.Elif(ports.termination.valid):
            with m.If(back.free):
                m.d.sync += [
                    visit.qp.eq(ports.termination.payload.qp),
                    visit.idle.eq(0),
                    visit.terminating.eq(1),
                    visit.responding.eq(0),
                    visit.begins_atomic.eq(0),
                    visit.answers_atomic.eq(0),
                    visit.is_read.eq(0),
                    visit.is_atomic.eq(0),
                    visit.is_local.eq(0),
                    visit.tagged.eq(0),
                    visit.kicked.eq(1),
                    visit.asks.eq(0),
                    visit.failed.eq(0),
                ]
                m.next = "TERMINATE_CONTEXT"
        with m.Elif(ports.error.ready):
            m.d.sync += visit.qp.eq(work.payload.qp)
            with m.If(work.valid):
                m.d.sync += visit.idle.eq(0)
                m.next = "ADDRESS"

    # The memories and queues see the QP number; it is taken from the scheduler.
    with m.State("ADDRESS"):
        m.d.comb += [work.ready.eq(1), ports.begin.eq(1)]
        m.d.sync += [visit.alone.eq(back.free), visit.doomed.eq(0)]
        m.next = "CONTEXT"

    # The context comes out of the memories.
    with m.State("CONTEXT"):
        m.d.sync += [
            visit.progress.eq(contexts.progress),
            visit.halt.eq(contexts.halt),
            word_address.eq(element_range_address(contexts.progress.element)),
        ]
        m.next = "QUEUES"

    # The queues answer.
    with m.State("QUEUES"):
        entry = data.View(OPERATION, entries.word)
        progress = visit.progress
        in_flight = (progress.issued - visit.retired_count)[: len(visit.in_flight)]
        m.d.sync += [
            word_address.eq(element_offset_address(progress.element)),
            visit.element.eq(progress.element),
            visit.later_element.eq(0),
            visit.entry.eq(entry),
            *(entry_is[opcode].eq(entry.opcode == opcode) for opcode in SendOpcode),
            visit.fenced.eq((entry.flags & SendFlags.FENCE).any()),
            visit.index.eq(entries.index),
            visit.has_unit.eq(entries.level != 0),
            visit.has_two_units.eq(entries.level >= 2),
            visit.is_cut.eq(entries.posted == 1),
            visit.has_three_units.eq(entries.level >= 3),
            visit.takes_two.eq(takes_two_units(entry)),
            visit.inbound_waits.eq(ports.inbound_requests.level != 0),
            visit.more_inbound.eq(ports.inbound_requests.level > 1),
            visit.has_inbound.eq(
                (ports.inbound_requests.level != 0) & (~progress.atomic_begun | visit.answered)
            ),
            visit.request_allowed.eq(ports.outstanding_requests.level < visit.settings.ord),
            visit.in_flight.eq(in_flight),
            visit.some_in_flight.eq(progress.issued != visit.retired_count),
            visit.room.eq(visit.window - progress.position),
            visit.remaining.eq(Mux(progress.active, progress.remaining, entry.length)),
            visit.tagged_capacity.eq(visit.mulpdu - TAGGED_HEADER_OCTETS),
            visit.untagged_capacity.eq(visit.mulpdu - UNTAGGED_HEADER_OCTETS),
            visit.first_piece.eq(1),
            visit.kicked.eq(0),
            visit.summed.eq(0),
            visit.failed.eq(0),
            visit.handed.eq(0),
            # As if it were an Atomic Response, which is not cut off anything.
            visit.payload.eq(ATOMIC_RESPONSE_HEADER_OCTETS),
            visit.tagged.eq(0),
        ]
        m.d.comb += lengths.start.eq(1)
        m.next = "CHOOSE"
        with m.If(visit.halt.halted | ~visit.may_send):
            m.next = "NOTHING"

    # Go on, or begin with what waits and may be sent.
    with m.State("CHOOSE"):
        head = ports.inbound_requests.head
        active, atomic_begun = visit.progress.active, visit.progress.atomic_begun
        entry, room = visit.entry, visit.room
        is_read, is_atomic = entry_is[SendOpcode.RDMA_READ], entry_is[SendOpcode.ATOMIC]
        is_immediate = Cat(entry_is[opcode] for opcode in IMMEDIATE_OPERATIONS).any()
        registers = entry_is[SendOpcode.FAST_REGISTER]
        is_local = entry_is[SendOpcode.LOCAL_INVALIDATE] | registers
        can_respond = Signal()
        can_send = Signal()
        respond = Signal()
        tagged = Signal()
        m.d.comb += [
            # What the Reads before an atomic found is from before it.
            can_respond.eq(visit.has_inbound & ~(head.atomic & ~atomic_begun & visit.leaving)),
            # Fewer than config.pending_sends, which is the top bit, are in flight.
            can_send.eq(
                visit.has_unit
                # What never comes is not waited for.
                & (~visit.takes_two | visit.has_two_units | visit.is_cut)
                & ~visit.in_flight[-1]
                & (~(is_read | is_atomic) | visit.request_allowed)
                & ~(visit.fenced & visit.some_in_flight)
            ),
            respond.eq(
                Mux(
                    active,
                    visit.progress.responding,
                    can_respond & (~can_send | visit.progress.prefer_response),
                )
            ),
            tagged.eq(Mux(respond, ~head.atomic, entry_is[SendOpcode.RDMA_WRITE])),
        ]
        m.d.sync += [
            word_address.eq(REMOTE_STAG_ADDRESS),
            visit.responding.eq(respond),
            visit.begins_atomic.eq(respond & head.atomic & ~atomic_begun),
            visit.answers_atomic.eq(respond & head.atomic & atomic_begun),
            visit.is_read.eq(~respond & is_read),
            visit.is_atomic.eq(~respond & is_atomic),
            visit.is_immediate.eq(~respond & is_immediate),
            visit.inline.eq(
                Mux(respond, head.atomic & atomic_begun, is_read | is_atomic | is_immediate)
            ),
            visit.is_local.eq(~respond & is_local),
            visit.registers.eq(registers),
            visit.tagged.eq(tagged),
            # Of an atomic that begins nothing leaves the queue.
            visit.more.eq(
                Mux(
                    respond,
                    visit.has_unit | (visit.more_inbound & ~(head.atomic & ~atomic_begun)),
                    visit.inbound_waits
                    | Mux(visit.takes_two, visit.has_three_units, visit.has_two_units),
                )
            ),
            visit.inbound.eq(head.of.read),
            # No FPDU is longer than 2 * MULPDU, with its Markers too.
            visit.roomy.eq(~room[-1] & (room[:-1] >= (Cat(0, visit.mulpdu) | SHORT_FPDU_OCTETS))),
            visit.bad_opcode.eq(~Cat(entry_is.values()).any()),
            visit.bad_count.eq(
                (visit.takes_two & visit.is_cut)
                | (entry.element_count > SCATTER_GATHER_ELEMENTS)
                | (is_read & (entry.element_count > 1))
                | (is_immediate & (entry.element_count != 0))
                | (is_atomic & (entry.element_count != 1))
                | (is_local & (entry.element_count != registers))
            ),
            visit.bad_atomic.eq(
                is_atomic
                & (
                    (entry.length != ATOMIC_OCTETS)
                    | ~is_any(entry.atomic_operation, AtomicOperation)
                    | (ports.strict & (entry.atomic_operation == AtomicOperation.SWAP.value))
                )
            ),
        ]
        with m.If(head.atomic):
            m.d.sync += visit.inbound.length.eq(ATOMIC_OCTETS)
        with m.If(respond & ~active):
            m.d.sync += visit.remaining.eq(Mux(head.atomic, ATOMIC_OCTETS, head.of.read.length))
        # A window that was taken back is closed.
        with m.If(room[-1]):
            m.d.sync += room.eq(0)
        with m.If(active | can_respond | can_send):
            m.next = "ELEMENT_RANGE"
            with m.If(respond & head.atomic):
                # What an FPDU under way is of is not known to `leaving` yet.
                with m.If(atomic_begun):
                    m.next = "ATOMIC_ANSWER"
                with m.Elif(~visit.alone):
                    m.next = "AGAIN"
        with m.Else():
            m.next = "NOTHING"

    # Begin anew when nothing else is under way any more, and the first word is asked for.
    with m.State("AGAIN"):
        m.d.sync += [
            word_address.eq(OPERATION_ADDRESS),
            visit.alone.eq(1),
            visit.doomed.eq(0),
        ]
        with m.If(back.free & visit.alone):
            m.next = "CONTEXT"

    # Visits end in the order in which they began.
    with m.State("NOTHING"), m.If(back.free):
        end_visit(m, visit)
