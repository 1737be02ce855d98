"""Tells when everything that had begun at some time has ended."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

COUNT_BITS = 7

MOST = (1 << COUNT_BITS) - 1
"""Operations of one kind that may be between their begin and their end anywhere in the device; what
bounds them stands where a `Drain` or `QueueDrain` counts them."""


class Drain(wiring.Component):
    """After a `mark`, `passed` is low until all operations that had begun then have ended.

    Operations end in the order in which they began; only the latest one may be cancelled, which
    ends it at once, before another one begins. At most 2^`count_bits` - 1 may be under way. There
    are two kinds of counts: one goes up and down with what is under way, and one for each mark goes
    down from there to 0 and stays. So neither depends on how many operations begin and end while
    a block holds what has passed, and none wraps.

    The pulses may be late in their cycle: they are registered first. Nothing waits for a drain, and
    a drain waits for nothing but ends. A mark may come again before it has passed: it then asks
    anew, about all that is under way now.

    Parameters
    ----------
    count_bits: width of the counts.
    marks: number of those who ask.

    Members
    -------
    begin, end, cancel: In(1), pulses; each operation ends a cycle after its begin at the earliest.
    mark: In(marks), bit n for who asks as number n. What begins in this cycle counts; what begins
        later does not.
    passed: Out(marks), from the next cycle on low for 2 cycles at least, until 3 cycles after the
        last end; high after a reset.
    """

    def __init__(self, count_bits: int = COUNT_BITS, marks: int = 1):
        if count_bits < 1:
            raise ValueError(f"count_bits is {count_bits!r}; allowed: 1 or more")
        if marks < 1:
            raise ValueError(f"marks is {marks!r}; allowed: 1 or more")
        self._count_bits = count_bits
        super().__init__(
            {
                "begin": In(1),
                "end": In(1),
                "cancel": In(1),
                "mark": In(marks),
                "passed": Out(marks),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        begin, end, cancel = pulses = [Signal(name=name) for name in ("begin", "end", "cancel")]
        m.d.sync += Cat(pulses).eq(Cat(self.begin, self.end, self.cancel))
        under_way = Signal(self._count_bits)
        # One adder: the change is 1, 0, -1 or -2.
        falls = Mux(begin, end & cancel, end | cancel)
        change = Cat(begin ^ end ^ cancel, falls.replicate(max(self._count_bits - 1, 1)))
        m.d.sync += under_way.eq(under_way + change[: self._count_bits])

        # They are part of `under_way` now.
        begun, ended, cancelled = pulses = [
            Signal(name=name) for name in ("begun", "ended", "cancelled")
        ]
        m.d.sync += Cat(pulses).eq(Cat(begin, end, cancel))
        for number in range(len(self.mark)):
            marked = Signal(name=f"marked_{number}")
            take = Signal(name=f"take_{number}")  # all that counts for the mark is counted
            left = Signal(self._count_bits, name=f"left_{number}")  # of those waited for
            latest_too = Signal(name=f"latest_too_{number}")  # the latest that began
            m.d.sync += [marked.eq(self.mark[number]), take.eq(marked)]
            with m.If(take):
                m.d.sync += [left.eq(under_way), latest_too.eq(1)]
            with m.Else():
                with m.If(left != 0):
                    m.d.sync += left.eq(left - ended - (cancelled & latest_too))
                with m.If(begun):
                    m.d.sync += latest_too.eq(0)
            m.d.comb += self.passed[number].eq(~marked & ~take & (left == 0))
        return m
