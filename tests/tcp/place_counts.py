"""What is under way in the places of a block: each item that begins ends once, and not before."""

from collections import Counter
from typing import Any

from amaranth.lib import data

from stagecoach.sim.cosim.signals import every_cycle, reader


class PlaceCounts:
    """Counts the pulses `began` and `ended` of a block.

    under_way: of each place. most: the largest of that. total: of those that began.
    """

    def __init__(self, dut: Any, layout: data.StructLayout) -> None:
        self.names = list(layout.members)
        self.under_way: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.total: Counter[str] = Counter()
        self._began, self._ended = reader(dut.began), reader(dut.ended)
        every_cycle(dut, self._step)

    def _step(self, in_reset: bool) -> None:
        began, ended = self._began(), self._ended()
        if in_reset or not began | ended:
            return
        for place, name in enumerate(self.names):
            begins, ends = began >> place & 1, ended >> place & 1
            self.total[name] += begins
            self.under_way[name] += begins - ends
            assert self.under_way[name] >= 0, f"{name} ends twice"
            self.most[name] = max(self.most[name], self.under_way[name])

    def check_rest(self) -> None:
        """Nothing is under way."""
        assert not +self.under_way, self.under_way
