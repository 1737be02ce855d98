"""AXI4-Stream becomes words with a place; whatever the MAC does wrong makes a frame bad."""

from collections import deque
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.ethernet.frame_input import FrameInput
from stagecoach.gateware.ethernet.layouts import FRAME_WORD_AT
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset, unpack
from tests.ethernet.frame_bus import words_of
from tests.support.runner import parameter, run_cocotb

FRAMES = 400
LENGTHS = [1, 7, 8, 9, 60, 248, 249, 256, 257, 1514, 9014]
"""In octets; the 32nd word, the last one with a number of its own, begins at 248."""


@pytest.mark.parametrize("gaps", [0, 0.5])
def test_frame_input(gaps: float) -> None:
    run_cocotb(FrameInput(), __name__, parameters={"GAPS": str(gaps)})


def _beats(frame: bytes) -> list[dict[str, int]]:
    """What a MAC gives."""
    return [
        {
            "tdata": word["data"],
            "tkeep": (1 << word["octets"]) - 1,
            "tlast": word["last"],
            "tuser": 0,
        }
        for word in words_of(frame)
    ]


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_words_have_their_place(dut: Any) -> None:
    rng = seeded_random()
    dut.rx__tvalid.value = 0
    await start_clock_and_reset(dut)
    expected: deque[dict[str, int] | None] = deque()  # what the bus has, a cycle after the beat
    bad = 0
    for number in range(FRAMES):
        length = LENGTHS[number] if number < len(LENGTHS) else rng.randint(1, 400)
        frame = rng.randbytes(length)
        beats, words = _beats(frame), words_of(frame)
        wrong = rng.choice(range(len(beats))) if rng.random() < 0.4 else None
        if wrong is not None:
            beat, last = beats[wrong], wrong == len(beats) - 1
            ways = ["tuser", "holes", "nothing", *([] if last else ["short"])]
            match rng.choice(ways):
                case "tuser":
                    beat["tuser"] = 1
                case "holes":
                    beat["tkeep"] = rng.choice([0b10, 0b101, 0b11111110, 0b10000000, 0b01111011])
                case "nothing":
                    beat["tkeep"] = 0
                case "short":
                    beat["tkeep"] = (1 << rng.randint(1, 7)) - 1
            words[wrong]["octets"] = beat["tkeep"].bit_count()
            for word in words[wrong:]:
                word["error"] = 1
            bad += 1
        for beat, word in zip(beats, words, strict=True):
            while rng.random() < float(parameter("GAPS")):
                dut.rx__tvalid.value = 0
                for name in ("tdata", "tkeep", "tlast", "tuser"):
                    signal = getattr(dut, f"rx__{name}")
                    signal.value = rng.getrandbits(len(signal))
                await _edge(dut, expected)
                expected.append(None)
            dut.rx__tvalid.value = 1
            for name, value in beat.items():
                getattr(dut, f"rx__{name}").value = value
            await _edge(dut, expected)
            expected.append(word)
    assert bad > FRAMES / 4


async def _edge(dut: Any, expected: deque[dict[str, int] | None]) -> None:
    """One cycle; what was given in the one before is there."""
    await RisingEdge(dut.clk)
    assert int(dut.rx__tready.value)
    if expected:
        word = expected.popleft()
        assert bool(dut.o__valid.value) == (word is not None)
        if word is not None:
            assert unpack(FRAME_WORD_AT, int(dut.o__p.value)) == word
