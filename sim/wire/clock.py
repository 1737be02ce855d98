"""The two time bases of a wire, in picoseconds."""

import time
from typing import Protocol

from stagecoach.sim.wire.impairments import PS_PER_NS

CYCLE_PS = 6400
"""Of a clock of 156.25 MHz, at which 8 bytes per cycle are 10 Gbit/s."""


class Clock(Protocol):
    """What tells a wire the time."""

    def now_ps(self) -> int:
        """The time, which never goes back."""
        ...


class CycleClock:
    """Counts the cycles of a simulation: whatever the machine does, a run repeats exactly."""

    def __init__(self) -> None:
        self._cycles = 0

    def advance(self, cycles: int) -> None:
        """Lets cycles pass."""
        if cycles < 0:
            raise ValueError(f"cycles is {cycles}; allowed: 0 and more")
        self._cycles += cycles

    def now_ps(self) -> int:
        """The time since the first cycle."""
        return self._cycles * CYCLE_PS


class WallClock:
    """Time since 1970 when it was made, and then that of a clock that nobody sets: for peers such
    as Linux, which have timers of their own.

    offset_ns: from CLOCK_MONOTONIC to it.
    """

    def __init__(self) -> None:
        self.offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ps(self) -> int:
        """The time since 1970."""
        return (time.monotonic_ns() + self.offset_ns) * PS_PER_NS
