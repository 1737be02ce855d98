"""The figures of the tools, out of the times of messages."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

_MIB = 1 << 20
_MOST_FOR_PEAK = 20_000
_TAIL = 2
"""Of the longest times, these the tools do not take for the maximum."""


@dataclass(frozen=True)
class Bandwidth:
    """Of a bandwidth test.

    peak, average: MiB/s. rate: millions of messages per second. cycles: of this end's device for
    all messages, `None` where it did not see them.
    """

    size: int
    iterations: int
    peak: float
    average: float
    rate: float
    cycles: int | None = None

    @classmethod
    def of(
        cls, size: int, posted: Sequence[float], completed: Sequence[float], cycles: int
    ) -> "Bandwidth":
        """Of the seconds at which each message was posted, and had completed.

        The peak is that of the fastest 1, 2, 4, 8, ... messages in a row; of more than 20,000
        messages none is looked for, and it is 0.
        """
        number = len(posted)
        if number > _MOST_FOR_PEAK:
            return cls.over(size, number, completed[-1] - posted[0], cycles)
        seconds = max(completed[-1] - posted[0], 1e-9)
        spans = [1 << log for log in range(number.bit_length()) if 1 << log < number]
        best = min(
            (
                (completed[first + span - 1] - posted[first]) / span
                for span in spans
                for first in range(number - span + 1)
            ),
            default=seconds / number,
        )
        peak = size / max(min(best, seconds / number), 1e-9) / _MIB
        return cls.over(size, number, seconds, cycles, peak)

    @classmethod
    def over(
        cls, size: int, number: int, seconds: float, cycles: int | None, peak: float = 0.0
    ) -> "Bandwidth":
        """Of the seconds for all messages."""
        seconds = max(seconds, 1e-9)
        return cls(
            size, number, peak, size * number / seconds / _MIB, number / seconds / 1e6, cycles
        )


@dataclass(frozen=True)
class Latency:
    """Of a latency test: microseconds, of a ping-pong half of the round trip.

    cycles: of this end's device, on average for one message.
    """

    size: int
    iterations: int
    least: float
    most: float
    typical: float
    average: float
    deviation: float
    per_cent_99: float
    per_mille_999: float
    cycles: float

    @classmethod
    def of(cls, size: int, posted: Sequence[float], cycles: int, ping_pong: bool) -> "Latency":
        """Of the seconds at which each message was posted, 3 or more."""
        share = 2 if ping_pong else 1
        times = sorted(
            (after - before) * 1e6 / share for before, after in itertools.pairwise(posted)
        )
        number = len(times)
        average = sum(times) / number
        return cls(
            size=size,
            iterations=len(posted),
            least=times[0],
            most=times[max(0, number - _TAIL)],
            typical=_median(times),
            average=average,
            deviation=math.sqrt(sum((each - average) ** 2 for each in times) / number),
            per_cent_99=times[math.ceil(0.99 * number) - 1],
            per_mille_999=times[math.ceil(0.999 * number) - 1],
            cycles=cycles / len(posted) / share,
        )


def _median(times: Sequence[float]) -> float:
    middle, odd = divmod(len(times), 2)
    return times[middle] if odd else (times[middle - 1] + times[middle]) / 2


Result = Bandwidth | Latency
