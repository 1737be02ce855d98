"""Frames leave whole, in the order of their source, by turns, and none is too short."""

from collections import deque
from typing import Any

import cocotb
import pytest
from cocotb.triggers import FallingEdge, RisingEdge

from stagecoach.gateware.ethernet.frame_output import FrameOutput
from stagecoach.gateware.ethernet.layouts import FRAME_BEAT
from stagecoach.sim.cosim.streams import StreamSource, seeded_random, start_clock_and_reset
from tests.support.runner import parameter, run_cocotb

LEAST, LONGEST = 60, 1514
SIZES = (*range(1, 70), 127, 128, LONGEST)


@pytest.mark.parametrize("sources", [1, 2, 5])
@pytest.mark.parametrize("pattern", ["always", "bursty"])
def test_frame_output(sources: int, pattern: str) -> None:
    parameters = {"SOURCES": str(sources), "PATTERN": pattern}
    run_cocotb(FrameOutput(sources), __name__, parameters=parameters)


def test_wrong_number_of_sources() -> None:
    with pytest.raises(ValueError, match=r"FrameOutput sources is 0; allowed: 1 and more"):
        FrameOutput(0)


def words_of(frame: bytes) -> int:
    return -(-max(len(frame), LEAST) // 8)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_frames_of_all_sizes(dut: Any) -> None:
    count, pattern = int(parameter("SOURCES")), parameter("PATTERN")
    rng = seeded_random(count, pattern)
    always = pattern == "always"
    dut.tx__tready.value = 0
    sources, expected = [], []
    for number in range(count):
        # Of a source itself, a frame has no gap.
        sources.append(StreamSource(dut, f"frames__{number}", FRAME_BEAT))
        sizes = rng.sample(SIZES, len(SIZES))
        expected.append(deque(rng.randbytes(size) for size in sizes))
    await start_clock_and_reset(dut)
    for source, frames in zip(sources, expected, strict=True):
        for frame in frames:
            for at in range(0, len(frame), 8):
                part = frame[at : at + 8]
                data = int.from_bytes(part + rng.randbytes(8 - len(part)), "little")
                source.put({"data": data, "octets": len(part), "last": at + 8 >= len(frame)})

    left = sum(len(frames) for frames in expected)
    words = sum(words_of(frame) for frames in expected for frame in frames)
    order: list[int] = []
    found = b""
    cycles = 0  # since the first word
    held: tuple[int, ...] | None = None
    while left:
        ready = always or rng.random() < 0.6
        dut.tx__tready.value = int(ready)
        await RisingEdge(dut.clk)
        now = None
        if dut.tx__tvalid.value:
            names = ("tdata", "tkeep", "tlast", "tuser")
            now = tuple(int(getattr(dut, f"tx__{name}").value) for name in names)
        assert held is None or held == now, "changed while it waits"
        held = None if ready else now
        cycles += bool(cycles or now)
        if now is None or not ready:
            assert not always or not cycles, "a gap"
            continue
        data, keep, last, user = now
        octets = keep.bit_count()
        assert keep == (1 << octets) - 1 and octets and not user and (last or octets == 8)
        word = data.to_bytes(8, "little")
        assert not any(word[octets:])
        found += word[:octets]
        if last:
            frame, found = found, b""
            (number,) = [
                number
                for number, frames in enumerate(expected)
                if frames and frames[0].ljust(LEAST, b"\0") == frame
            ]
            expected[number].popleft()
            order.append(number)
            left -= 1
    assert not always or cycles == words
    # All have as many frames, and all wait at all times: each has its turn.
    turns = [order[at : at + count] for at in range(0, len(order), count)]
    assert all(turn == turns[0] and len(set(turn)) == count for turn in turns)
    await FallingEdge(dut.clk)
    assert not dut.tx__tvalid.value
