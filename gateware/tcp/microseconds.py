"""The time of a TCP engine, counted from a clock."""

from math import gcd

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

US_IN_A_SECOND = 1_000_000
TIME_BITS = 32


class Microseconds(wiring.Component):
    """Counts microseconds, also with a clock that has no whole number of cycles in one.

    Every `clock_hz` cycles it goes on by 1,000,000; at any time it is less than a step late. With
    up to 1 MHz a step may be more than one microsecond.

    Parameters
    ----------
    clock_hz: of `sync`, 1 and more.

    Members
    -------
    time: modulo 2^32, which is 71 minutes.
    """

    def __init__(self, clock_hz: int):
        if clock_hz < 1:
            raise ValueError(f"clock_hz is {clock_hz!r}; allowed: 1 and more")
        self._clock_hz = clock_hz
        super().__init__({"time": Out(TIME_BITS)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        common = gcd(US_IN_A_SECOND, self._clock_hz)
        cycles = self._clock_hz // common
        whole, part = divmod(US_IN_A_SECOND // common, cycles)
        left = Signal(range(2 * cycles))  # parts of a microsecond, of which there are `cycles`
        following = Signal.like(left)
        is_one = Signal()
        m.d.comb += [following.eq(left + part), is_one.eq(following >= cycles)]
        m.d.sync += [
            left.eq(Mux(is_one, following - cycles, following)),
            self.time.eq(self.time + whole + is_one),
        ]
        return m
