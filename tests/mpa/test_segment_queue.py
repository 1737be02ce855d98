"""The segment queue gives every header with its outcome, whatever is forgotten between."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import ULPDU_HEADER_OCTETS, Layouts, SegmentKind
from stagecoach.gateware.mpa.segment_queue import SegmentQueue, outcome_layout
from stagecoach.hw.interface.wire import ULPDU_LENGTH_OCTETS
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    pack,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig(qps=4)
SEGMENTS = 1500
CLOSED = (SegmentKind.CLOSED, SegmentKind.CLOSED_INSIDE)
PIPELINE = 4  # cycles from `room` to the word


@pytest.mark.parametrize("pattern", ["always", "random", "slow"])
def test_segment_queue(pattern: str) -> None:
    run_cocotb(SegmentQueue(CONFIG), __name__, parameters={"PATTERN": pattern})


class Feeder:
    """Gives words as the deframer does: they follow `room` late, outcomes follow words."""

    def __init__(self, dut: Any) -> None:
        self.dut, self.rng = dut, seeded_random()
        self.expected: list[tuple[dict[str, int], bytes]] = []
        self.octets = b""
        self.left = 0  # words of the FPDU to come
        self.first = True
        # A word looks at the room of `PIPELINE` cycles ago, so that four come when it has fallen.
        self.rooms = [0] * (PIPELINE - 1)
        self.forgets = 0  # cycles of `clear` to come
        self.forgotten = 0

    def outcome(self, kind: SegmentKind) -> dict[str, int]:
        rng = self.rng
        fields = {"qp": rng.randrange(CONFIG.qps), "kind": kind.value}
        address = 1 << CONFIG.store_address_bits
        stored = {
            "end": rng.randrange(address),
            "number": rng.randrange(1 << CONFIG.store_number_bits),
        }
        return fields | {"store_address": rng.randrange(address), "stored": stored}

    async def cycle(self, fill: float) -> None:
        """One cycle; a word comes with the probability `fill`."""
        dut, rng = self.dut, self.rng
        await RisingEdge(dut.clk)
        self.rooms.append(int(dut.room.value))
        done = bool(dut.valid.value) and bool(dut.last.value) and not dut.clear.value
        if self.forgets:
            self.forgets -= 1
        elif rng.random() < 0.01 and not done:
            self.forgets = rng.randint(1, 30)
        dut.clear.value = int(self.forgets > 0)
        # The last word of a cycle ago gets its outcome.
        dut.done.value = 0
        if done:
            kind = rng.choice([SegmentKind.FPDU, SegmentKind.CRC_ERROR, SegmentKind.MARKER_ERROR])
            self.tell(self.outcome(kind), self.octets)
        elif self.rooms[-2] and rng.random() < 0.02:
            self.tell(self.outcome(rng.choice(CLOSED)), b"")
        dut.valid.value = 0
        room = self.rooms.pop(0)
        if self.forgets:
            self.forgotten += not self.first
            self.first = True
        elif room and rng.random() < fill:
            self.word()

    def tell(self, outcome: dict[str, int], octets: bytes) -> None:
        self.dut.done.value = 1
        self.dut.outcome.value = pack(outcome_layout(CONFIG), outcome)
        self.expected.append((outcome, octets))

    def word(self) -> None:
        dut, rng = self.dut, self.rng
        if self.first:
            self.octets = b""
            self.left = rng.choice([1, 2, 3, 4, rng.randint(5, 14)])
        self.left -= 1
        word = rng.randbytes(8)
        self.octets += word
        dut.valid.value = 1
        dut.word.value = int.from_bytes(word, "little")
        dut.last.value = int(not self.left)
        self.first = not self.left


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_headers_and_outcomes_belong_together(dut: Any) -> None:
    feeder = Feeder(dut)
    layout = Layouts(CONFIG).segment
    segments = StreamSink(dut, "segment", layout, rng=feeder.rng, pattern=parameter("PATTERN"))
    StreamMonitor(dut, "segment", layout)
    for name in ("valid", "clear", "done", "last"):
        getattr(dut, name).value = 0
    await start_clock_and_reset(dut)
    fill = 1.0
    while len(feeder.expected) < SEGMENTS:
        if feeder.rng.random() < 0.01:
            fill = feeder.rng.choice([0.1, 1.0])
        await feeder.cycle(fill)
    assert feeder.forgotten > 20
    await RisingEdge(dut.clk)
    dut.valid.value = dut.done.value = 0
    for number, (outcome, octets) in enumerate(feeder.expected):
        segment = await segments.get()
        assert {name: segment[name] for name in outcome} == outcome, number
        if SegmentKind(outcome["kind"]) not in CLOSED:
            assert segment["ulpdu_length"] == int.from_bytes(octets[:ULPDU_LENGTH_OCTETS], "big")
            kept = octets[ULPDU_LENGTH_OCTETS : ULPDU_LENGTH_OCTETS + ULPDU_HEADER_OCTETS]
            header = segment["header"].to_bytes(ULPDU_HEADER_OCTETS, "little")
            assert header[: len(kept)] == kept, number
