"""The steady state of a run: figures between two moments, from a list of what came when."""

from collections.abc import Sequence
from typing import NamedTuple

WARM_UP = 0.1
"""Part of the stamps before the steady state: the latencies of the beginning are in it."""

COOL_DOWN = 0.05
"""Part of the stamps after it, where several QPs do not end at the same time."""


class Stamp(NamedTuple):
    """What was complete at the clock edge `cycle`: payload bytes, and ends of messages."""

    cycle: int
    octets: int
    messages: int


def steady(stamps: Sequence[Stamp]) -> dict[str, int]:
    """Bytes, messages and cycles in the steady state; `ValueError` for less than 8 stamps."""
    begin, end = bounds(stamps)
    return between([stamps], begin, end)


def bounds(stamps: Sequence[Stamp]) -> tuple[int, int]:
    """First and last cycle of the steady state."""
    if len(stamps) < 8:
        raise ValueError(f"{len(stamps)} stamps; a steady state takes at least 8")
    first = max(1, int(len(stamps) * WARM_UP))
    last = len(stamps) - 1 - int(len(stamps) * COOL_DOWN)
    return stamps[first].cycle, stamps[last].cycle


def between(directions: Sequence[Sequence[Stamp]], begin: int, end: int) -> dict[str, int]:
    """Sums over all directions after cycle `begin`, up to and with `end`."""
    inside = [stamp for stamps in directions for stamp in stamps if begin < stamp.cycle <= end]
    return {
        "octets": sum(stamp.octets for stamp in inside),
        "messages": sum(stamp.messages for stamp in inside),
        "cycles": end - begin,
    }
