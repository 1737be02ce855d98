"""Takes FPDUs out of the received octets and verifies them (RFC 5044, 4.1, 4.4 and 6)."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from gateware.config import MAX_ULPDU_LENGTH, RnicConfig
from gateware.interfaces import ULPDU_HEADER_OCTETS, Layouts, SegmentKind
from gateware.mpa.crc32c import INITIAL_STATE, RESIDUE, next_state
from gateware.mpa.layouts import ANSWER, MpaLayouts
from gateware.stream_buffer import StreamBuffer

LENGTH_OCTETS = 2  # RFC 5044, 4.1
CRC_OCTETS = 4
HEADER_WORDS = (LENGTH_OCTETS + ULPDU_HEADER_OCTETS) // 8

SEGMENTS_AHEAD = 16
"""Segments that may wait to be taken."""

SEGMENT_MARGIN = 8
"""No FPDU goes on with fewer places free: the pipeline, which never stops, may end as many."""


class Deframer(wiring.Component):
    """Walks through the octets of one connection at a time: a visit.

    A visit starts at the start of an FPDU. Words of FPDUs go to the store as they come, one per
    cycle and none lost between FPDUs; an FPDU is committed and its segment emitted when its last
    word has passed the CRC. What is not committed at the next visit is forgotten there.

    Members
    -------
    answer: the requests made to the LLP, in order. rx: the answers.
    took: a word of an answer was used or dropped.
    start: begin a visit of `qp` at `position`; `idle` must be high and every answer taken.
    qp, crc: of the visit; stable until the next one.
    kill: drop everything of this visit from this cycle on, until `start`.
    failed: a CRC (or ULPDU_Length) was wrong; the segment that says so is on its way. `kill` must
        be high from the next cycle on.
    inside: the octets so far end inside an FPDU. fpdu_octets: its length; fpdu_end: the position
        behind it (two cycles late), or behind the last one.
    consumed: the position behind the last committed FPDU.
    idle: nothing moves unless an answer comes.
    closed, closed_qp: say that a connection is closed, until `closed_taken`.
    segment: what happened, in order. release: positions of octets that the LLP may forget.
    The rest: to and from the store.
    """

    def __init__(self, config: RnicConfig):
        self._layouts = Layouts(config)
        self._mpa = MpaLayouts(config)
        self._address_bits = config.store_address_bits
        super().__init__(
            {
                "answer": In(stream.Signature(ANSWER)),
                "rx": In(stream.Signature(64)),
                "took": Out(1),
                "start": In(1),
                "position": In(32),
                "qp": In(config.qp_bits),
                "crc": In(1),
                "kill": In(1),
                "failed": Out(1),
                "inside": Out(1),
                "fpdu_octets": Out(17),
                "fpdu_end": Out(32),
                "consumed": Out(32),
                "idle": Out(1),
                "closed": In(1),
                "closed_qp": In(config.qp_bits),
                "closed_taken": Out(1),
                "segment": Out(stream.Signature(self._layouts.segment)),
                "release": Out(stream.Signature(self._mpa.rx_release)),
                "store_write": Out(1),
                "store_word": Out(64),
                "store_address": In(config.store_address_bits),
                "store_full": In(1),
                "store_commit": Out(1),
                "store_commit_end": Out(config.store_address_bits),
                "store_rewind": Out(1),
            }
        )
        self._word = data.StructLayout(
            {
                "data": 64,
                "first": 1,
                "final": 1,  # last word of the FPDU
                "half": 1,  # of the last one: the FPDU ends in the lower 4 octets
                "oversize": 1,  # ULPDU_Length is not allowed: only the first word counts
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat_layout = data.StructLayout({"data": 64, "half": 1})
        m.submodules.beats = beats = StreamBuffer(beat_layout)

        # Answers: mark the beats of which only 4 octets were asked for.
        count = Signal(ANSWER["last_beat"].shape)
        last_beat = Signal()
        took = Signal()
        answer = self.answer.payload
        m.d.comb += [
            last_beat.eq(count == answer.last_beat),
            beats.i.valid.eq(self.rx.valid & self.answer.valid),
            self.rx.ready.eq(beats.i.ready & self.answer.valid),
            beats.i.payload.data.eq(self.rx.payload),
            beats.i.payload.half.eq(last_beat & answer.half),
            took.eq(beats.i.valid & beats.i.ready),
            self.answer.ready.eq(took & last_beat),
        ]
        with m.If(took):
            m.d.sync += count.eq(Mux(last_beat, 0, count + 1))

        # Alignment: FPDUs start and end at multiples of 4 octets; 4 octets may be held back.
        hold = Signal(32)
        holding = Signal()
        left = Signal(15)  # of the FPDU, in units of 4 octets
        left_is_one = Signal()
        left_is_word = Signal()  # or less
        need_half = Signal()
        beat = beats.o.payload
        window = Signal(64)
        segments_room = Signal()
        may_emit = Signal()
        emit = Signal()
        take = Signal()
        m.d.comb += [
            window.eq(Mux(holding, Cat(hold, beat.data[:32]), beat.data)),
            need_half.eq(self.inside & left_is_one),
            may_emit.eq(segments_room & ~self.store_full & ~self.kill),
            beats.o.ready.eq(take),
            self.took.eq(beats.o.valid & take),
        ]
        with m.If(self.kill):
            m.d.comb += take.eq(1)
            m.d.sync += holding.eq(0)
        with m.Elif(may_emit):
            with m.If(holding & need_half):
                m.d.comb += emit.eq(1)
                m.d.sync += holding.eq(0)
            with m.Elif(beats.o.valid):
                m.d.comb += [take.eq(1), emit.eq(holding | need_half | ~beat.half)]
                # Holding stays as it is except when exactly one of the two is a half.
                m.d.sync += holding.eq(
                    Mux(need_half, ~beat.half, holding ^ beat.half),
                )
                m.d.sync += hold.eq(Mux(holding | need_half, beat.data[32:], beat.data[:32]))

        ulpdu_length = Cat(window[8:16], window[:8])
        fpdu_quarters = Signal(15)
        final = Signal()
        oversize = Signal()
        m.d.comb += [
            oversize.eq(~self.inside & (ulpdu_length > MAX_ULPDU_LENGTH)),
            final.eq(Mux(self.inside, left_is_word, oversize | (ulpdu_length <= 2))),
            self.fpdu_octets.eq(Cat(0, fpdu_quarters).shift_left(1)),
        ]
        with m.If(self.kill):
            m.d.sync += self.inside.eq(0)
        with m.Elif(emit):
            m.d.sync += self.inside.eq(~final)
            with m.If(self.inside):
                m.d.sync += [
                    left.eq(left - 2),
                    left_is_one.eq(left == 3),
                    left_is_word.eq(left <= 4),
                ]
            with m.Else():
                # ceil((2 + n) / 4) quarters of length, ULPDU and pad, one of CRC; two are out.
                m.d.sync += [
                    left.eq((ulpdu_length + 1) >> 2),
                    left_is_one.eq((ulpdu_length >= 3) & (ulpdu_length <= 6)),
                    left_is_word.eq(ulpdu_length <= 10),
                    fpdu_quarters.eq((ulpdu_length + LENGTH_OCTETS + CRC_OCTETS + 3) >> 2),
                ]

        # Stage 1: the word. 2: CRC register with this word. 3: verdict. 4: header is complete.
        word1, word2, word3, word4 = (Signal(self._word, name=f"word{i}") for i in (1, 2, 3, 4))
        valid1, valid2, valid3, valid4 = (Signal(name=f"valid{i}") for i in (1, 2, 3, 4))
        address2, address3, address4 = (
            Signal(self._address_bits, name=f"address{i}") for i in (2, 3, 4)
        )
        end3, end4 = Signal(32), Signal(32)
        good3, good4 = Signal(), Signal()
        crc = Signal(32, init=INITIAL_STATE)
        result = Signal(32)

        after = Mux(
            word1.final & word1.half, next_state(crc, word1.data[:32]), next_state(crc, word1.data)
        )
        m.d.sync += [
            valid1.eq(emit),
            word1.data.eq(window),
            word1.first.eq(~self.inside),
            word1.final.eq(final),
            word1.half.eq(need_half),
            word1.oversize.eq(oversize),
            valid2.eq(valid1),
            word2.eq(word1),
            address2.eq(self.store_address),
            valid3.eq(valid2),
            word3.eq(word2),
            address3.eq(address2),
            good3.eq(~word2.oversize & (~self.crc | (result == RESIDUE))),
            valid4.eq(valid3),
            word4.eq(word3),
            address4.eq(address3),
            good4.eq(good3),
            end4.eq(end3),
        ]
        with m.If(valid1):
            m.d.sync += [crc.eq(Mux(word1.final, INITIAL_STATE, after)), result.eq(after)]
            with m.If(word1.first):
                m.d.sync += self.fpdu_end.eq(self.fpdu_end + self.fpdu_octets)
        with m.If(valid2 & word2.final):
            m.d.sync += end3.eq(self.fpdu_end)
        m.d.comb += [
            self.store_write.eq(valid1 & ~self.kill),
            self.store_word.eq(word1.data),
        ]

        # The first words make the header that travels with the segment.
        header = Signal(data.ArrayLayout(64, HEADER_WORDS))
        index = Signal(range(HEADER_WORDS + 1))  # of word 3, if not the first one
        index3 = Mux(word3.first, 0, index)
        first_address = Signal(self._address_bits)
        with m.If(valid3):
            for number in range(HEADER_WORDS):
                with m.If(index3 == number):
                    m.d.sync += header[number].eq(word3.data)
            m.d.sync += index.eq(Mux(index3 == HEADER_WORDS, HEADER_WORDS, index3 + 1))
            with m.If(word3.first):
                m.d.sync += first_address.eq(address3)

        done = Signal()
        commit = Signal()
        m.d.comb += [
            done.eq(valid4 & word4.final & ~self.kill),
            commit.eq(done & good4),
            self.failed.eq(done & ~good4),
            self.store_commit.eq(commit),
            self.store_commit_end.eq(address4 + 1),
            self.store_rewind.eq(self.kill | self.start),
            self.closed_taken.eq(self.closed & segments_room & ~done),
        ]
        with m.If(commit):
            m.d.sync += self.consumed.eq(end4)

        layout = self._layouts.segment
        m.submodules.segments = segments = SyncFIFOBuffered(width=layout.size, depth=SEGMENTS_AHEAD)
        out = Signal(layout)
        m.d.comb += [
            segments.w_data.eq(out),
            self.segment.valid.eq(segments.r_rdy),
            self.segment.payload.eq(segments.r_data),
            segments.r_en.eq(self.segment.ready),
        ]
        m.d.sync += [
            segments.w_en.eq(done | self.closed_taken),
            segments_room.eq(segments.level <= SEGMENTS_AHEAD - SEGMENT_MARGIN),
        ]
        ulpdu_octets = Cat(header[0][8:16], header[0][:8])
        with m.If(done):
            m.d.sync += [
                out.qp.eq(self.qp),
                out.kind.eq(Mux(good4, SegmentKind.FPDU, SegmentKind.CRC_ERROR)),
                out.ulpdu_length.eq(ulpdu_octets),
                out.header.eq(Cat(*header)[8 * LENGTH_OCTETS :]),
                out.store_address.eq(first_address),
                out.store_end.eq(self.store_commit_end),
            ]
        with m.Elif(self.closed_taken):
            m.d.sync += [
                out.qp.eq(self.closed_qp),
                out.kind.eq(SegmentKind.CLOSED),
            ]

        # The newest position to release waits here while the LLP takes an older one.
        releasable = Signal()
        with m.If(self.release.ready | ~self.release.valid):
            m.d.sync += [
                self.release.valid.eq(releasable),
                self.release.payload.connection.eq(self.qp),
                self.release.payload.position.eq(self.consumed),
                releasable.eq(0),
            ]
        with m.If(commit):
            m.d.sync += releasable.eq(1)

        m.d.comb += self.idle.eq(
            ~(valid1 | valid2 | valid3 | valid4 | releasable | (holding & need_half))
        )

        with m.If(self.kill | self.start):
            m.d.sync += [
                valid1.eq(0),
                valid2.eq(0),
                valid3.eq(0),
                valid4.eq(0),
                crc.eq(INITIAL_STATE),
                releasable.eq(0),
                holding.eq(0),
                self.inside.eq(0),
            ]
        with m.If(self.start):
            m.d.sync += [self.fpdu_end.eq(self.position), self.consumed.eq(self.position)]
        return m
