"""The gatherer: reads the pieces of an FPDU's payload and packs them without gaps."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import WORD_OCTETS, RnicConfig
from stagecoach.gateware.dma.bursts import WORD_BITS
from stagecoach.gateware.dma.lanes import choose_lanes, lanes_below, rotate_lanes
from stagecoach.gateware.host_memory import PAYLOAD_BEAT, ReadClient
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.registers_apart import keep_apart
from stagecoach.gateware.stream.buffer import StreamBuffer
from stagecoach.gateware.stream.fifo import StreamFifo

PIECES_AHEAD = 64
"""Pieces whose read was commanded and whose words were not all packed."""

BEATS_AHEAD = 8
"""Packed beats that wait to be taken; enough for one per cycle."""

WORD_PLAN = data.StructLayout(
    {
        "octets": range(WORD_OCTETS + 1),  # of the piece in this word
        "begin": WORD_BITS,  # lane of the first of them
        "ends": 1,  # the FPDU ends with this word
        "inline": 1,
        "from_memory": 1,  # the contrary, for the wide registers
    }
)
"""What becomes of a word."""


class Gather(wiring.Component):
    """Turns pieces of host memory into the packed payload of one FPDU after another.

    Pieces (1 to 65535 bytes each, `last` with the last one of an FPDU) go in order to the read
    engine, up to 64 ahead of the data. The bytes of the pieces of an FPDU leave `o` without gaps
    from lane 0 on; the beat with `last` has `error` if any word of the FPDU had.

    One word read per cycle, also from one piece to the next; an FPDU whose last word read fills a
    beat and begins another costs one cycle more. Latency three cycles from a word to its beat,
    two from a piece to its read command. Pieces are taken one every two cycles. Back-pressure on
    `o` stops the words; the read engine's buffer holds what is under way.

    Members
    -------
    piece: pieces in FPDU order.
    inline: the words of the inline pieces, in their order.
    read: client port of the read engine.
    o: payload beats.
    """

    def __init__(self, config: RnicConfig):
        self._layouts = Layouts(config)
        super().__init__(
            {
                "piece": In(stream.Signature(self._layouts.gather_piece)),
                "inline": In(stream.Signature(64)),
                "read": Out(ReadClient()),
                "o": Out(stream.Signature(PAYLOAD_BEAT)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # What the packer must know of a piece
        layout = data.StructLayout(
            {
                "lane": 3,  # of its first byte
                "more_words": 14,  # words without the first
                "first_octets": 4,  # bytes in its first word
                "last_octets": 4,  # bytes in its last word, if that is not the first
                "last": 1,  # of the FPDU
                "inline": 1,
            }
        )
        m.submodules.pieces = pieces = StreamFifo(layout, PIECES_AHEAD)
        m.submodules.next_piece = next_piece = StreamBuffer(layout)
        wiring.connect(m, pieces.o, next_piece.i)
        self._command(m, pieces.i, layout)
        self._pack(m, next_piece.o, layout)
        return m

    def _command(self, m: Module, pieces: Any, layout: data.StructLayout) -> None:
        """Command the read of each piece and note the piece for the packer."""
        held = Signal(self._layouts.gather_piece)
        held_valid = Signal()
        end = Signal(range(65535 + 2 * WORD_OCTETS))
        lane = held.address[:WORD_BITS]
        single = Signal()
        measured = Signal(layout)
        measured_valid = Signal()
        measure = Signal()
        m.d.comb += [
            self.piece.ready.eq(~held_valid),
            end.eq(lane + held.octets - 1),
            single.eq(end[WORD_BITS:] == 0),
            measure.eq(held_valid & ~measured_valid),
            self.read.command.valid.eq(measured_valid & pieces.ready & ~measured.inline),
            pieces.valid.eq(measured_valid & (self.read.command.ready | measured.inline)),
            pieces.payload.eq(measured),
        ]
        with m.If(~held_valid):
            m.d.sync += [held.eq(self.piece.payload), held_valid.eq(self.piece.valid)]
        with m.Elif(measure):
            m.d.sync += held_valid.eq(0)
        with m.If(measure):
            m.d.sync += [
                measured_valid.eq(1),
                self.read.command.payload.address.eq(held.address),
                self.read.command.payload.octets.eq(held.octets),
                measured.lane.eq(lane),
                measured.more_words.eq(end[WORD_BITS:]),
                measured.first_octets.eq(Mux(single, held.octets[:4], WORD_OCTETS - lane)),
                measured.last_octets.eq(end[:WORD_BITS] + 1),
                measured.last.eq(held.last),
                measured.inline.eq(held.inline),
            ]
        with m.Elif(pieces.valid & pieces.ready):
            m.d.sync += measured_valid.eq(0)

    def _plan(self, m: Module, pieces: Any, layout: data.StructLayout, o: Any) -> None:
        """Cut the pieces into words."""
        current = Signal(layout)  # `more_words` counts down
        active = Signal()
        first_word = Signal()
        last_word = Signal()
        load = Signal()
        m.d.comb += [
            load.eq(~active | (o.ready & last_word)),
            pieces.ready.eq(load),
            o.valid.eq(active),
            o.payload.octets.eq(WORD_OCTETS),
            o.payload.ends.eq(last_word & current.last),
            o.payload.inline.eq(current.inline),
            o.payload.from_memory.eq(~current.inline),
        ]
        with m.If(first_word):
            m.d.comb += [
                o.payload.octets.eq(current.first_octets),
                o.payload.begin.eq(current.lane),
            ]
        with m.Elif(last_word):
            m.d.comb += o.payload.octets.eq(current.last_octets)
        with m.If(load):
            m.d.sync += [
                current.eq(pieces.payload),
                active.eq(pieces.valid),
                first_word.eq(1),
                last_word.eq(pieces.payload.more_words == 0),
            ]
        with m.Elif(o.ready):
            m.d.sync += [
                current.more_words.eq(current.more_words - 1),
                first_word.eq(0),
                last_word.eq(current.more_words == 1),
            ]

    def _pack(self, m: Module, pieces: Any, layout: data.StructLayout) -> None:
        """Rotate each word to the lanes where its bytes go, and join it with what is left."""
        m.submodules.beats = beats = SyncFIFOBuffered(width=PAYLOAD_BEAT.size, depth=BEATS_AHEAD)
        # Known a cycle ahead, so that it comes from a register: there is room for a beat in this
        # cycle and the last one, and the beat to come is not a tail.
        step = Signal()  # the pipeline moves
        step_data = Signal()  # the same, for the wide registers
        keep_apart(step, step_data)
        tail = Signal()  # the FPDU's last bytes are a beat of their own, in this cycle
        tail_next = Signal()
        step_next = (beats.level <= BEATS_AHEAD - 3) & ~tail_next
        m.d.sync += [step.eq(step_next), step_data.eq(step_next)]

        # First stage: the word, and where its bytes go. What becomes of it is known before it is
        # there, and stands in registers.
        m.submodules.plan = planned = StreamBuffer(WORD_PLAN)
        self._plan(m, pieces, layout, planned.i)
        plan = planned.o.payload
        fill = Signal(WORD_BITS)  # bytes of an incomplete beat before this word's
        source_valid = Signal()
        moved = Signal()
        m.d.comb += [
            source_valid.eq(Mux(plan.inline, self.inline.valid, self.read.data.valid)),
            self.read.data.ready.eq(step & planned.o.valid & ~plan.inline),
            self.inline.ready.eq(step & planned.o.valid & plan.inline),
            moved.eq(step & planned.o.valid & source_valid),
            planned.o.ready.eq(step & source_valid),
        ]
        with m.If(moved):
            m.d.sync += fill.eq(Mux(plan.ends, 0, (fill + plan.octets)[:WORD_BITS]))

        stage = data.StructLayout(
            {
                "data": 64,
                "rotation": 3,
                "fill": 3,
                "total": 4,  # bytes in the beat together with the ones before; over 8: two beats
                "ends": 1,
                "error": 1,
                "valid": 1,
            }
        )
        beat = Signal(PAYLOAD_BEAT)
        taken = Signal(stage)
        with m.If(step_data):
            m.d.sync += [
                taken.data.eq(
                    Mux(plan.from_memory, self.read.data.payload.data, self.inline.payload)
                ),
                taken.rotation.eq(fill - plan.begin),
                taken.fill.eq(fill),
                taken.total.eq(fill + plan.octets),
                taken.ends.eq(plan.ends),
                taken.error.eq(self.read.data.payload.error & ~plan.inline),
                taken.valid.eq(moved),
            ]

        # Second stage: rotated
        rotated = Signal(stage)
        keep = Signal(WORD_OCTETS)  # lanes that were filled before this word
        with m.If(step_data):
            m.d.sync += [
                rotated.eq(taken),
                rotated.data.eq(rotate_lanes(taken.data, taken.rotation)),
                keep.eq(lanes_below(taken.fill)),
            ]

        # Third stage: joined with the bytes left from the words before
        rest = Signal(64)
        rest_octets = Signal(WORD_BITS)
        failed = Signal()
        joined = Signal(64)
        complete = Signal()
        overflow = Signal()
        m.d.comb += [
            joined.eq(choose_lanes(keep, rest, rotated.data)),
            complete.eq(rotated.total[WORD_BITS]),
            overflow.eq(complete & (rotated.total[:WORD_BITS] != 0)),
            beats.w_en.eq(tail | (step & rotated.valid & (complete | rotated.ends))),
            beats.w_data.eq(beat),
            beat.data.eq(joined),
            beat.octets.eq(Mux(complete, WORD_OCTETS, rotated.total)),
            beat.last.eq(rotated.ends & ~overflow),
            beat.error.eq(beat.last & (failed | rotated.error)),
            tail_next.eq(step & rotated.valid & rotated.ends & overflow),
        ]
        m.d.sync += tail.eq(tail_next)
        with m.If(tail):
            m.d.comb += [
                beat.data.eq(rest),
                beat.octets.eq(rest_octets),
                beat.last.eq(1),
                beat.error.eq(failed),
            ]
            m.d.sync += failed.eq(0)
        with m.Elif(step & rotated.valid):
            m.d.sync += [
                rest.eq(Mux(complete, rotated.data, joined)),
                rest_octets.eq(rotated.total[:WORD_BITS]),
                failed.eq((failed | rotated.error) & ~beat.last),
            ]

        m.d.comb += [
            self.o.valid.eq(beats.r_rdy),
            self.o.payload.eq(beats.r_data),
            beats.r_en.eq(self.o.ready),
        ]
