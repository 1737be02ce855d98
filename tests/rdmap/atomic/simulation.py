"""Runs a stage of the atomic unit in Amaranth's simulator: its tables answer in the same cycle."""

from collections.abc import Awaitable, Callable
from typing import Any

from amaranth.sim import Simulator


def simulate(dut: Any, check: Callable[[Any], Awaitable[None]]) -> None:
    """Run `check` with the context of a testbench beside the block."""
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(check)
    simulator.run()


def look(ctx: Any, reader: Any, entry: int) -> Any:
    """What a table has at an entry."""
    ctx.set(reader.entry, entry)
    return ctx.get(reader.data)
