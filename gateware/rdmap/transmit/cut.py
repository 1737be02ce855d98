"""Cuts the next FPDU off a message, and that into pieces of its elements (RFC 5041, 5.2)."""

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.rdmap.headers import TERMINATE_HEADER_OCTETS
from stagecoach.gateware.rdmap.transmit.entry import (
    ELEMENT_RANGE,
    IMMEDIATE_DATA_ADDRESS,
    OPERANDS,
    OPERANDS_ADDRESS,
    REMOTE_OFFSET_ADDRESS,
    REMOTE_STAG_ADDRESS,
    SEND_ENTRY_WORDS,
    element_offset_address,
    element_range_address,
)
from stagecoach.gateware.rdmap.transmit.message import message_layout, piece_layout
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import SCATTER_GATHER_ELEMENTS
from stagecoach.hw.interface.wire import (
    ATOMIC_REQUEST_HEADER_OCTETS,
    IMMEDIATE_DATA_OCTETS,
    READ_REQUEST_HEADER_OCTETS,
)

LONG_OCTETS = 256
"""So long a message may well need another FPDU."""


class TransmitCut(wiring.Component):
    """Walks the elements of a message and offers the pieces of one FPDU of it, in their order.

    The FPDU takes what fits the MULPDU, a piece what its element has of that. The source of a
    response is its only element, and the words of the send entry are not looked at. An entry that
    is not allowed becomes a piece that has `failed`.

    A bare message is offered in the cycle in which it comes, without a piece.

    Latency: 4 cycles from `message` to the first piece; 11 more if the lengths of more than one
    element have to be added up, once a message; 6 more for the operands of an Atomic Request.
    Throughput: a further piece 7 cycles after the one before was taken, 6 more for each element
    that is empty. While `piece` is not taken the step stands still, and so does `message`, which is
    taken with its last piece.

    Members
    -------
    message: In(stream message_layout).
    piece: Out(stream piece_layout). Its payload, but for `message`, holds for a cycle more; what is
        known of element, peer and operands, until the next `message` comes, which is not bare.
    offset: Out(32), bytes of the element that were sent before, if there is a piece.
    over: In(1), a pulse when `piece` is taken: the FPDU needs no other one, or is given up.
    word: In(64), word_address: Out, of the send entry. A word arrives in the second cycle after the
        one in which its address stands in the register that asks for it, so in the third after
        `word_address` puts it there. Before `message` comes, length and STag of the element with
        which it goes on, its Tagged Offset and the remote STag have been asked for.
    bare_octets: In, payload of the FPDU if the next message is bare.
    measure: Out(1), a pulse: `payload` of the FPDU is known in the next cycle.
    kick: Out(1), a pulse: there will be something to do after this FPDU.
    """

    def __init__(self, config: RnicConfig):
        self._piece = piece_layout(config)
        super().__init__(
            {
                "message": In(stream.Signature(message_layout(config))),
                "piece": Out(stream.Signature(self._piece)),
                "offset": Out(32),
                "over": In(1),
                "word": In(64),
                "word_address": Out(range(SEND_ENTRY_WORDS)),
                "bare_octets": In(range(TERMINATE_HEADER_OCTETS + 1)),
                "measure": Out(1),
                "kick": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        message, word = self.message.payload, self.word
        entry, inbound, responding = message.entry, message.inbound, message.responding
        element_range = data.View(ELEMENT_RANGE, word)

        # The FPDU
        capacity = Signal(16)  # bytes of payload that an FPDU of this kind can have
        whole = Signal()  # `left` is all of the message: it fits, or needs no piece of payload
        # Bytes of the FPDU, or of the sink of a request, without a piece; 0 for Immediate Data
        left = Signal(32)
        first_piece = Signal(init=1)  # none has a piece so far
        length_matches = Signal()  # length of the message is the sum over its elements
        summed = Signal()  # `length_matches` is right
        # The element
        later_element = Signal()  # it is not the one with which the visit began
        remaining = Signal(32)  # bytes of it that were not sent
        none_left = Signal()  # no byte of the FPDU is without a piece
        none_remaining = Signal()  # none of the element was not sent
        # The piece; not all of what is offered is among them.
        piece = Signal(self._piece)
        failed = Signal()
        # How the lengths of the elements are added up
        step = Signal(range(SCATTER_GATHER_ELEMENTS + 4))
        counts = Signal()  # there is an element whose length arrives
        total = Signal(34)

        offered = self.piece.payload
        m.d.comb += [
            offered.eq(piece),
            offered.message.eq(message),
            offered.failed.eq(failed | message.failed),
            offered.cause.eq(Mux(message.failed, message.cause, Cause.LOCAL_BAD_ENTRY)),
            self.message.ready.eq(self.over),
            self.word_address.eq(REMOTE_OFFSET_ADDRESS),
        ]
        # Bytes of the element that were sent. The source of a response is its only element.
        with m.If(later_element):
            m.d.sync += self.offset.eq(0)
        with m.Elif(responding):
            m.d.sync += self.offset.eq(message.progress.done)
        with m.Else():
            m.d.sync += self.offset.eq(message.progress.offset)

        def fail() -> None:
            m.d.sync += [failed.eq(1), piece.asks.eq(0)]
            m.next = "PIECE"

        with m.FSM() as fsm:
            # Wait for a message; its first words arrive with it. Length and STag of the element
            # arrive; compare the message with the MULPDU. A visit that is not going to wait for the
            # window has the next one asked for if there is something to do in it: the scheduler
            # takes its time.
            with m.State("RANGE"):
                fits = Mux(
                    message.tagged,
                    message.remaining <= message.tagged_capacity,
                    message.remaining <= message.untagged_capacity,
                )
                # More than an FPDU of it may be left; that is known for sure only later.
                is_long = message.remaining >= LONG_OCTETS
                with m.If(~self.message.valid):
                    m.d.sync += [
                        piece.payload.eq(self.bare_octets),
                        piece.asks.eq(0),
                        failed.eq(0),
                        first_piece.eq(1),
                        later_element.eq(0),
                        summed.eq(0),
                    ]
                with m.Elif(~message.bare):
                    m.d.comb += [
                        self.word_address.eq(
                            Mux(message.is_immediate, IMMEDIATE_DATA_ADDRESS, REMOTE_OFFSET_ADDRESS)
                        ),
                        self.kick.eq(message.roomy & (message.more | is_long)),
                    ]
                    m.d.sync += [
                        capacity.eq(
                            Mux(message.tagged, message.tagged_capacity, message.untagged_capacity)
                        ),
                        piece.fits.eq(fits | message.is_immediate),
                        whole.eq(fits | message.inline),
                        piece.element_length.eq(element_range.length),
                        piece.element_stag.eq(
                            Mux(responding, inbound.source_stag, element_range.stag)
                        ),
                        step.eq(0),
                        counts.eq(0),
                        total.eq(0),
                    ]
                    with m.If(~later_element):
                        m.d.sync += piece.element.eq(message.progress.element)
                    with m.If(responding):
                        m.d.sync += piece.element_length.eq(inbound.length)
                    with m.Elif(entry.element_count == 0):
                        # As if Immediate Data were an element.
                        m.d.sync += piece.element_length.eq(
                            Mux(message.is_immediate, IMMEDIATE_DATA_OCTETS, 0)
                        )
                    m.next = "OFFSET"
                    with m.If(
                        ~responding
                        & ~message.progress.active
                        & ~summed
                        & entry.element_count[1:].any()
                    ):
                        m.next = "SUM"

            # Add up the lengths of the elements: a request a cycle, three cycles for an answer.
            with m.State("SUM"):
                m.d.comb += self.word_address.eq(element_range_address(step[:2]))
                m.d.sync += [
                    step.eq(step + 1),
                    counts.eq((step >= 2) & (step - 2 < entry.element_count)),
                ]
                with m.If(counts):
                    m.d.sync += total.eq(total + element_range.length)
                with m.If(step == SCATTER_GATHER_ELEMENTS + 2):
                    m.next = "SUM_CHECK"

            # Is the sum the length of the message?
            with m.State("SUM_CHECK"):
                m.d.comb += self.word_address.eq(element_range_address(piece.element))
                m.d.sync += [length_matches.eq(total == entry.length), summed.eq(1)]
                m.next = "RANGE_AGAIN"

            # Ask for the first element again.
            with m.State("RANGE_AGAIN"):
                m.d.comb += self.word_address.eq(element_offset_address(piece.element))
                m.next = "STAG_AGAIN"

            # The Tagged Offset of the element arrives; what is left of it?
            with m.State("OFFSET"):
                m.d.sync += [
                    piece.element_offset.eq(Mux(responding, inbound.source_tagged_offset, word)),
                    remaining.eq(piece.element_length - self.offset),
                ]
                with m.If(~summed):
                    m.d.sync += length_matches.eq(
                        responding
                        | message.progress.active
                        | (piece.element_length == entry.length)
                    )
                with m.If(first_piece):
                    m.d.sync += [
                        left.eq(Mux(whole, message.remaining, capacity)),
                        piece.payload.eq(Mux(piece.fits, message.remaining, capacity)),
                    ]
                    with m.If(message.is_read):
                        m.d.sync += piece.payload.eq(READ_REQUEST_HEADER_OCTETS)
                    with m.If(message.is_atomic):
                        m.d.sync += piece.payload.eq(ATOMIC_REQUEST_HEADER_OCTETS)
                    with m.If(message.is_immediate):
                        m.d.sync += left.eq(0)
                    m.d.comb += self.measure.eq(1)
                m.next = "REMOTE_STAG"

            # The remote STag arrives; compare the element with what the FPDU needs.
            with m.State("REMOTE_STAG"):
                m.d.sync += [
                    piece.remote_stag.eq(Mux(responding, inbound.sink_stag, word)),
                    piece.address.eq(piece.element_offset + self.offset),
                    piece.covers.eq(left <= remaining),
                    piece.exhausted.eq(remaining <= left),
                    none_left.eq(left == 0),
                    none_remaining.eq(remaining == 0),
                ]
                m.next = "REMOTE_OFFSET"
                with m.If(message.bad_entry | ~length_matches):
                    fail()

            # The remote Tagged Offset, or Immediate Data, arrives; decide on the piece.
            with m.State("REMOTE_OFFSET"):
                m.d.comb += self.word_address.eq(element_range_address(piece.element + 1))
                m.d.sync += [
                    piece.remote_offset.eq(Mux(responding, inbound.sink_tagged_offset, word)),
                    piece.octets.eq(Mux(piece.covers, left, remaining)),
                    piece.asks.eq(~none_left & ~message.is_local),
                    first_piece.eq(0),
                    summed.eq(1),
                ]
                m.next = "PIECE"
                with m.If(message.is_atomic):
                    m.d.comb += self.word_address.eq(OPERANDS_ADDRESS)
                    m.next = "OPERANDS"
                with m.Elif(none_remaining & ~none_left & ~message.is_local):
                    m.next = "NEXT"

            # The operands arrive, a request a cycle, two cycles for an answer.
            with m.State("OPERANDS"):
                m.d.comb += self.word_address.eq(OPERANDS_ADDRESS + (step + 1)[:2])
                m.d.sync += [
                    step.eq(step + 1),
                    piece.operands.eq(Cat(piece.operands.as_value()[64:], word)),
                ]
                with m.If(step == OPERANDS + 1):
                    m.next = "PIECE"

            # Wait until the piece is taken. Ask for length and STag of the next element.
            with m.State("PIECE"):
                m.d.comb += self.word_address.eq(element_range_address(piece.element + 1))
                with m.If(self.piece.ready):
                    m.next = "NEXT"
                    with m.If(self.over):
                        m.next = "RANGE"

            # The piece takes what it has of the FPDU. Ask for the Tagged Offset of the next
            # element, unless there is none.
            with m.State("NEXT"):
                following = piece.element + 1
                m.d.comb += self.word_address.eq(element_offset_address(following))
                m.d.sync += [
                    piece.element.eq(following),
                    later_element.eq(1),
                    left.eq(left - piece.octets),
                ]
                with m.If(following == entry.element_count):
                    fail()
                with m.Else():
                    m.next = "STAG_AGAIN"

            # Ask for the remote STag.
            with m.State("STAG_AGAIN"):
                m.d.comb += self.word_address.eq(REMOTE_STAG_ADDRESS)
                m.next = "RANGE"
        bare = self.message.valid & message.bare
        m.d.comb += self.piece.valid.eq(fsm.ongoing("PIECE") | bare)
        return m
