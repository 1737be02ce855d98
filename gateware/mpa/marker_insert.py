"""Puts Markers into the words of an FPDU (RFC 5044, 4.2 and 4.3)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.mpa.layouts import MARKER
from stagecoach.gateware.mpa.marker_count import UNITS_BETWEEN_MARKERS


class _Unit(enum.Enum, shape=2):
    """Where 4 bytes come from."""

    FIRST = 0  # lower half of the word
    SECOND = 1
    MARKER = 2
    KEPT = 3


_FLAGS = data.StructLayout(
    {
        "first": 1,  # beat of the FPDU
        "last": 1,
        "upper_crc": 1,  # the CRC goes to the upper 4 bytes; it covers the lower ones
        "lower_crc": 1,  # the CRC goes to the lower 4 bytes, and nothing else is in this beat
        "covered_end": 1,  # the CRC covers nothing after this beat
    }
)


class MarkerInserter(wiring.Component):
    """Turns the words of an FPDU without CRC into its beats, Markers inserted, in order.

    Every FPDU starts in the lower 4 bytes of a beat, with its Marker if one stands directly
    before it. A place for the CRC is left after the last byte that it covers. A word makes one
    beat, two cycles later. What does not fit there (a Marker, the CRC) makes further beats in the
    cycles that follow, at most two, in which `ready` is low.

    Parameters
    ----------
    tag: layout of what goes along with a word; that of the last word goes with all after it.

    Members
    -------
    load: the next word is the first one of an FPDU. `markers`: insert them. `until_marker`: units
        of 4 bytes from where the FPDU, with its Markers, starts in the stream to the next Marker.
    ready: a word may come in this cycle.
    valid, word: a word, only if `ready`. `data` with PAD; `last` without the CRC; `half`: only
        the lower 4 bytes count, of the last one.
    o_valid, o: a beat; it cannot be held up.
    """

    def __init__(self, tag: data.StructLayout):
        self._tag = tag
        super().__init__(
            {
                "load": In(1),
                "markers": In(1),
                "until_marker": In(7),
                "ready": Out(1),
                "valid": In(1),
                "word": In(data.StructLayout({"data": 64, "last": 1, "half": 1, "tag": tag})),
                "o_valid": Out(1),
                "o": Out(data.StructLayout({"data": 64, "flags": _FLAGS, "tag": tag})),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        due = Signal(3)  # a Marker stands before the first, second, or third unit to come
        pointer = Signal(14)  # its FPDUPTR in units
        fresh = Signal(init=1)  # it is the first word
        self._elaborate_position(m, due, pointer, fresh)

        # What the word to come makes, with the unit that may have been kept of the one before.
        last = self.word.last
        short = Signal()
        marked = Signal()  # in the middle of the word or before it
        behind = Signal()  # after the whole last word: between PAD and CRC
        kept = Signal()
        units = Signal(range(5))
        m.d.comb += [
            short.eq(last & self.word.half),
            marked.eq(due[0] | due[1]),
            behind.eq(due[2] & last & ~short),
            units.eq(Mux(short, 1, 2) + kept + (marked | behind)),
        ]

        # Its second beat, and its third one, which is the CRC alone. `ready` has a register of its
        # own, because all that the framer does begins with it.
        second, third = Signal(), Signal()
        second_follows, third_follows = Signal(), Signal()
        second_flags = Signal(_FLAGS)
        m.d.comb += [
            second_follows.eq(self.valid & Mux(last, units >= 2, units == 4)),
            third_follows.eq(second & second_flags.covered_end & ~second_flags.last),
        ]
        m.d.sync += [
            second.eq(second_follows),
            third.eq(third_follows),
            self.ready.eq(~second_follows & ~third_follows),
        ]
        with m.If(self.valid):
            m.d.sync += [
                fresh.eq(last),
                kept.eq(units[0] & ~last),
                second_flags.last.eq(last & (units != 4)),
                second_flags.upper_crc.eq(units == 3),
                second_flags.lower_crc.eq(units == 2),
                second_flags.covered_end.eq(last & (units != 2)),
            ]

        # Stage 1: what goes where
        valid = Signal()
        word = Signal(64)
        tag = Signal(self._tag)
        flags = Signal(_FLAGS)
        marker = Signal(MARKER)
        keep = Signal()
        lower, upper = Signal(_Unit), Signal(_Unit)
        keep_lower, keep_upper = Signal(_Unit), Signal(_Unit)
        high, low = pointer[6:], Cat(Const(0, 2), pointer[:6])
        m.d.sync += [
            valid.eq(self.valid | second | third),
            word.eq(self.word.data),
            keep.eq(self.valid),
            marker.fpduptr_high.eq(high),
            marker.fpduptr_low.eq(low),
            keep_lower.eq(_Unit.SECOND),
            keep_upper.eq(Mux(marked, _Unit.SECOND, _Unit.MARKER)),
        ]
        with m.If(self.valid):
            m.d.sync += tag.eq(self.word.tag)
        with m.If(kept & due[0]):
            m.d.sync += keep_lower.eq(_Unit.FIRST)
        with m.Elif(Mux(kept, due[1], behind)):
            m.d.sync += keep_lower.eq(_Unit.MARKER)

        m.d.sync += flags.eq(0)
        with m.If(second):
            m.d.sync += flags.eq(second_flags)
        with m.Elif(third):
            m.d.sync += [flags.last.eq(1), flags.lower_crc.eq(1)]
        with m.Else():
            m.d.sync += [
                flags.first.eq(fresh),
                flags.last.eq(last & (units == 1)),
                flags.upper_crc.eq(last & (units == 1)),
                flags.covered_end.eq(last & (units <= 2)),
            ]
        with m.If(second | third):
            m.d.sync += [lower.eq(_Unit.KEPT), upper.eq(_Unit.KEPT)]
        with m.Elif(kept):
            m.d.sync += [lower.eq(_Unit.KEPT), upper.eq(Mux(due[0], _Unit.MARKER, _Unit.FIRST))]
        with m.Elif(due[0]):
            m.d.sync += [lower.eq(_Unit.MARKER), upper.eq(_Unit.FIRST)]
        with m.Else():
            m.d.sync += [
                lower.eq(_Unit.FIRST),
                upper.eq(Mux(due[1], _Unit.MARKER, _Unit.SECOND)),
            ]

        # Stage 2: it is there.
        kept_units = Signal(data.ArrayLayout(32, 2))

        def choose(which: Signal, own: Value) -> Value:
            """The 4 bytes that `which` names; `own` are the kept ones of its place."""
            chosen = Signal(32)
            with m.Switch(which):
                with m.Case(_Unit.FIRST):
                    m.d.comb += chosen.eq(word[:32])
                with m.Case(_Unit.SECOND):
                    m.d.comb += chosen.eq(word[32:])
                with m.Case(_Unit.MARKER):
                    m.d.comb += chosen.eq(marker.as_value())
                with m.Case(_Unit.KEPT):
                    m.d.comb += chosen.eq(own)
            return chosen

        m.d.sync += [
            self.o_valid.eq(valid),
            self.o.data.eq(Cat(choose(lower, kept_units[0]), choose(upper, kept_units[1]))),
            self.o.flags.eq(flags),
            self.o.tag.eq(tag),
        ]
        with m.If(keep):
            m.d.sync += [
                kept_units[0].eq(choose(keep_lower, kept_units[0])),
                kept_units[1].eq(choose(keep_upper, kept_units[1])),
            ]
        return m

    def _elaborate_position(self, m: Module, due: Signal, pointer: Signal, fresh: Signal) -> None:
        """Follow the position in the stream, modulo the distance of Markers, and FPDUPTR."""
        enabled = Signal()
        until = Signal(7)
        marked = due[:2].any()
        leading = fresh & due[0]
        last_low, last_high = Signal(7), Signal(7)
        low, high = pointer[:7], pointer[7:]
        m.d.comb += pointer.eq(Mux(fresh, until, Cat(last_low, last_high)))
        with m.If(self.valid):
            m.d.sync += [
                # Two units, and the Marker
                until.eq(until - 2 - marked),
                due.eq(Cat(enabled & (until == offset) for offset in (2, 3, 4))),
                # It counts from ULPDU_Length, also if a Marker stood before that.
                last_low.eq(Mux(leading, UNITS_BETWEEN_MARKERS, low)),
                last_high.eq(high + (marked & ~leading)),
            ]
        with m.If(self.load):
            m.d.sync += [
                enabled.eq(self.markers),
                until.eq(self.until_marker),
                due.eq(Cat(self.markers & (self.until_marker == offset) for offset in range(3))),
            ]
