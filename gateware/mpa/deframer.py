"""Takes FPDUs out of the received octets and verifies them (RFC 5044, 4.1 to 4.4, 6 and 8)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, SegmentKind
from stagecoach.gateware.mpa.aligner import Aligner
from stagecoach.gateware.mpa.crc32c import (
    INITIAL_STATE,
    RESIDUE,
    RESIDUE_AND_ZEROS,
    state_part,
    word_part,
)
from stagecoach.gateware.mpa.layouts import SMALLEST_FPDU_OCTETS, MpaLayouts
from stagecoach.gateware.mpa.marker_count import MarkerCount
from stagecoach.gateware.mpa.marker_remove import MarkerRemover
from stagecoach.gateware.mpa.ports import (
    ClosedPort,
    StoreNumberPort,
    StoreWritePort,
    VisitPort,
)
from stagecoach.gateware.mpa.segment_queue import SegmentQueue
from stagecoach.gateware.stream.prompt_fifo import PromptFifo

MEASURE_CYCLES = 1 + MarkerCount.LATENCY + 1
"""From the first word of an FPDU to the position after it."""

RELEASES = 4
"""Positions to release that may wait: a visit begins while one waits, and until its own comes, that
of the one before and one of its middle may have come."""


class Deframer(wiring.Component):
    """Walks through the bytes of one connection at a time: a visit.

    A visit starts at the start of an FPDU. Words of FPDUs go to the store as they come, without
    Markers, one per cycle and none lost between FPDUs; an FPDU is committed and its segment
    emitted when its last word has passed the CRC. The commit comes five cycles after the beat that
    ends the FPDU, the segment seven cycles after it.

    If a visit ends at the end of an FPDU, the first beat of the next one is taken two cycles after
    its last one, but visits begin at most once in four cycles; its last FPDU is verified while
    words of the next one come already. If it ends inside an FPDU, the turn takes eight cycles
    besides the beats, and what was not committed is forgotten.

    A CRC or a ULPDU_Length that is wrong is a CRC error; a Marker that is wrong in an FPDU with a
    good CRC, or while CRCs are off, a Marker error (RFC 5044, 8). Every Marker is checked. The rest
    of a visit with an error is dropped. The visit after it is dropped, too, if it has begun: it
    comes to nothing, and its bytes have to be requested again. The last FPDU of a visit is dropped
    if it is not committed when the next visit begins without being held; `consumed` of the end is
    then the position before that FPDU.

    While the LLP does not answer, nothing happens. While nobody takes segments, or the store is
    full, no beat is taken; while the LLP takes no release, a visit goes on, and the second one
    after it does not begin.

    Members
    -------
    visit: `VisitPort`, seen from the deframer. rx: what the LLP answers.
    closed: `ClosedPort`, seen from the deframer.
    segment: what happened, in order. queued: a pulse for each, when it is certain to come.
    release: positions of bytes that the LLP may forget; the last one of each visit, and some
        before it.
    store: `StoreWritePort`.
    numbers: `StoreNumberPort`; it is full as the store is.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        self._layouts = Layouts(config)
        self._mpa = MpaLayouts(config)
        self._address_bits = config.store_address_bits
        super().__init__(
            {
                "visit": In(VisitPort(config)),
                "rx": In(stream.Signature(64)),
                "closed": In(ClosedPort(config)),
                "segment": Out(stream.Signature(self._layouts.segment)),
                "queued": Out(1),
                "release": Out(stream.Signature(self._mpa.rx_release)),
                "store": Out(StoreWritePort(config)),
                "numbers": Out(StoreNumberPort(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # The visit of the aligner, and what the later stages keep of theirs
        self._visit = Signal(self._mpa.visit)
        self._left = Signal(4)  # a visit was left one, two, three, four cycles ago
        self._left_inside = Signal()
        self._qp = Signal(self._config.qp_bits)
        self._crc = Signal()
        self._consumed = Signal(32)  # the position after the last committed FPDU
        self._release_room = Signal()
        m.submodules.aligner = aligner = Aligner()
        m.submodules.remover = remover = MarkerRemover()
        # Words pass the aligner, which is cleared by `killed` and `start` themselves, before
        # anything else sees them: all that is after it has a cycle more.
        killed = Signal()
        cleared = Signal()
        dropping = Signal()
        started = Signal(5)  # a visit has begun one, two ... five cycles ago
        wiring.connect(m, wiring.flipped(self.visit.answer), aligner.answer)
        wiring.connect(m, wiring.flipped(self.rx), aligner.rx)
        m.d.comb += [
            self.visit.took.eq(aligner.took),
            self.visit.dropped.eq(killed),
            aligner.kill.eq(killed),
            remover.clear.eq(cleared),
            remover.valid.eq(aligner.valid),
            remover.word.eq(aligner.word),
        ]
        crc_good = Signal()
        good_end = Signal(32)
        failed = Signal()
        m.d.sync += dropping.eq(killed | failed)
        self._elaborate_turns(m, aligner, started, killed, cleared, failed)
        self._elaborate_crc(m, aligner, crc_good, good_end, cleared, started)
        self._elaborate_segments(
            m, aligner, remover, crc_good, good_end, cleared, dropping, started, failed
        )
        self._elaborate_measure(m, aligner, cleared, started)
        return m

    def _elaborate_turns(
        self,
        m: Module,
        aligner: Aligner,
        started: Signal,
        killed: Signal,
        cleared: Signal,
        failed: Signal,
    ) -> None:
        """Turn from visit to visit.

        What a visit came to is known four cycles after the aligner has left it, and what is done
        with its last word does not yet hang on the next one: `started` leads the registers of the
        later stages to that.
        """
        visit = self.visit
        visiting = Signal()
        whole = Signal()  # the visit is over, at the end of an FPDU
        leave = Signal()
        begins = Signal()
        flush = Signal()  # leave it when all of it has left the pipeline, which is cleared
        may_turn = Signal()
        quiet = Signal()
        ended = Signal()
        # The measure takes longest of all that follows a word. What is in its last cycle has left
        # in the next one, where `quiet` counts.
        recent = Signal(MEASURE_CYCLES - 2)
        m.d.sync += [
            recent.eq(Mux(cleared, 0, Cat(aligner.valid, recent))),
            quiet.eq(~(aligner.pending | aligner.valid | recent.any())),
            ended.eq(aligner.ended),
        ]
        m.d.comb += [
            may_turn.eq(~started[:3].any() & self._release_room),
            whole.eq(aligner.ended & aligner.whole & ~killed),
            flush.eq(visiting & may_turn & ~whole & aligner.ended & ended & quiet),
            leave.eq(flush | (visiting & may_turn & whole)),
            begins.eq(visit.visit.valid & may_turn & ~killed & (~visiting | whole)),
            visit.visit.ready.eq(started[0]),
            aligner.start.eq(begins),
            aligner.position.eq(visit.visit.payload.position),
            aligner.markers.eq(
                Mux(aligner.ended, visit.visit.payload.markers, self._visit.markers)
            ),
        ]
        m.d.sync += [
            started.eq(Cat(begins, started)),
            self._left.eq(Cat(leave, self._left)),
            cleared.eq(killed | flush),
        ]
        with m.If(leave):
            m.d.sync += [visiting.eq(0), self._left_inside.eq(flush & visit.inside)]
        with m.If(begins):
            m.d.sync += [visiting.eq(1), self._visit.eq(visit.visit.payload)]
        with m.If(~visiting & quiet):
            m.d.sync += killed.eq(0)
        with m.If(failed | visit.drop | (started[0] & ~visit.held)):
            m.d.sync += killed.eq(1)

    def _elaborate_crc(
        self,
        m: Module,
        aligner: Aligner,
        good: Signal,
        end: Signal,
        cleared: Signal,
        started: Signal,
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
                & (~self._crc | (checked == Mux(checked_half, RESIDUE_AND_ZEROS, RESIDUE)))
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
        with m.If(cleared | (valid & final)):
            m.d.sync += crc.eq(INITIAL_STATE)
        with m.If(started[0]):
            m.d.sync += position.eq(self.visit.visit.payload.position)
        with m.If(started[2]):
            m.d.sync += self._crc.eq(self._visit.crc)

    def _elaborate_segments(
        self,
        m: Module,
        aligner: Aligner,
        remover: MarkerRemover,
        crc_good: Signal,
        end: Signal,
        cleared: Signal,
        dropping: Signal,
        started: Signal,
        failed: Signal,
    ) -> None:
        """Store words; commit and report an FPDU, or fail, a cycle after its last word."""
        word = remover.o
        m.d.comb += [
            self.store.write.eq(remover.o_valid & ~dropping),
            self.store.word.eq(word.data),
            self.store.rewind.eq(cleared),
        ]

        first_address = Signal(self._address_bits)
        with m.If(remover.o_valid & word.first):
            m.d.sync += first_address.eq(self.store.address)

        last = Signal()
        last_address = Signal(self._address_bits)
        good, valid_crc = Signal(), Signal()
        verified_end = Signal(32)
        done = Signal()
        commit = Signal()
        m.d.sync += [
            last.eq(remover.o_valid & word.last & ~dropping),
            last_address.eq(self.store.address),
            good.eq(crc_good & ~remover.wrong),
            valid_crc.eq(crc_good),
            verified_end.eq(end),
        ]
        m.d.comb += [
            done.eq(last & ~dropping),
            commit.eq(done & good),
            failed.eq(done & ~good),
            self.store.commit.eq(commit),
            self.store.commit_end.eq(last_address + 1),
            self.numbers.commit.eq(commit),
        ]
        with m.If(commit):
            m.d.sync += self._consumed.eq(verified_end)
        dead = Signal()
        # The position where a visit begins comes here as if it were the end of an FPDU.
        with m.If(started[3]):
            m.d.sync += [self._qp.eq(self._visit.qp), self._consumed.eq(verified_end), dead.eq(0)]
        with m.If(failed):
            m.d.sync += dead.eq(1)
        end_of_visit = self.visit.end
        m.d.comb += [
            self.visit.ended.eq(self._left[3]),
            end_of_visit.qp.eq(self._qp),
            end_of_visit.dead.eq(dead),
            end_of_visit.consumed.eq(self._consumed),
            end_of_visit.needed.eq(
                Mux(self._left_inside, self.visit.fpdu_octets, SMALLEST_FPDU_OCTETS)
            ),
        ]

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
            segments.done.eq(done | self.closed.taken),
            self.queued.eq(segments.done),
            self.closed.taken.eq(self.closed.valid & closes),
            outcome.qp.eq(self._qp),
            outcome.kind.eq(Mux(valid_crc, SegmentKind.MARKER_ERROR, SegmentKind.CRC_ERROR)),
            outcome.store_address.eq(first_address),
            outcome.stored.end.eq(self.store.commit_end),
            outcome.stored.number.eq(self.numbers.number),
        ]
        m.d.sync += [
            room.eq(segments.room),
            closes.eq(self.closed.valid & room & ~closes & ~(remover.o_valid & word.last)),
            aligner.room.eq(segments.room & ~self.store.full & ~self.numbers.full),
        ]
        with m.If(good):
            m.d.comb += outcome.kind.eq(SegmentKind.FPDU)
        with m.If(closes):
            m.d.comb += [
                outcome.qp.eq(self.closed.qp),
                outcome.kind.eq(
                    Mux(self.closed.inside, SegmentKind.CLOSED_INSIDE, SegmentKind.CLOSED)
                ),
            ]

        # The newest position to release waits here while the LLP takes an older one, the last one
        # of a visit in the queue.
        m.submodules.releases = releases = PromptFifo(self._mpa.rx_release, RELEASES)
        wiring.connect(m, releases.o, wiring.flipped(self.release))
        releasable = Signal()
        m.d.comb += [
            releases.i.valid.eq(releasable & (self._left[3] | ~releases.o.valid)),
            releases.i.payload.connection.eq(self._qp),
            releases.i.payload.position.eq(self._consumed),
            self._release_room.eq(releases.level == 0),
        ]
        with m.If(releases.i.valid | (self.visit.drop & ~started.any())):
            m.d.sync += releasable.eq(0)
        with m.If(commit):
            m.d.sync += releasable.eq(1)

    def _elaborate_measure(
        self, m: Module, aligner: Aligner, cleared: Signal, started: Signal
    ) -> None:
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
            Cat(inside, self.visit.inside).eq(Cat(aligner.inside, inside)),
        ]
        with m.If(begun[-2]):
            m.d.sync += self.visit.fpdu_octets.eq(
                Cat(Const(0, 2), length) + Mux(self._visit.markers, count.octets, 0)
            )
        with m.If(begun[-1]):
            m.d.sync += self.visit.fpdu_end.eq(self.visit.fpdu_end + self.visit.fpdu_octets)
        with m.If(cleared):
            # The next visit is asked about at once whether its bytes end inside an FPDU.
            m.d.sync += [begun.eq(0), inside.eq(0), self.visit.inside.eq(0)]
        with m.If(started[4]):
            m.d.sync += self.visit.fpdu_end.eq(self._consumed)
