"""What the receiving side answers to who asks for the ranges of a connection."""

from random import Random
from typing import Any

from cocotb.triggers import RisingEdge

from stagecoach.gateware.tcp.ranges import RANGES, ranges_layout
from stagecoach.sim.cosim.streams import StreamSource, unpack


def parts_of(ranges: int, rng: Random) -> list[int]:
    """Ranges as they are answered: what is not in a part may be anything."""
    half = ranges_layout()["list"].width // 2
    masks = (-1 << 2 * half, (1 << half) - 1, ((1 << half) - 1) << half)
    noise = (rng.getrandbits(ranges_layout().size) for _ in masks)
    return [ranges & mask | other & ~mask for mask, other in zip(masks, noise, strict=True)]


async def asked_ranges(
    dut: Any, asks: StreamSource, connection: int
) -> tuple[tuple[int, int], ...]:
    """Ranges out of order, the last one first; they come in three parts."""
    dut.asked.value = connection
    await asks.send(connection)
    parts = []
    for _ in range(3):
        await RisingEdge(dut.clk)
        parts.append(unpack(ranges_layout(), int(dut.ranges.value)))
    head, *halves = parts
    places = [halves[place // (RANGES // 2)]["list"][place] for place in range(RANGES)]
    used = [places[place] for place in head["order"][: head["used"]]]
    assert int(dut.out_of_order.value) == bool(used)
    return tuple((each["first"], each["end"]) for each in used)
