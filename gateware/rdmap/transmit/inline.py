"""Hands RDMAP headers to the gatherer as payload."""

from amaranth.hdl import Array, Elaboratable, Module, Signal
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import WORD_OCTETS, RnicConfig
from stagecoach.gateware.rdmap.headers import TERMINATE_HEADER_OCTETS
from stagecoach.gateware.rdmap.transmit.header import (
    atomic_request_header,
    atomic_response_header,
    read_request_header,
)
from stagecoach.gateware.rdmap.transmit.message import piece_layout
from stagecoach.gateware.rdmap.transmit.pieces import HeldFifo
from stagecoach.hw.interface.wire import (
    ATOMIC_REQUEST_HEADER_OCTETS,
    ATOMIC_RESPONSE_HEADER_OCTETS,
    IMMEDIATE_DATA_OCTETS,
    READ_REQUEST_HEADER_OCTETS,
)


class InlineKind(enum.Enum, shape=3):
    """What may leave as inline words."""

    READ_REQUEST = 0
    ATOMIC_REQUEST = 1
    ATOMIC_RESPONSE = 2
    IMMEDIATE = 3
    TERMINATE = 4


WORDS = {
    kind: -(-octets // WORD_OCTETS)
    for kind, octets in (
        (InlineKind.READ_REQUEST, READ_REQUEST_HEADER_OCTETS),
        (InlineKind.ATOMIC_REQUEST, ATOMIC_REQUEST_HEADER_OCTETS),
        (InlineKind.ATOMIC_RESPONSE, ATOMIC_RESPONSE_HEADER_OCTETS),
        (InlineKind.IMMEDIATE, IMMEDIATE_DATA_OCTETS),
        (InlineKind.TERMINATE, TERMINATE_HEADER_OCTETS),
    )
}
"""That the longest header of each kind takes."""

INLINE_WORDS = max(WORDS.values())


class TransmitInline(wiring.Component):
    """Writes the bytes of an RDMAP header as inline words of the gatherer, one per cycle.

    They are written while the STag table is asked about the FPDU, and seen when it is committed.
    Word n is looked at 2 + n cycles after `start`, so that of a Read Request the last one is after
    5, and of an Atomic Request after 8; two cycles after the last one they are `written`.

    Members
    -------
    start: In(1), write `length` bytes of `octets[kind]`; only while `written` and `room`.
    kind, length: In(InlineKind) and In, in the cycle after `start`; length is 1 to what the kind
        has.
    octets: In, for each kind, each word until it is looked at; byte i in bits [8i+7:8i]. There are
        no words after `WORDS[kind]`.
    room: Out(1), there is room for the longest header.
    written: Out(1), low from the cycle after `start` on until the last word is being written.
    commit, discard: In(1), what was written so far is good, or is forgotten; a cycle after
        `written` at the earliest.
    o: Out(stream 64), committed words.
    """

    DEPTH = 16

    start: In(1)
    kind: In(InlineKind)
    octets: In(64 * INLINE_WORDS).array(len(InlineKind))
    length: In(range(TERMINATE_HEADER_OCTETS + 1))
    room: Out(1)
    written: Out(1)
    commit: In(1)
    discard: In(1)
    o: Out(stream.Signature(64))

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        m.submodules.held = held = HeldFifo(64, self.DEPTH, INLINE_WORDS)
        wiring.connect(m, held.o, wiring.flipped(self.o))

        writing = Signal()
        last = Signal(range(INLINE_WORDS))
        ends = Signal()  # the number is the last one
        number = Signal(range(INLINE_WORDS))
        # The word of each kind is chosen in one cycle, the kind in the next; then it is written.
        words = Array(Signal(64, name=f"word_{kind.name.lower()}") for kind in InlineKind)
        kind = Signal(InlineKind)
        word = Signal(64)
        found, chosen = Signal(), Signal()
        for each, one, octets in zip(InlineKind, words, self.octets, strict=True):
            choices = WORDS[each]
            which = number[: (choices - 1).bit_length()]
            m.d.sync += one.eq(octets[: 64 * choices].word_select(which, 64))
        m.d.sync += [
            found.eq(writing),
            word.eq(words[kind.as_value()]),
            chosen.eq(found),
        ]
        started = Signal()
        m.d.comb += [
            held.offer.eq(chosen),
            held.write.eq(chosen),
            held.item.eq(word),
            held.commit.eq(self.commit),
            held.discard.eq(self.discard),
            self.room.eq(held.room),
            self.written.eq(~(started | writing | found)),
        ]
        m.d.sync += started.eq(self.start)
        with m.If(started):
            m.d.sync += [
                kind.eq(self.kind),
                writing.eq(1),
                number.eq(0),
                last.eq(((self.length + WORD_OCTETS - 1) >> 3) - 1),
                ends.eq(self.length <= WORD_OCTETS),
            ]
        with m.Elif(writing):
            m.d.sync += [
                number.eq(number + 1),
                ends.eq(number + 1 == last),
                writing.eq(~ends),
            ]
        return m


class TransmitRdmapHeader(wiring.Component):
    """Chooses what the inline piece of an FPDU consists of, without a register.

    Members
    -------
    piece: In(piece_layout). original: In(64), what the atomic found that is answered.
    terminate_header, terminate_octets: In, of `TransmitTerminate`.
    kind, octets, length: Out, for `TransmitInline`.
    """

    def __init__(self, config: RnicConfig):
        super().__init__(
            {
                "piece": In(piece_layout(config)),
                "original": In(64),
                "terminate_header": In(8 * TERMINATE_HEADER_OCTETS),
                "terminate_octets": In(range(TERMINATE_HEADER_OCTETS + 1)),
                "kind": Out(InlineKind),
                "octets": Out(64 * INLINE_WORDS).array(len(InlineKind)),
                "length": Out(range(TERMINATE_HEADER_OCTETS + 1)),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        piece, message = self.piece, self.piece.message
        read_request = read_request_header(
            sink_stag=piece.element_stag,
            sink_tagged_offset=piece.element_offset,
            length=message.entry.length,
            source_stag=piece.remote_stag,
            source_tagged_offset=piece.remote_offset,
        )
        atomic_request = atomic_request_header(
            operation=message.entry.atomic_operation[:4],
            identifier=message.progress.atomic_identifier,
            stag=piece.remote_stag,
            tagged_offset=piece.remote_offset,
            operands=list(piece.operands),
        )
        # The identifier stands where a Read Request has its sink.
        atomic_response = atomic_response_header(
            identifier=message.inbound.sink_stag, original=self.original
        )
        for kind, octets in (
            (InlineKind.READ_REQUEST, read_request),
            (InlineKind.ATOMIC_REQUEST, atomic_request),
            (InlineKind.ATOMIC_RESPONSE, atomic_response),
            (InlineKind.IMMEDIATE, piece.remote_offset),
            (InlineKind.TERMINATE, self.terminate_header),
        ):
            m.d.comb += self.octets[kind.value].eq(octets)
        m.d.comb += [
            self.kind.eq(InlineKind.READ_REQUEST),
            self.length.eq(READ_REQUEST_HEADER_OCTETS),
        ]
        with m.If(message.terminating):
            m.d.comb += [self.kind.eq(InlineKind.TERMINATE), self.length.eq(self.terminate_octets)]
        with m.Elif(message.is_atomic):
            m.d.comb += [
                self.kind.eq(InlineKind.ATOMIC_REQUEST),
                self.length.eq(ATOMIC_REQUEST_HEADER_OCTETS),
            ]
        with m.Elif(message.answers_atomic):
            m.d.comb += [
                self.kind.eq(InlineKind.ATOMIC_RESPONSE),
                self.length.eq(ATOMIC_RESPONSE_HEADER_OCTETS),
            ]
        with m.Elif(message.is_immediate):
            m.d.comb += [
                self.kind.eq(InlineKind.IMMEDIATE),
                self.length.eq(IMMEDIATE_DATA_OCTETS),
            ]
        return m
