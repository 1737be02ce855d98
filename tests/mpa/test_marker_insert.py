"""The beats of FPDUs are those of the model, Markers and the place of the CRC included."""

from collections import deque
from typing import Any

import cocotb
import pytest
from amaranth.lib import data
from cocotb.triggers import FallingEdge, RisingEdge

from stagecoach.gateware.config import MAX_ULPDU_LENGTH
from stagecoach.gateware.mpa.marker_insert import MarkerInserter
from stagecoach.sim.cosim.streams import (
    active_cycles,
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
)
from stagecoach.sim.model.markers import MARKER_INTERVAL, MARKER_OCTETS, due, insert_markers
from tests.support.runner import parameter, run_cocotb

UNIT = 4
BEAT = 8
LATENCY = 2
"""Cycles from a word to its beat."""

MOST_FURTHER_BEATS = 2
TAG = data.StructLayout({"word": 20})
"""A number for each word, to see which one goes along with a beat."""

WORD = data.StructLayout({"data": 64, "last": 1, "half": 1, "tag": TAG})
FLAGS = ("first", "last", "upper_crc", "lower_crc", "covered_end")
OUTPUT = data.StructLayout(
    {"data": 64, "flags": data.StructLayout(dict.fromkeys(FLAGS, 1)), "tag": TAG}
)


@pytest.mark.requirement("MPA-4.3-02", "MPA-4.3-03", "MPA-4.3-05", "MPA-4.3-08")
@pytest.mark.parametrize("pattern", ["always", "random"])
def test_marker_inserter(pattern: str) -> None:
    run_cocotb(MarkerInserter(TAG), __name__, parameters={"PATTERN": pattern})


