"""The Internet checksum of words of a stream (RFC 1071), and its update (RFC 1624)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

ALL_ONES = 0xFFFF
"""The sum over data and the checksum in it, if that is right (RFC 1071, 1)."""


def big_endian(octets: Value) -> Value:
    """Return the number whose most significant byte stands in lane 0."""
    return Cat(octets[at : at + 8] for at in reversed(range(0, len(octets), 8)))


def folded(total: Value) -> Value:
    """Return the upper bits of a sum added to its lower 16: one bit more than the longer part."""
    return total[:16] + total[16:]


def updated(checksum: Value, old_word: Value, new_word: Value) -> Value:
    """Return a checksum after a 16-bit word of what it covers changed (RFC 1624, equation 3)."""
    total = folded((~checksum)[:16] + (~old_word)[:16] + new_word)
    return ~folded(total)[:16]


class Checksum(wiring.Component):
    """One's complement sum of the chosen bytes of words, from a first word to a last one.

    Bytes that count are those of lanes with a 1. The byte of an even lane is the upper one of a
    16-bit word. If the data begins in an odd lane, the sum has its octets swapped (RFC 1071, 2 B):
    the caller says `odd` with the last word, and they are swapped back. An odd byte at the end
    counts as if a zero followed.

    Words come whenever `valid` is high, one per cycle; they never wait. `done` is high for one
    cycle, `LATENCY` cycles after a last word, with the `sum`; the next data may follow at once. The
    accumulator has 32 bits: 16,384 words and more cannot wrap it.

    Members
    -------
    valid: a word is there. word, lanes: its bytes, and those that count. first: the sum begins
        with this word. last: it ends with it. odd: with `last`.
    done, sum: the sum, not complemented, as in a header: the first byte is the upper one.
    """

    LATENCY = 4

    valid: In(1)
    word: In(64)
    lanes: In(8)
    first: In(1)
    last: In(1)
    odd: In(1)
    done: Out(1)
    sum: Out(16)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        chosen = Signal(64)
        m.d.comb += [
            chosen.word_select(lane, 8).eq(Mux(self.lanes[lane], self.word.word_select(lane, 8), 0))
            for lane in range(8)
        ]
        one, two, three, four = (big_endian(chosen[at : at + 16]) for at in range(0, 64, 16))

        # Added: the four parts of the word.
        part, begins = Signal(18), Signal()
        # Three marks travel with it: there is a word, it is the last, the data is odd.
        marks = [Signal(3, name=f"marks_{stage}") for stage in range(3)]
        m.d.sync += [
            part.eq((one + two) + (three + four)),
            begins.eq(self.first),
            marks[0].eq(Cat(self.valid, self.valid & self.last, self.odd)),
        ]
        # Accumulated.
        total = Signal(32)
        m.d.sync += marks[1].eq(marks[0])
        with m.If(marks[0][0]):
            m.d.sync += total.eq(Mux(begins, 0, total) + part)
        # Folded, twice: the second time there is at most one carry.
        once = Signal(17)
        twice = Signal(16)
        m.d.sync += [once.eq(folded(total)), marks[2].eq(marks[1])]
        m.d.comb += twice.eq(folded(once))
        swap = marks[2][2]
        m.d.sync += [
            self.done.eq(marks[2][1]),
            self.sum.eq(Mux(swap, big_endian(twice), twice)),
        ]
        return m
