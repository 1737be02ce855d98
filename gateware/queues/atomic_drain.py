"""Knows when the atomics that were under way at some time have ended."""

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gateware.config import RnicConfig


class AtomicDrain(wiring.Component):
    """After a `mark`, `passed` is low until all atomics that had begun then have ended.

    Atomics end in the order in which they began. Only the latest one may be refused, which ends it
    at once, before another one begins. So it is enough to count them; whatever begins behind a mark
    is not waited for. At most `config.qps` are under way, one of each QP.

    Parameters
    ----------
    config: sizes of the device.
    marks: number of those who ask.

    Members
    -------
    begin, end, refuse: In(1), pulses.
    mark: In(marks), bit n for who asks as number n, about all that began in cycles before.
    passed: Out(marks), low from the next cycle on, if one was under way up to two cycles before;
        high three cycles after the last `end`.
    """

    def __init__(self, config: RnicConfig, marks: int):
        self._most = config.qps
        super().__init__(
            {
                "begin": In(1),
                "end": In(1),
                "refuse": In(1),
                "mark": In(marks),
                "passed": Out(marks),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # The pulses may be late in their cycle and come from far: a register there, and one here.
        pulses, counted = Signal(3), Signal(3)
        begun, ended, refused = counted
        m.d.sync += [pulses.eq(Cat(self.begin, self.end, self.refuse)), counted.eq(pulses)]
        marked = Signal.like(self.mark)
        m.d.sync += marked.eq(self.mark)
        busy = Signal()
        under_way = Signal(range(self._most + 1))
        following = Signal.like(under_way)
        m.d.comb += following.eq(under_way + begun - ended - refused)
        m.d.sync += under_way.eq(following)
        m.d.comb += busy.eq((under_way != 0) | begun)
        for number in range(len(self.mark)):
            waited_for = Signal.like(under_way, name=f"waited_for_{number}")
            latest_too = Signal(name=f"latest_too_{number}")  # the latest that began
            with m.If(waited_for != 0):
                m.d.sync += waited_for.eq(waited_for - ended - (refused & latest_too))
            with m.If(begun):
                m.d.sync += latest_too.eq(0)
            with m.If(marked[number]):
                m.d.sync += [waited_for.eq(following), latest_too.eq(1)]
            m.d.comb += self.passed[number].eq((waited_for == 0) & ~(marked[number] & busy))
        return m
