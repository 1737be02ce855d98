"""Frames as the blocks that look at them get them: words with a place, one in a cycle or fewer."""

from collections.abc import AsyncIterator, Iterable
from random import Random
from typing import Any

from cocotb.triggers import RisingEdge

from stagecoach.gateware.ethernet.layouts import FRAME_WORD_AT, INDEX_BITS
from stagecoach.sim.cosim.streams import pack


def words_of(frame: bytes, error: bool = False) -> list[dict[str, int]]:
    """The words of a frame; lanes after its end are ones."""
    words = []
    for at in range(0, len(frame), 8):
        part = frame[at : at + 8]
        last = at + 8 >= len(frame)
        words.append(
            {
                "data": int.from_bytes(part.ljust(8, b"\xff"), "little"),
                "octets": len(part),
                "index": min(at // 8, (1 << INDEX_BITS) - 1),
                "first": int(at == 0),
                "last": int(last),
                "error": int(last and error),
            }
        )
    return words


async def drive(
    dut: Any, name: str, frames: Iterable[bytes], rng: Random, gaps: float
) -> AsyncIterator[int | None]:
    """Puts frames on the bus `name`; after each edge, the number of the frame that ended with it.

    gaps: how often a cycle has no word. It goes on without words for ever after the last frame.
    """
    valid, payload = getattr(dut, f"{name}__valid"), getattr(dut, f"{name}__p")
    for number, frame in enumerate(frames):
        for word in words_of(frame):
            while rng.random() < gaps:
                valid.value, payload.value = 0, rng.getrandbits(len(payload))
                await RisingEdge(dut.clk)
                yield None
            valid.value, payload.value = 1, pack(FRAME_WORD_AT, word)
            await RisingEdge(dut.clk)
            yield number if word["last"] else None
    valid.value = 0
    while True:
        await RisingEdge(dut.clk)
        yield None
