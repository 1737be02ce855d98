"""What latencies are told by: percentiles and a histogram."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_BINS = 12
_BAR = 40


@dataclass(frozen=True)
class Latencies:
    """Latencies of single messages in cycles; at least one.

    A percentile is by nearest rank: the least latency that as many per cent of all do not exceed.
    Of fewer than 100 messages the 99th is the longest, of fewer than 1000 the 99.9th.
    """

    cycles: tuple[int, ...]

    @property
    def least(self) -> int:
        """The shortest."""
        return min(self.cycles)

    @property
    def most(self) -> int:
        """The longest."""
        return max(self.cycles)

    @property
    def median(self) -> int:
        """The middle one, the lower of two."""
        return statistics.median_low(self.cycles)

    @property
    def average(self) -> float:
        """The arithmetic mean."""
        return statistics.fmean(self.cycles)

    def per_mille(self, rank: int) -> int:
        """The percentile of `rank` tenths of a per cent, 1 to 1000."""
        if not 1 <= rank <= 1000:
            raise ValueError(f"rank is {rank} per mille; allowed: 1 to 1000")
        place = -(-len(self.cycles) * rank // 1000)
        return sorted(self.cycles)[place - 1]

    def bins(self) -> list[tuple[int, int, int]]:
        """First cycle, last cycle and messages of each bin; at most 12 bins of equal width."""
        least, span = self.least, self.most - self.least + 1
        width = -(-span // _BINS)
        counts = [0] * -(-span // width)
        for each in self.cycles:
            counts[(each - least) // width] += 1
        return [
            (least + place * width, least + (place + 1) * width - 1, count)
            for place, count in enumerate(counts)
        ]


def histogram(latencies: Sequence[int]) -> str:
    """Lines of cycles, messages and a bar that is as long as the messages are many.

    80 columns of ASCII. A bin with messages has a bar of at least one character.
    """
    bins = Latencies(tuple(latencies)).bins()
    most = max(count for _, _, count in bins)
    texts = [f"{first:,}" if first == last else f"{first:,}-{last:,}" for first, last, _ in bins]
    column = max(map(len, texts))
    lines = []
    for text, (_, _, count) in zip(texts, bins, strict=True):
        bar = "#" * -(-_BAR * count // most)
        lines.append(f"  {text:>{column}}  {count:>6,}  {bar}".rstrip())
    return "\n".join(lines)
