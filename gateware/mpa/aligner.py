"""Cuts received bytes into words that begin where FPDUs do (RFC 5044, 4.1 and 4.3)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import MAX_ULPDU_LENGTH
from stagecoach.gateware.mpa.layouts import ANSWER, FPDU_WORD
from stagecoach.gateware.mpa.marker_count import UNITS_BETWEEN_MARKERS
from stagecoach.gateware.stream.buffer import StreamBuffer
from stagecoach.hw.interface.wire import FPDU_CRC_OCTETS, ULPDU_LENGTH_OCTETS

LENGTH_AND_PADDING_OCTETS = ULPDU_LENGTH_OCTETS + 3

_UNIT = data.StructLayout(
    {
        "data": 32,
        # If an FPDU starts here: its units; its ULPDU_Length is not allowed, or it has so many
        "units": 15,
        "oversize": 1,
        "two": 1,
        "three": 1,
        "four": 1,
    }
)
"""4 bytes. What they would say as start of an FPDU is known a cycle before that must be."""

_BEAT = data.StructLayout(
    {"lower": _UNIT, "upper": _UNIT, "half": 1, "whole": 1, "end": 1, "empty": 1}
)
"""`half`: without the upper unit. `whole` is the opposite: a register for each, because so much
hangs on it. `end`: the last one of the visit. `empty`: without both units, and with `end`."""


class Aligner(wiring.Component):
    """Finds the FPDUs in the bytes of one connection at a time: a visit.

    Everything counts in units of 4 bytes: FPDUs start and end there, and a Marker is one. Each
    FPDU, from its Marker on if one stands directly before it, becomes words that begin with its
    first unit. One word per cycle, none lost between FPDUs; a word comes two cycles after its beat.

    After the last beat of a visit no beat is taken until `start`, which may come two cycles after
    it; the first word of the next visit comes two cycles after `start`.

    Members
    -------
    answer: the requests made to the LLP, in order. rx: the answers.
    took: a beat was used or dropped, a cycle ago.
    ended: no beat and no word of the visit is to come; from the reset on, and until `start`.
    whole: when `ended`, all bytes of the visit were those of whole FPDUs.
    start: begin a visit at `position`, the start of an FPDU, with `markers` or without; that one is
        stable until the next visit. Only when `ended`.
    kill: beats are dropped, and what was there is forgotten.
    room: words may come in the next cycle; a register of the neighbour.
    valid, word: a word.
    inside: the words so far end inside an FPDU.
    fpdu_units, until_marker: with the first word of an FPDU. Its length without Markers; units
        from its start to the next Marker, 0 if it starts with one.
    pending: a word may come of beats that the LLP has given.
    """

    answer: In(stream.Signature(ANSWER))
    rx: In(stream.Signature(64))
    took: Out(1)
    ended: Out(1)
    whole: Out(1)
    start: In(1)
    position: In(32)
    markers: In(1)
    kill: In(1)
    room: In(1)
    valid: Out(1)
    word: Out(FPDU_WORD)
    inside: Out(1)
    fpdu_units: Out(15)
    until_marker: Out(7)
    pending: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.beats = beats = StreamBuffer(_BEAT)
        self._mark(m, beats.i)
        self._align(m, beats.o)
        return m

    def _mark(self, m: Module, beats: wiring.PureInterface) -> None:
        """Mark the beats of which only 4 bytes were asked for, and possible starts of FPDUs."""
        answer = Signal(ANSWER)  # the next one
        answer_valid = Signal()
        active = Signal()  # one is coming
        more = Signal(ANSWER["last_beat"].shape)  # beats of it after the next one
        last = Signal()  # none
        half = Signal()
        end = Signal()
        empty = Signal()
        taken = Signal()
        advance = Signal()
        m.d.comb += [
            beats.valid.eq((self.rx.valid | empty) & active),
            self.rx.ready.eq(beats.ready & active & ~empty),
            taken.eq(beats.valid & beats.ready),
            self.answer.ready.eq(~answer_valid),
            advance.eq(~active | (taken & last)),
            beats.payload.half.eq(last & half),
            beats.payload.whole.eq(~(last & half)),
            beats.payload.end.eq(last & end),
            beats.payload.empty.eq(empty),
        ]
        with m.If(~answer_valid):
            m.d.sync += [answer.eq(self.answer.payload), answer_valid.eq(self.answer.valid)]
        with m.Elif(advance):
            m.d.sync += answer_valid.eq(0)
        with m.If(advance):
            m.d.sync += [
                active.eq(answer_valid),
                more.eq(answer.last_beat),
                last.eq((answer.last_beat == 0) | answer.empty),
                half.eq(answer.half),
                end.eq(answer.end),
                empty.eq(answer.empty),
            ]
        with m.Elif(taken):
            m.d.sync += [more.eq(more - 1), last.eq(more == 1)]

        for unit, bits in (
            (beats.payload.lower, self.rx.payload[:32]),
            (beats.payload.upper, self.rx.payload[32:]),
        ):
            length = _ulpdu_length(bits)
            m.d.comb += [
                unit.data.eq(bits),
                # Length, ULPDU and PAD are whole units, the CRC is one.
                unit.units.eq((length + LENGTH_AND_PADDING_OCTETS + FPDU_CRC_OCTETS) >> 2),
                unit.oversize.eq(length > MAX_ULPDU_LENGTH),
                unit.two.eq(length <= 2),
                unit.three.eq((length > 2) & (length <= 6)),
                unit.four.eq((length > 6) & (length <= 10)),
            ]

    def _align(self, m: Module, beats: wiring.PureInterface) -> None:
        """Make words; 4 bytes may be held back for the next one."""
        hold = Signal(_UNIT)
        holding = Signal()
        aligned = Signal(init=1)  # not holding; also a register of its own
        need_half = Signal()  # the FPDU ends with one unit more
        need_whole = Signal(init=1)  # not so; of its own, for the wide enables
        beat = beats.payload
        lower, upper = Signal(_UNIT), Signal(_UNIT)
        emit = Signal()
        clear = Signal()
        from_hold = Signal()  # the word is what is held
        closing = Signal(init=1)  # the last beat of the visit has been
        used = Signal()  # there is a beat with bytes
        m.d.comb += [
            clear.eq(self.kill | self.start),
            lower.eq(hold),
            upper.eq(beat.lower),
            from_hold.eq(holding & ~need_whole),
            used.eq(beats.valid & ~closing & ~beat.empty),
            self.pending.eq(from_hold | (beats.valid & ~closing)),
            beats.ready.eq(~closing & (self.kill | (self.room & ~from_hold))),
            emit.eq(self.room & (from_hold | (used & (holding | ~need_whole | ~beat.half)))),
            self.ended.eq(closing & ~from_hold),
            self.whole.eq(aligned & ~self.inside),
        ]
        m.d.sync += self.took.eq(used & beats.ready)
        with m.If(self.start):
            m.d.sync += closing.eq(0)
        with m.Elif(beats.valid & beats.ready & beat.end):
            m.d.sync += closing.eq(1)
        with m.If(aligned):
            m.d.comb += [lower.eq(beat.lower), upper.eq(beat.upper)]
        with m.If(self.room):
            with m.If(from_hold):
                m.d.sync += [holding.eq(0), aligned.eq(1)]
            with m.Elif(used):
                # Holding stays as it is except when exactly one of the two is a half.
                holds = Mux(need_half, ~beat.half, holding ^ beat.half)
                m.d.sync += [holding.eq(holds), aligned.eq(~holds)]
            # When what was held is taken, what is there then means nothing.
            with m.If(used):
                m.d.sync += hold.eq(Mux(beat.whole, beat.upper, beat.lower))
        with m.If(clear):
            m.d.sync += [holding.eq(0), aligned.eq(1)]

        # Where the word to come is, in the interval of Markers
        position = Signal(7)
        due = Signal(2)  # its lower, its upper unit is a Marker
        interval = UNITS_BETWEEN_MARKERS + 1
        with m.If(self.start):
            m.d.sync += [
                position.eq(self.position[2:9]),
                due[0].eq(self.markers & (self.position[2:9] == 0)),
                due[1].eq(self.markers & (self.position[2:9] == interval - 1)),
            ]
        with m.Elif(emit):
            behind = Mux(need_half, 1, 2)
            m.d.sync += position.eq(position + behind)
            for index in range(2):
                there = position == Mux(need_half, interval - 1 - index, interval - 2 - index)
                m.d.sync += due[index].eq(self.markers & there)

        # Where it is in the FPDU
        left = Signal(15)  # units of the FPDU without Markers, from this word on
        one, two = Signal(), Signal()  # so many
        start = Signal(_UNIT)  # if it starts an FPDU: the unit with ULPDU_Length
        marked = due.any()
        final = Signal()
        ends = Signal()  # the next word, of the same FPDU, has one unit that is no Marker
        next_two = Signal()
        m.d.comb += start.eq(Mux(due[0], upper, lower))
        with m.If(self.inside):
            m.d.comb += [
                final.eq(one | (two & ~marked)),
                ends.eq(Mux(marked, left == 2, left == 3)),
                next_two.eq(Mux(marked, left == 3, left == 4)),
            ]
        with m.Else():
            m.d.comb += [
                final.eq(start.oversize | (start.two & ~marked)),
                ends.eq(Mux(marked, start.two, start.three) & ~start.oversize),
                next_two.eq(Mux(marked, start.three, start.four)),
            ]
        marker_next = self.markers & (position == interval - 2)
        with m.If(emit):
            m.d.sync += [
                self.inside.eq(~final),
                one.eq(ends),
                two.eq(next_two),
                need_half.eq(ends & ~marker_next),
                need_whole.eq(~ends | marker_next),
                # Two less, and a Marker does not count: one addition
                left.eq(Mux(self.inside, left, start.units) + Cat(marked, ~Const(0, 14))),
            ]
        with m.If(clear):
            m.d.sync += [self.inside.eq(0), need_half.eq(0), need_whole.eq(1)]

        m.d.sync += [
            self.valid.eq(emit & ~clear),
            self.word.data.eq(Cat(lower.data, upper.data)),
            self.word.first.eq(~self.inside),
            self.word.final.eq(final),
            self.word.half.eq(need_half),
            self.word.oversize.eq(~self.inside & start.oversize),
            self.word.markers.eq(Cat(due[0], due[1] & ~need_half)),
            self.fpdu_units.eq(start.units),
            self.until_marker.eq(-position),
        ]


def _ulpdu_length(unit: Value) -> Value:
    return Cat(unit[8:16], unit[:8])  # big endian
