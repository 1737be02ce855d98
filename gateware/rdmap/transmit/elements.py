"""The states that read the elements of a message and cut the next piece off."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring

from stagecoach.gateware.rdmap.headers import (
    ATOMIC_REQUEST_HEADER_OCTETS,
    READ_REQUEST_HEADER_OCTETS,
)
from stagecoach.gateware.rdmap.transmit.entry import (
    ELEMENT_RANGE,
    IMMEDIATE_DATA_ADDRESS,
    OPERANDS,
    OPERANDS_ADDRESS,
    REMOTE_OFFSET_ADDRESS,
    REMOTE_STAG_ADDRESS,
    element_offset_address,
    element_range_address,
)
from stagecoach.gateware.rdmap.transmit.lengths import TransmitLengths
from stagecoach.gateware.rdmap.transmit.visit import TransmitVisit, fail
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import (
    IMMEDIATE_DATA_OCTETS,
    SCATTER_GATHER_ELEMENTS,
)

LONG_OCTETS = 256
"""So long a message may well need another FPDU."""


def element_states(
    m: Module, ports: wiring.Component, visit: TransmitVisit, lengths: TransmitLengths
) -> None:
    """From an element to `READY` with its piece, with none if none is needed, or with an error.

    The words of an Atomic Request go by `OPERANDS`.

    A word arrives in the second state after the one in which its address stands in the register
    that asks for it, so in the third after the one that puts it there. The source of a response
    is its only element, and its words are not looked at.
    """
    entry, inbound, responding = visit.entry, visit.inbound, visit.responding
    word, word_address = ports.send_entries.word, ports.send_entries.word_address
    element_range = data.View(ELEMENT_RANGE, word)
    # More than an FPDU of it may be left; that is known for sure only later.
    is_long = visit.remaining >= LONG_OCTETS
    step = Signal(range(SCATTER_GATHER_ELEMENTS + 4))
    counts = Signal()  # there is an element whose length arrives
    total = Signal(34)

    # The piece takes what it has of the FPDU. Ask for the next element, unless there is none.
    with m.State("NEXT_ELEMENT"):
        following = visit.element + 1
        m.d.sync += [
            word_address.eq(element_offset_address(following)),
            visit.element.eq(following),
            visit.later_element.eq(1),
            visit.left.eq(visit.left - visit.piece_octets),
            visit.cause.eq(Cause.LOCAL_BAD_ENTRY),
        ]
        with m.If(following == entry.element_count):
            fail(m, visit)
        with m.Else():
            m.next = "NEXT_ELEMENT_OFFSET"

    # Ask for its second word.
    with m.State("NEXT_ELEMENT_OFFSET"):
        m.d.sync += word_address.eq(REMOTE_STAG_ADDRESS)
        m.next = "ELEMENT_RANGE"

    # Length and STag of the element arrive; compare the message with the MULPDU. A visit that is
    # not going to wait for the window has the next one asked for if there is something to do in it:
    # the scheduler takes its time.
    with m.State("ELEMENT_RANGE"):
        fits = Mux(
            visit.tagged,
            visit.remaining <= visit.tagged_capacity,
            visit.remaining <= visit.untagged_capacity,
        )
        m.d.sync += [
            word_address.eq(Mux(visit.is_immediate, IMMEDIATE_DATA_ADDRESS, REMOTE_OFFSET_ADDRESS)),
            visit.capacity.eq(Mux(visit.tagged, visit.tagged_capacity, visit.untagged_capacity)),
            visit.fits.eq(fits | visit.is_immediate),
            visit.whole.eq(fits | visit.inline),
            visit.element_length.eq(element_range.length),
            visit.element_stag.eq(Mux(responding, inbound.source_stag, element_range.stag)),
            visit.bad_entry.eq(
                ~responding & (visit.bad_opcode | visit.bad_count | visit.bad_atomic)
            ),
            visit.sure.eq(visit.roomy & ~visit.settings.transmit_markers),
            step.eq(0),
            counts.eq(0),
            total.eq(0),
        ]
        with m.If(responding):
            m.d.sync += visit.element_length.eq(inbound.length)
        with m.Elif(entry.element_count == 0):
            # As if Immediate Data were an element.
            m.d.sync += visit.element_length.eq(Mux(visit.is_immediate, IMMEDIATE_DATA_OCTETS, 0))
        with m.If(visit.roomy & (visit.more | is_long) & ~visit.kicked):
            m.d.comb += visit.kick.eq(1)
        m.next = "ELEMENT_OFFSET"
        with m.If(
            ~responding & ~visit.progress.active & ~visit.summed & entry.element_count[1:].any()
        ):
            m.next = "SUM"

    # Add up the lengths of the elements: a request a cycle, three cycles for an answer.
    with m.State("SUM"):
        m.d.sync += [
            step.eq(step + 1),
            word_address.eq(element_range_address(step[:2])),
            counts.eq((step >= 2) & (step - 2 < entry.element_count)),
        ]
        with m.If(counts):
            m.d.sync += total.eq(total + element_range.length)
        with m.If(step == SCATTER_GATHER_ELEMENTS + 2):
            m.next = "SUM_CHECK"

    # Is the sum the length of the message?
    with m.State("SUM_CHECK"):
        m.d.sync += [
            visit.length_matches.eq(total == entry.length),
            visit.summed.eq(1),
            word_address.eq(element_range_address(visit.element)),
        ]
        m.next = "ELEMENT_AGAIN"

    # Ask for the first element again.
    with m.State("ELEMENT_AGAIN"):
        m.d.sync += word_address.eq(element_offset_address(visit.element))
        m.next = "NEXT_ELEMENT_OFFSET"

    # The Tagged Offset of the element arrives; what is left of it?
    with m.State("ELEMENT_OFFSET"):
        m.d.sync += [
            visit.element_offset.eq(Mux(responding, inbound.source_tagged_offset, word)),
            visit.element_remaining.eq(visit.element_length - visit.offset),
        ]
        with m.If(~visit.summed):
            m.d.sync += visit.length_matches.eq(
                responding | visit.progress.active | (visit.element_length == entry.length)
            )
        with m.If(visit.first_piece):
            m.d.sync += [
                visit.left.eq(Mux(visit.whole, visit.remaining, visit.capacity)),
                visit.payload.eq(Mux(visit.fits, visit.remaining, visit.capacity)),
            ]
            with m.If(visit.is_read):
                m.d.sync += visit.payload.eq(READ_REQUEST_HEADER_OCTETS)
            with m.If(visit.is_atomic):
                m.d.sync += visit.payload.eq(ATOMIC_REQUEST_HEADER_OCTETS)
            with m.If(visit.is_immediate):
                m.d.sync += visit.left.eq(0)
            m.d.comb += lengths.start.eq(1)
        m.next = "REMOTE_STAG"

    # The remote STag arrives; compare the element with what the FPDU needs.
    with m.State("REMOTE_STAG"):
        m.d.sync += [
            visit.remote_stag.eq(Mux(responding, inbound.sink_stag, word)),
            visit.address.eq(visit.element_offset + visit.offset),
            visit.covers.eq(visit.left <= visit.element_remaining),
            visit.exhausted.eq(visit.element_remaining <= visit.left),
            visit.none_left.eq(visit.left == 0),
            visit.none_remaining.eq(visit.element_remaining == 0),
            visit.cause.eq(Cause.LOCAL_BAD_ENTRY),
        ]
        m.next = "REMOTE_OFFSET"
        with m.If(visit.bad_entry | ~visit.length_matches):
            fail(m, visit)

    # The remote Tagged Offset, or Immediate Data, arrives; decide on the piece.
    with m.State("REMOTE_OFFSET"):
        m.d.sync += [
            word_address.eq(element_range_address(visit.element + 1)),
            visit.remote_offset.eq(Mux(responding, inbound.sink_tagged_offset, word)),
            visit.piece_octets.eq(Mux(visit.covers, visit.left, visit.element_remaining)),
            visit.asks.eq(~visit.none_left & ~visit.is_local),
            visit.first_piece.eq(0),
            visit.summed.eq(1),
        ]
        m.next = "READY"
        with m.If(visit.is_atomic):
            m.d.sync += word_address.eq(OPERANDS_ADDRESS)
            m.next = "OPERANDS"
        with m.Elif(visit.none_remaining & ~visit.none_left & ~visit.is_local):
            m.next = "NEXT_ELEMENT"

    # The operands arrive, a request a cycle, two cycles for an answer.
    with m.State("OPERANDS"):
        m.d.sync += [
            word_address.eq(OPERANDS_ADDRESS + (step + 1)[:2]),
            step.eq(step + 1),
            visit.operands.eq(Cat(visit.operands.as_value()[64:], word)),
        ]
        with m.If(step == OPERANDS + 1):
            m.next = "READY"
