"""Hands RDMAP headers to the gatherer as payload."""

from amaranth.hdl import Array, Elaboratable, Module, Signal
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.rdmap.headers import (
    ATOMIC_REQUEST_HEADER_OCTETS,
    ATOMIC_RESPONSE_HEADER_OCTETS,
    READ_REQUEST_HEADER_OCTETS,
    TERMINATE_HEADER_OCTETS,
)
from stagecoach.gateware.rdmap.transmit.header import (
    atomic_request_header,
    atomic_response_header,
    read_request_header,
)
from stagecoach.gateware.rdmap.transmit.message import piece_layout
from stagecoach.gateware.stream.fifo import StreamFifo
from stagecoach.hw.interface.queue_entries import IMMEDIATE_DATA_OCTETS

WORD_OCTETS = 8


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
    """Writes the octets of an RDMAP header as inline words of the gatherer, one per cycle.

    Members
    -------
    start: In(1), write `length` octets of `octets[kind]`, which hold until `done`; only while
        `room`.
    kind: In(InlineKind).
    octets: In, for each kind; octet i in bits [8i+7:8i]. There are no words after `WORDS[kind]`.
    length: In, 1 to what the kind has.
    room: Out(1), there is room for the longest header.
    done: Out(1), the last word is looked at in this cycle.
    o: Out(stream 64), the words.
    """

    DEPTH = 16

    start: In(1)
    kind: In(InlineKind)
    octets: In(64 * INLINE_WORDS).array(len(InlineKind))
    length: In(range(TERMINATE_HEADER_OCTETS + 1))
    room: Out(1)
    done: Out(1)
    o: Out(stream.Signature(64))

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        m.submodules.fifo = fifo = StreamFifo(64, self.DEPTH)
        wiring.connect(m, fifo.o, wiring.flipped(self.o))

        writing = Signal()
        last = Signal(range(INLINE_WORDS))
        ends = Signal()  # the number is the last one; the steps before wait for it
        number = Signal(range(INLINE_WORDS))
        # The word of each kind is chosen in one cycle, the kind in the next; then it is written.
        words = Array(Signal(64, name=f"word_{kind.name.lower()}") for kind in InlineKind)
        kind = Signal(InlineKind)
        word = Signal(64)
        found, chosen = Signal(), Signal()
        level = Signal(range(self.DEPTH + 1))
        for each, one, octets in zip(InlineKind, words, self.octets, strict=True):
            choices = WORDS[each]
            which = number[: (choices - 1).bit_length()]
            m.d.sync += one.eq(octets[: 64 * choices].word_select(which, 64))
        m.d.sync += [
            kind.eq(self.kind),
            found.eq(writing),
            word.eq(words[kind.as_value()]),
            chosen.eq(found),
        ]
        m.d.comb += [
            fifo.i.valid.eq(chosen),
            fifo.i.payload.eq(word),
            self.done.eq(writing & ends),
        ]
        m.d.sync += [
            level.eq(level + writing - (self.o.valid & self.o.ready)),
            self.room.eq(level <= self.DEPTH - INLINE_WORDS),
        ]
        started = Signal()
        m.d.sync += started.eq(self.start)
        with m.If(started):
            m.d.sync += [
                writing.eq(1),
                number.eq(0),
                last.eq(((self.length + WORD_OCTETS - 1) >> 3) - 1),
                ends.eq(self.length <= WORD_OCTETS),
            ]
        with m.Elif(writing):
            m.d.sync += [
                number.eq(number + 1),
                ends.eq(number + 1 == last),
                writing.eq(~self.done),
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