def beats_of(body: bytes, position: int, markers: bool, number: int) -> list[dict[str, Any]]:
    """The beats of an FPDU at `position`; its first word has the tag `number`.

    The octets of each that count, its flags, its tag.
    """
    covered = insert_markers(body, position) if markers else body
    # Which word each unit comes with: a Marker with what follows it, the last one with the last.
    last = number + (len(body) - 1) // BEAT
    words, units = [], 0
    for at in range(0, len(covered), UNIT):
        if markers and due(position + at):
            words.append(min(number + units * UNIT // BEAT, last))
        else:
            words.append(number + units * UNIT // BEAT)
            units += 1
    words.append(last)  # the CRC
    beats = []
    size = len(covered) + UNIT
    for at in range(0, size, BEAT):
        octets = covered[at : at + BEAT]
        beats.append(
            {
                "octets": octets,
                "first": at == 0,
                "last": at + BEAT >= size,
                "upper_crc": len(octets) == UNIT,
                "lower_crc": not octets,
                "covered_end": bool(octets) and at + BEAT >= len(covered),
                "tag": max(words[at // UNIT : at // UNIT + 2]),
            }
        )
    return beats


class Bench:
    """Gives words as the framer does, and compares the beats."""

    def __init__(self, dut: Any) -> None:
        self.dut, self.pattern = dut, parameter("PATTERN")
        self.rng = seeded_random(self.pattern)
        self.willing = active_cycles(self.pattern, self.rng)
        for name in ("load", "markers", "until_marker", "valid", "word"):
            getattr(dut, name).value = 0
        self.expected: deque[dict[str, Any]] = deque()
        self.words: deque[int] = deque()  # the cycle of each word whose first beat did not come
        self.number = self.cycle = self.further = 0
        self.tag = -1

    async def step(self) -> bool:
        """Looks at the beat of this cycle, and returns whether a word may come in the next."""
        await RisingEdge(self.dut.clk)
        self.cycle += 1
        dut = self.dut
        # Its own beat comes with each word, whatever the one before still had.
        due_now = bool(self.words) and self.cycle - self.words[0] == LATENCY
        if due_now:
            self.words.popleft()
            assert dut.o_valid.value
        if dut.o_valid.value:
            self.further = 0 if due_now else self.further + 1
            assert self.further <= MOST_FURTHER_BEATS
            beat = unpack(OUTPUT, int(dut.o.value))
            expected = self.expected.popleft()
            octets = beat["data"].to_bytes(BEAT, "little")[: len(expected["octets"])]
            assert octets == expected["octets"]
            assert beat["flags"] == {name: int(expected[name]) for name in FLAGS}
            assert beat["tag"]["word"] == expected["tag"]
        await FallingEdge(dut.clk)
        return bool(dut.ready.value)

    async def fpdu(self, body: bytes, position: int, markers: bool, load: bool) -> int:
        """One FPDU, its `load` in a cycle of its own if wanted; returns the position after it."""
        dut = self.dut
        self.expected.extend(beats_of(body, position, markers, self.number))
        if load:
            self.load(position, markers)
            await self.step()
            self.quiet()
        length = len(insert_markers(body, position) if markers else body) + UNIT
        following = position + length
        for at in range(0, len(body), BEAT):
            while True:
                ready = await self.step()
                self.quiet()
                if ready and next(self.willing):
                    break
            octets = body[at : at + BEAT]
            last = at + BEAT >= len(body)
            half = last and len(octets) == UNIT
            word = {"data": int.from_bytes(octets.ljust(BEAT, b"\xee"), "little")}
            word |= {"last": int(last), "half": int(half)}
            dut.word.value = pack(WORD, word | {"tag": {"word": self.number}})
            dut.valid.value = 1
            self.words.append(self.cycle + 1)
            self.number += 1
        return following

    def load(self, position: int, markers: bool) -> None:
        dut = self.dut
        dut.load.value, dut.markers.value = 1, int(markers)
        dut.until_marker.value = -position % MARKER_INTERVAL // MARKER_OCTETS

    def quiet(self) -> None:
        """No word, and nothing is loaded."""
        dut = self.dut
        dut.load.value = dut.valid.value = 0
        dut.word.value = self.rng.getrandbits(WORD.size)
        dut.markers.value, dut.until_marker.value = self.rng.getrandbits(1), self.rng.getrandbits(7)

    async def rest(self) -> None:
        """All beats have come."""
        for _ in range(6):
            await self.step()
            self.quiet()
        assert not self.expected and not self.words


def body_of(rng: Any, ulpdu_length: int) -> bytes:
    """ULPDU_Length, ULPDU and PAD."""
    body = ulpdu_length.to_bytes(2, "big") + rng.randbytes(ulpdu_length)
    return body + bytes(-len(body) % UNIT)


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def check_beats_are_those_of_the_model(dut: Any) -> None:
    """FPDUs follow each other; the next one is loaded with the last word of the one before."""
    bench = Bench(dut)
    rng = bench.rng
    await start_clock_and_reset(dut)
    for turn in range(6):
        markers = turn % 3 != 0
        position = UNIT * rng.getrandbits(12)
        load = True
        for _ in range(40):
            length = rng.choice([rng.randrange(12), rng.randrange(60), rng.randrange(1100)])
            position = await bench.fpdu(body_of(rng, length), position, markers, load)
            load = rng.random() < 0.3
            if load:
                await bench.step()
                bench.quiet()
            else:
                bench.load(position, markers)
        await bench.rest()


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def check_every_position_of_short_fpdus(dut: Any) -> None:
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    for units in range(1, 8):
        for until in range(12):
            position = -until * MARKER_OCTETS % MARKER_INTERVAL
            body = body_of(bench.rng, UNIT * units - 2)
            await bench.fpdu(body, position, True, True)
            await bench.rest()


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def check_the_longest_fpdu(dut: Any) -> None:
    """FPDUPTR counts up to it."""
    if parameter("PATTERN") != "always":
        return
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    for position in (0, MARKER_INTERVAL - UNIT):
        await bench.fpdu(body_of(bench.rng, MAX_ULPDU_LENGTH), position, True, True)
        await bench.rest()
