"""Records in which cycles something held, for measurements of latency and throughput."""

from collections.abc import Callable
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge


class Timeline:
    """The cycles, as registers see them, in which each named condition held.

    Parameters
    ----------
    dut: the top module; cycles without reset count, from 0.
    conditions: functions without arguments, looked at in each cycle.
    """

    def __init__(self, dut: Any, **conditions: Callable[[], Any]) -> None:
        self._dut = dut
        self._conditions = conditions
        self.now = 0
        self.at: dict[str, list[int]] = {name: [] for name in conditions}
        cocotb.start_soon(self._run())

    def clear(self) -> None:
        """Forget what was recorded."""
        for cycles in self.at.values():
            cycles.clear()

    async def wait_for(self, name: str, count: int) -> None:
        """Wait until a condition was recorded `count` times."""
        while len(self.at[name]) < count:
            await RisingEdge(self._dut.clk)

    def latency(self, first: str, second: str) -> int:
        """Return the cycles from the first time of one condition to the first time of another."""
        return self.at[second][0] - self.at[first][0]

    def interval(self, name: str) -> float:
        """Return the mean distance of a condition's times, the first quarter left out."""
        times = self.at[name][len(self.at[name]) // 4 :]
        return (times[-1] - times[0]) / (len(times) - 1)

    async def _run(self) -> None:
        edge = RisingEdge(self._dut.clk)
        while True:
            await edge
            if self._dut.rst.value:
                continue
            for name, condition in self._conditions.items():
                if condition():
                    self.at[name].append(self.now)
            self.now += 1


def passes(dut: Any, name: str) -> Callable[[], bool]:
    """Return the condition that an item of stream `name` is transferred."""
    valid = getattr(dut, f"{name}__valid")
    ready = getattr(dut, f"{name}__ready", None)
    return lambda: bool(valid.value) and (ready is None or bool(ready.value))


def high(signal: Any) -> Callable[[], bool]:
    """Return the condition that a one-bit signal is high."""
    return lambda: bool(signal.value)
