"""A frame begins when no notice waits, or one is offered, and then passes whole."""

from typing import Any

import cocotb
import pytest

from stagecoach.gateware.ethernet.layouts import RAW_WORD
from stagecoach.gateware.tcp.notice_gate import NoticeGate
from stagecoach.sim.cosim.signals import cycles, every_cycle
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter
from tests.support.verdicts import PATTERNS, Verdicts, each_check, simulate

FRAMES = 200


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_frames_wait_for_notices(dut: Any) -> None:
    """Between frames only; none is lost or changed."""
    pattern = parameter("PATTERN")
    rng = seeded_random(pattern)
    source = StreamSource(dut, "i", RAW_WORD, rng=rng, pattern=pattern)
    sink = StreamSink(dut, "o", RAW_WORD, rng=rng, pattern=pattern)
    StreamMonitor(dut, "o", keep=False)
    dut.waits.value = dut.offered.value = 0
    inside = False  # a frame was offered, and is not over
    begun = [0, 0]

    def look(in_reset: bool) -> None:
        nonlocal inside
        if in_reset:
            return
        waits, offered = int(dut.waits.value), int(dut.offered.value)
        opens = inside or not waits or offered
        assert dut.o__valid.value == (dut.i__valid.value if opens else 0)
        begun[waits] += int(not inside and bool(dut.o__valid.value))
        if dut.o__valid.value:
            last = int(dut.o__payload.value) >> (len(dut.o__payload) - 1)
            inside = not (dut.o__ready.value and last)
        if rng.random() < 0.2:
            dut.waits.value = waits = rng.getrandbits(1)
            dut.offered.value = waits and rng.random() < 0.3

    await start_clock_and_reset(dut)
    every_cycle(dut, look)
    words = []
    for _ in range(FRAMES):
        count = rng.choice([1, 1, 2, 9])
        for number in range(count):
            word = {"data": rng.getrandbits(64), "octets": 8 * (count - number)}
            words.append(word | {"last": int(number == count - 1)})
    source.put_all(words)
    assert await sink.get_many(len(words)) == words
    await cycles(dut, 20)
    assert not len(sink) and all(begun)


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    return simulate(tmp_path_factory, NoticeGate(), __name__, request.param)


@each_check(globals())
def test_notice_gate(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)
