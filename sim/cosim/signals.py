"""Reads signals, and does something at each rising edge of a clock, many thousand times a second.

cocotb makes objects of several classes for each value that is read, and schedules each task that
waits for an edge. In a test that looks at ten streams in each cycle that is most of its time.
"""

from collections.abc import Callable
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

Step = Callable[[bool], None]
"""What is done at an edge, after which `rst` was high or not. Values are as registers see them."""


def reader(signal: Any) -> Callable[[], int]:
    """Return what reads `signal`, of any width. It raises ValueError for an unknown bit.

    It asks the simulator as cocotb does. Where that cannot be had (another cocotb, an object that
    stands for a signal), it reads `value`.
    """
    bits = getattr(getattr(signal, "_handle", None), "get_signal_val_binstr", None)
    if bits is None:
        return lambda: int(signal.value)
    return lambda: int(bits(), 2)


async def cycles(dut: Any, number: int) -> None:
    """Wait for so many edges of `dut.clk`.

    Tasks run at an edge in the order in which they began to wait for it, so a test that waits for
    each edge keeps its place before or after the streams. After a Timer or ClockCycles it has
    another one, and sees what they do a cycle earlier or later.
    """
    edge = RisingEdge(dut.clk)
    for _ in range(number):
        await edge


class _Cycles:
    """What is done at the edges of one clock, in the order in which it was asked for."""

    def __init__(self, dut: Any) -> None:
        self.steps: list[Step] = []
        self._reset = reader(dut.rst)
        self.task = cocotb.start_soon(self._run(RisingEdge(dut.clk)))

    async def _run(self, edge: RisingEdge) -> None:
        while True:
            await edge
            in_reset = bool(self._reset())
            for step in self.steps:
                step(in_reset)


_clocks: dict[Any, _Cycles] = {}


def every_cycle(dut: Any, step: Step) -> None:
    """Have `step` called at each rising edge of `dut.clk` until the test ends.

    What it raises fails the test. Steps of one clock are called in the order of these calls.
    """
    cycles = _clocks.get(dut.clk)
    if cycles is None or cycles.task.done():
        cycles = _clocks[dut.clk] = _Cycles(dut)
    cycles.steps.append(step)
