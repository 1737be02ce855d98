"""Takes FPDUs out of the received octets and verifies them (RFC 5044, 4.1 to 4.4, 6 and 8)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.interfaces import Layouts, SegmentKind
from stagecoach.gateware.mpa.aligner import Aligner
from stagecoach.gateware.mpa.crc32c import (
    INITIAL_STATE,
    RESIDUE,
    RESIDUE_AND_ZEROS,
    state_part,
    word_part,
)
from stagecoach.gateware.mpa.layouts import ANSWER, MpaLayouts
from stagecoach.gateware.mpa.marker_count import MarkerCount
from stagecoach.gateware.mpa.marker_remove import MarkerRemover
from stagecoach.gateware.mpa.segment_queue import SegmentQueue

MEASURE_CYCLES = 1 + MarkerCount.LATENCY + 1
"""From the first word of an FPDU to the position after it."""


class Deframer(wiring.Component):
    """Walks through the octets of one connection at a time: a visit.

    A visit starts at the start of an FPDU. Words of FPDUs go to the store as they come, without
    Markers, one per cycle and none lost between FPDUs; an FPDU is committed and its segment
    emitted when its last word has passed the CRC. What is not committed at the next visit is
    forgotten there. The commit comes five cycles after the beat that ends the FPDU, the segment
    seven cycles after it.

    A CRC or a ULPDU_Length that is wrong is a CRC error; a Marker that is wrong in an FPDU with a
    good CRC, or while CRCs are off, a Marker error (RFC 5044, 8). Every Marker is checked.

    Members
    -------
    answer: the requests made to the LLP, in order, and after the last one of a visit its end. rx:
        the answers.
    took: a word of an answer was used or dropped, a cycle ago.
    left: the end has come, and all before it has left: the visit came to what is said here. Seven
        cycles after the last beat; until the pulse `leave`, which lets the answers go on.
    start: begin a visit of `qp` at `position`. Never while another one goes on; with `leave`, or
        before the first beat.
    qp, crc, markers: of the visit; stable until the next one, from `start` on.
    kill: drop everything of this visit from the next cycle on, until `start`.
    failed: an FPDU was wrong; the segment that says so is on its way, and nothing follows. `kill`
        must be high from the next cycle on.
    inside: the octets end inside an FPDU. fpdu_octets: its length with Markers; fpdu_end: the
        position after it, or after the last one. All three as they were some cycles ago, when
        `idle` as they are.
    consumed: the position after the last committed FPDU.
    idle: nothing moves unless an answer comes.
    closed, closed_qp: say that a connection is closed, until `closed_taken`; closed_inside, that
        octets of it are left that are no whole FPDU.
    segment: what happened, in order. release: positions of octets that the LLP may forget.
    The rest: to and from the store.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
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
                "markers": In(1),
                "kill": In(1),
                "failed": Out(1),
                "inside": Out(1),
                "fpdu_octets": Out(17),
                "fpdu_end": Out(32),
                "consumed": Out(32),
                "idle": Out(1),
                "left": Out(1),
                "leave": In(1),
                "closed": In(1),
                "closed_qp": In(config.qp_bits),
                "closed_inside": In(1),
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

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.aligner = aligner = Aligner()
        m.submodules.remover = remover = MarkerRemover()
        # Words pass the aligner, which is cleared by `kill` and `start` themselves, before anything
        # else sees them: all that is after it has a cycle more.
        cleared = Signal()
        dropping = Signal()
        wiring.connect(m, wiring.flipped(self.answer), aligner.answer)
        wiring.connect(m, wiring.flipped(self.rx), aligner.rx)
        m.d.comb += [
            self.took.eq(aligner.took),
            aligner.start.eq(self.start),
            aligner.position.eq(self.position),
            aligner.markers.eq(self.markers),
            aligner.kill.eq(self.kill),
            aligner.leave.eq(self.leave),
            remover.clear.eq(cleared),
            remover.valid.eq(aligner.valid),
            remover.word.eq(aligner.word),
        ]
        m.d.sync += [
            cleared.eq(self.kill | self.start),
            dropping.eq(self.kill | self.failed),
        ]
        crc_good = Signal()
        end = Signal(32)
        self._elaborate_crc(m, aligner, crc_good, end, cleared)
        self._elaborate_segments(m, aligner, remover, crc_good, end, cleared, dropping)
        self._elaborate_measure(m, aligner, cleared)
        return m

    def _elaborate_crc(
        self, m: Module, aligner: Aligner, good: Signal, end: Signal, cleared: Signal
    ) -> None:
        """The verdict over the word of two cycles ago, if that was a last one, and its end.

        Half a word counts as a whole one with zeros after it.
        """
        word = aligner.word
        crc = Signal(32, init=INITIAL_STATE)
        after, checked = Signal(32), Signal(32)
        # What the word contributes is computed a cycle before it is added to the register.
        lower_part, upper_part = Signal(32), Signal(32)
        valid, final, half, oversize = (Signal(name=f"crc_{n}") for n in ("v", "f", "h", "o"))
        checked_half, checked_oversize = Signal(), Signal()
        position = Signal(32)
        m.d.comb += [
            after.eq(lower_part ^ upper_part ^ state_part(crc, 64)),
            good.eq(
                ~checked_oversize
                & (~self.crc | (checked == Mux(checked_half, RESIDUE_AND_ZEROS, RESIDUE)))
            ),
        ]
        m.d.sync += [
            valid.eq(aligner.valid),
            final.eq(word.final),
            half.eq(word.half),
            oversize.eq(word.oversize),
            lower_part.eq(word_part(Cat(word.data[:32], Const(0, 32)))),
            upper_part.eq(word_part(Cat(Const(0, 32), word.data[32:]))),
            checked_half.eq(half),
            checked_oversize.eq(oversize),
            checked.eq(after),
            end.eq(position),
        ]
        with m.If(word.half):
            m.d.sync += upper_part.eq(0)
        with m.If(valid):
            m.d.sync += crc.eq(after)
        with m.If(aligner.valid):
            m.d.sync += position.eq(position + Mux(word.half, 4, 8))
        # A word comes three cycles after `start` at the earliest.
        with m.If(cleared | (valid & final)):
            m.d.sync += crc.eq(INITIAL_STATE)
        with m.If(self.start):
            m.d.sync += position.eq(self.position)

    def _elaborate_segments(
        self,
        m: Module,
        aligner: Aligner,
        remover: MarkerRemover,
        crc_good: Signal,
        end: Signal,
        cleared: Signal,
        dropping: Signal,
    ) -> None:
        """Store words; commit and report an FPDU, or fail, a cycle after its last word."""
        word = remover.o
        m.d.comb += [
            self.store_write.eq(remover.o_valid & ~dropping),
            self.store_word.eq(word.data),
            self.store_rewind.eq(cleared),
        ]

        first_address = Signal(self._address_bits)
        with m.If(remover.o_valid & word.first):
            m.d.sync += first_address.eq(self.store_address)

        last = Signal()
        last_address = Signal(self._address_bits)
        good, valid_crc = Signal(), Signal()
        verified_end = Signal(32)
        done = Signal()
        commit = Signal()
        m.d.sync += [
            last.eq(remover.o_valid & word.last & ~dropping),
            last_address.eq(self.store_address),
            good.eq(crc_good & ~remover.wrong),
            valid_crc.eq(crc_good),
            verified_end.eq(end),
        ]
        m.d.comb += [
            done.eq(last & ~dropping),
            commit.eq(done & good),
            self.failed.eq(done & ~good),
            self.store_commit.eq(commit),
            self.store_commit_end.eq(last_address + 1),
        ]
        with m.If(last & good):
            m.d.sync += self.consumed.eq(verified_end)
        with m.If(self.start):
            m.d.sync += self.consumed.eq(self.position)

        m.submodules.segments = segments = SegmentQueue(self._config)
        wiring.connect(m, segments.segment, wiring.flipped(self.segment))
        outcome = segments.outcome
        room = Signal()
        closes = Signal()  # no word of the cycle before was a last one
        m.d.comb += [
            segments.valid.eq(remover.o_valid),
            segments.word.eq(word.data),
            segments.last.eq(word.last),
            segments.clear.eq(cleared),
            segments.done.eq(done | self.closed_taken),
            self.closed_taken.eq(self.closed & closes),
            outcome.qp.eq(self.qp),
            outcome.kind.eq(Mux(valid_crc, SegmentKind.MARKER_ERROR, SegmentKind.CRC_ERROR)),
            outcome.store_address.eq(first_address),
            outcome.store_end.eq(self.store_commit_end),
        ]
        m.d.sync += [
            room.eq(segments.room),
            closes.eq(self.closed & room & ~closes & ~(remover.o_valid & word.last)),
            aligner.room.eq(segments.room & ~self.store_full),
        ]
        with m.If(good):
            m.d.comb += outcome.kind.eq(SegmentKind.FPDU)
        with m.If(closes):
            m.d.comb += [
                outcome.qp.eq(self.closed_qp),
                outcome.kind.eq(
                    Mux(self.closed_inside, SegmentKind.CLOSED_INSIDE, SegmentKind.CLOSED)
                ),
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
        with m.If(self.kill | self.start):
            m.d.sync += releasable.eq(0)

        # The measure takes longest of all that follows a word. What is in its last cycle has left
        # in the next one, where `quiet` counts.
        recent = Signal(MEASURE_CYCLES - 2)
        quiet = Signal()
        ended = Signal()
        m.d.sync += [
            recent.eq(Mux(cleared, 0, Cat(aligner.valid, recent))),
            quiet.eq(~(aligner.pending | aligner.valid | recent.any())),
            ended.eq(aligner.ended),
        ]
        m.d.comb += [
            self.idle.eq(quiet & ~releasable),
            self.left.eq(self.idle & ended & aligner.ended),
        ]

    def _elaborate_measure(self, m: Module, aligner: Aligner, cleared: Signal) -> None:
        """The length of every FPDU, with its Markers, and the position after it."""
        m.submodules.count = count = MarkerCount()
        m.d.comb += [
            count.fpdu_length.eq(Cat(Const(0, 2), aligner.fpdu_units)),
            count.until_marker.eq(aligner.until_marker),
        ]
        # Beside the count: the length, whether it is one, and whether words end inside the FPDU.
        length = aligner.fpdu_units
        for number in range(MarkerCount.LATENCY):
            delayed = Signal(15, name=f"length_{number}")
            m.d.sync += delayed.eq(length)
            length = delayed
        begun = Signal(MarkerCount.LATENCY + 1)
        inside = Signal(MEASURE_CYCLES - 1)
        m.d.sync += [
            begun.eq(Cat(aligner.valid & aligner.word.first, begun)),
            Cat(inside, self.inside).eq(Cat(aligner.inside, inside)),
        ]
        with m.If(begun[-2]):
            m.d.sync += self.fpdu_octets.eq(
                Cat(Const(0, 2), length) + Mux(self.markers, count.octets, 0)
            )
        with m.If(begun[-1]):
            m.d.sync += self.fpdu_end.eq(self.fpdu_end + self.fpdu_octets)
        with m.If(cleared):
            m.d.sync += begun.eq(0)
        # The next visit is asked about at once whether its octets end inside an FPDU.
        with m.If(self.kill | self.start):
            m.d.sync += [inside.eq(0), self.inside.eq(0)]
        with m.If(self.start):
            m.d.sync += self.fpdu_end.eq(self.position)
