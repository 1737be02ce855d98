"""Cuts the payload of a Send segment over the elements of a receive entry."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import WORD_OCTETS
from stagecoach.hw.interface.queue_entries import (
    RECEIVE_ENTRY_OCTETS,
    SCATTER_GATHER_ELEMENT,
    SCATTER_GATHER_ELEMENTS,
)

ENTRY_WORDS = RECEIVE_ENTRY_OCTETS // WORD_OCTETS

ELEMENT = data.StructLayout({name: 8 * octets for name, octets, _ in SCATTER_GATHER_ELEMENT})
ELEMENT_WORDS = ELEMENT.size // (8 * WORD_OCTETS)

PIECE = data.StructLayout({"stag": 32, "tagged_offset": 64, "octets": 32})
"""A range of a tagged buffer."""

LOAD_AT = 2
"""Words asked for before `mo` and `payload` are taken: both are late, and not needed sooner."""


class ReceiveScan(wiring.Component):
    """Reads the elements in order and gives the pieces that hold bytes `mo` to `mo + payload`.

    After `restart` it asks for one word per cycle; `mo` and `payload` must be right from the second
    cycle after it. `complete` and `exhausted` mean something from the third one.

    Members
    -------
    restart: In(1), start anew with the first element.
    mo: In(32), bytes of the message in the elements before this segment.
    payload: In(16), bytes of the segment.
    word_address: Out, asked for; `word` is the answer two cycles later.
    piece, piece_valid: Out, a piece of at least one byte; it is piece number `count`.
    count: Out, pieces given so far.
    complete: Out(1), all of the payload is in the `count` pieces.
    exhausted: Out(1), there is no element left.
    read: Out(1), all words have come.
    """

    restart: In(1)
    mo: In(32)
    payload: In(16)
    word_address: Out(range(ENTRY_WORDS))
    word: In(8 * WORD_OCTETS)
    piece: Out(PIECE)
    piece_valid: Out(1)
    count: Out(range(SCATTER_GATHER_ELEMENTS + 1))
    complete: Out(1)
    exhausted: Out(1)
    read: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()

        # Ask: word n in cycle n after the restart; it is at the input two cycles later.
        asked = Signal(range(ENTRY_WORDS + 1))
        asking = asked != ENTRY_WORDS
        arriving_next = Signal()
        arriving = Signal()
        arrived = Signal(range(ELEMENT_WORDS))
        m.d.comb += self.word_address.eq(asked)
        m.d.sync += [
            arriving_next.eq(asking),
            arriving.eq(arriving_next),
            self.read.eq(~asking & ~arriving_next),
        ]
        with m.If(asking):
            m.d.sync += asked.eq(asked + 1)

        # Element: collected from its words.
        words = [Signal(8 * WORD_OCTETS, name=f"word_{n}") for n in range(ELEMENT_WORDS)]
        element_valid = Signal()
        m.d.sync += element_valid.eq(0)
        with m.If(arriving):
            with m.Switch(arrived):
                for number, word in enumerate(words):
                    with m.Case(number):
                        m.d.sync += word.eq(self.word)
            m.d.sync += arrived.eq(arrived + 1)
            m.d.sync += element_valid.eq(arrived == ELEMENT_WORDS - 1)
        element = data.View(ELEMENT, Cat(words))

        # Room: what of the element lies after the bytes before this segment.
        skip = Signal(32)
        room = Signal(32)
        room_valid = Signal()
        stag = Signal(32)
        tagged_offset = Signal(64)
        behind = Signal(33)
        m.d.comb += behind.eq(element.length - skip)
        m.d.sync += [
            room_valid.eq(element_valid),
            room.eq(Mux(behind[-1], 0, behind)),
            stag.eq(element.stag),
            tagged_offset.eq(element.tagged_offset + skip),
        ]
        with m.If(element_valid):
            m.d.sync += skip.eq(Mux(behind[-1], skip - element.length, 0))

        # Piece: what of the payload goes there.
        left = Signal(16)
        elements = Signal(range(SCATTER_GATHER_ELEMENTS + 1))
        beyond = Signal(33)
        m.d.comb += [
            beyond.eq(left - room),
            self.piece.stag.eq(stag),
            self.piece.tagged_offset.eq(tagged_offset),
            self.piece.octets.eq(Mux(beyond[-1], left, room)),
            self.piece_valid.eq(room_valid & (room != 0) & (left != 0)),
            self.complete.eq(left == 0),
            self.exhausted.eq(elements == SCATTER_GATHER_ELEMENTS),
        ]
        with m.If(room_valid):
            m.d.sync += elements.eq(elements + 1)
            m.d.sync += left.eq(Mux(beyond[-1], 0, beyond))
        with m.If(self.piece_valid):
            m.d.sync += self.count.eq(self.count + 1)

        with m.If(asked == LOAD_AT):
            m.d.sync += [
                skip.eq(self.mo),
                left.eq(self.payload),
                self.count.eq(0),
                elements.eq(0),
            ]
        with m.If(self.restart):
            m.d.sync += [
                asked.eq(0),
                arriving_next.eq(0),
                arriving.eq(0),
                arrived.eq(0),
                element_valid.eq(0),
                room_valid.eq(0),
                self.read.eq(0),
            ]
        return m
