"""Words begin where FPDUs do, whatever the requests, the Markers and the pauses."""

from collections import deque
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import MAX_ULPDU_LENGTH
from stagecoach.gateware.mpa.aligner import Aligner
from stagecoach.gateware.mpa.layouts import ANSWER, CHUNK_OCTETS, FPDU_WORD
from stagecoach.sim.cosim.signals import every_cycle, reader
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSource,
    active_cycles,
    seeded_random,
    start_clock_and_reset,
    unpack,
)
from stagecoach.sim.model.markers import MARKER_INTERVAL, MARKER_OCTETS, insert_markers
from tests.support.runner import parameter, run_cocotb

UNIT = 4
BEAT = 8
LATENCY = 2
"""Cycles from a beat to its word."""


@pytest.mark.parametrize("pattern", ["always", "random", "bursty"])
def test_aligner(pattern: str) -> None:
    run_cocotb(Aligner(), __name__, parameters={"PATTERN": pattern})


def words_of(fpdu: bytes, ulpdu_length: int, position: int, markers: bool) -> list[dict[str, Any]]:
    """The words of an FPDU, which begins at `position`."""
    words = []
    for at in range(0, len(fpdu), BEAT):
        units = [fpdu[at + offset :][:UNIT] for offset in (0, UNIT)]
        places = [position + at, position + at + UNIT]
        marked = [
            bool(markers and unit and place % MARKER_INTERVAL == 0)
            for unit, place in zip(units, places, strict=True)
        ]
        word = {"units": units, "first": at == 0, "final": at + BEAT >= len(fpdu)}
        word |= {"half": not units[1], "oversize": 0, "markers": marked[0] | marked[1] << 1}
        if at == 0:
            pad = -(2 + ulpdu_length) % UNIT
            word["fpdu_units"] = (2 + ulpdu_length + pad + UNIT) // UNIT
            word["until_marker"] = -position % MARKER_INTERVAL // MARKER_OCTETS
        words.append(word)
    return words


class Bench:
    """The LLP, the neighbour with its `room`, and the words that have to come."""

    def __init__(self, dut: Any) -> None:
        self.dut, self.pattern = dut, parameter("PATTERN")
        self.rng = seeded_random(self.pattern)
        options: Any = {"rng": self.rng, "pattern": self.pattern}
        self.answers = StreamSource(dut, "answer", ANSWER, **options)
        self.beats = StreamSource(dut, "rx", **options)
        self.rx = StreamMonitor(dut, "rx", keep=False)
        for name in ("start", "kill", "room", "position", "markers"):
            getattr(dut, name).value = 0
        self.words: deque[dict[str, Any]] = deque()
        self.took = self.came = 0
        self.cycle = 0
        self.first_beat = self.first_word = self.last_word = 0
        self.killed = False

    async def start(self) -> None:
        await start_clock_and_reset(self.dut)
        names = ("took", "valid", "word", "kill", "room", "pending")
        self._read = {name: reader(getattr(self.dut, name)) for name in names}
        self._willing = active_cycles(self.pattern, self.rng)
        self._had_room = self._was_pending = False
        self._transfers = 0
        every_cycle(self.dut, self._watch)

    def _watch(self, _: bool) -> None:
        """Compares each word; none comes without room, or without anything pending."""
        read = self._read
        self.cycle += 1
        self.took += read["took"]()
        if self._transfers == 0 and self.rx.transfers:
            self.first_beat = self.cycle
        self._transfers = self.rx.transfers
        if read["valid"]():
            assert self._had_room and self._was_pending and not self.killed
            self._compare(unpack(FPDU_WORD, read["word"]()))
            self.came += 1
        self.killed = bool(read["kill"]())
        self._had_room, self._was_pending = bool(read["room"]()), bool(read["pending"]())
        self.dut.room.value = int(next(self._willing))

    def _compare(self, word: dict[str, int]) -> None:
        self.last_word = self.cycle
        if not self.came:
            self.first_word = self.cycle
        expected = self.words.popleft()
        for name in ("first", "oversize", "final", "half", "markers"):
            if not expected["oversize"] or name in ("first", "oversize"):
                assert word[name] == expected[name], (name, expected)
        octets = word["data"].to_bytes(BEAT, "little")
        for at, unit in zip((0, UNIT), expected["units"], strict=True):
            assert octets[at : at + len(unit)] == unit
        for name in ("fpdu_units", "until_marker"):
            if name in expected and not expected["oversize"]:
                assert int(getattr(self.dut, name).value) == expected[name], name

    def request(self, octets: bytes, end: bool = False) -> None:
        """One request and its answer, in beats of its own; perhaps the last one of a visit."""
        assert octets and len(octets) % UNIT == 0 and len(octets) <= CHUNK_OCTETS
        half = len(octets) % BEAT != 0
        last = (len(octets) - 1) // BEAT
        self.answers.put({"last_beat": last, "half": int(half), "end": int(end)})
        for at in range(0, len(octets), BEAT):
            beat = octets[at : at + BEAT].ljust(BEAT, b"\xee")
            self.beats.put(int.from_bytes(beat, "little"))

    def stream(self, octets: bytes, largest: int = CHUNK_OCTETS) -> None:
        """All of a visit, in requests of any size; its end is told with the last one or alone."""
        together = self.rng.random() < 0.5
        while octets:
            few = min(UNIT * self.rng.randint(1, largest // UNIT), len(octets))
            self.request(octets[:few], together and few == len(octets))
            octets = octets[few:]
        if not together:
            self.answers.put({"end": 1, "empty": 1})

    async def begin(self, position: int, markers: bool) -> None:
        """A visit begins."""
        dut = self.dut
        dut.start.value = 1
        dut.position.value, dut.markers.value = position, int(markers)
        await RisingEdge(dut.clk)
        dut.start.value = 0
        self.took = self.came = self.rx.transfers = 0

    async def end(self, beats: int) -> None:
        """Waits for the end of the visit, and until nothing is pending."""
        dut = self.dut
        await RisingEdge(dut.clk)
        while not dut.ended.value:
            await RisingEdge(dut.clk)
        for _ in range(3):
            await RisingEdge(dut.clk)
            while dut.pending.value:
                await RisingEdge(dut.clk)
        assert self.took == beats


def fpdus(
    rng: Any, position: int, markers: bool, lengths: list[int]
) -> tuple[bytes, list[dict[str, Any]]]:
    """The octets of so many FPDUs, and their words."""
    octets, words = b"", []
    for length in lengths:
        at = position + len(octets)
        body = length.to_bytes(2, "big") + rng.randbytes(length)
        body += bytes(-len(body) % UNIT)
        fpdu = (insert_markers(body, at) if markers else body) + rng.randbytes(UNIT)
        words += words_of(fpdu, length, at, markers)
        octets += fpdu
    return octets, words


def some_position(rng: Any) -> int:
    """Often near a Marker, or where positions wrap."""
    near = rng.choice([0, MARKER_INTERVAL, 2**32]) + UNIT * rng.randint(-4, 4)
    return rng.choice([near, UNIT * rng.getrandbits(30)]) % 2**32


BUFFERED = 2
"""Beats of the next visit that the aligner has before that begins."""


async def visit(bench: Bench, lengths: list[int], markers: bool, first: bool, cut: int) -> None:
    """A visit that ends `cut` octets before the end of its last FPDU."""
    rng, dut = bench.rng, bench.dut
    position = some_position(rng)
    octets, words = fpdus(rng, position, markers, lengths)
    kept = len(octets) - cut
    # Of an FPDU that is not there completely, half a word is held back.
    for word in reversed(words):
        if not cut:
            break
        size = len(b"".join(word["units"]))
        if cut > 0:
            cut -= size
            words = words[:-1]
    inside = kept < len(octets) and (not words or not words[-1]["final"])
    bench.words.extend(words)
    beats = bench.beats.pending
    if first:
        await bench.begin(position, markers)
    largest = rng.choice([8, 64, CHUNK_OCTETS])
    bench.stream(octets[:kept], largest)
    beats = bench.beats.pending
    if not first:
        for _ in range(rng.choice([0, 10])):  # nothing is taken before the visit begins
            await RisingEdge(dut.clk)
        assert dut.ended.value and bench.beats.pending >= beats - BUFFERED
        await bench.begin(position, markers)
    await bench.end(beats)
    assert not bench.words
    assert bool(dut.inside.value) == (inside and bool(words))
    assert bool(dut.whole.value) == (kept == len(octets))


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def check_words_begin_with_fpdus(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    rng = bench.rng
    for number in range(60):
        lengths = [rng.choice([rng.randrange(40), rng.randrange(600)]) for _ in range(12)]
        lengths[rng.randrange(12)] = rng.choice([0, 1, 2, 3, 6, 7, 10, 11, 2000])
        last = (2 + lengths[-1] + 3) // UNIT * UNIT
        cut = rng.choice([0, 0, UNIT * rng.randint(0, last // UNIT)])
        await visit(bench, lengths, bool(number % 2), number == 0, cut)
    if bench.pattern == "always":
        await visit(bench, [MAX_ULPDU_LENGTH, 5], True, False, 0)
        await visit(bench, [MAX_ULPDU_LENGTH, MAX_ULPDU_LENGTH - 1], False, False, 0)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_word_comes_in_each_cycle(dut: Any) -> None:
    """Also between FPDUs that begin in the upper half of a beat."""
    if parameter("PATTERN") != "always":
        return
    bench = Bench(dut)
    await bench.start()
    octets, words = fpdus(bench.rng, 8, False, [2, 6, 18, 34, 3, 7, 50, 14, 2])
    bench.words.extend(words)
    await bench.begin(8, False)
    bench.request(octets)
    while bench.words:
        await RisingEdge(dut.clk)
    assert bench.first_word - bench.first_beat == LATENCY
    assert bench.last_word - bench.first_word == len(words) - 1


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_what_is_killed_is_dropped(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    rng = bench.rng
    for _ in range(20):
        markers = bool(rng.getrandbits(1))
        position = some_position(rng)
        octets, words = fpdus(rng, position, markers, [rng.randrange(100) for _ in range(8)])
        few = rng.randrange(len(words))
        bench.words.extend(words)
        bench.stream(octets, rng.choice([16, CHUNK_OCTETS]))
        beats = bench.beats.pending
        await bench.begin(position, markers)
        while bench.came < few:
            await RisingEdge(dut.clk)
        dut.kill.value = 1
        await bench.end(beats)
        assert not dut.inside.value
        dut.kill.value = 0
        bench.words.clear()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_length_that_is_not_allowed_is_told(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    for number, (length, markers) in enumerate(
        (length, markers) for length in (MAX_ULPDU_LENGTH + 1, 65535) for markers in (False, True)
    ):
        position = -UNIT * number % MARKER_INTERVAL
        octets, words = fpdus(bench.rng, position, markers, [20])
        # The field of the next FPDU, with the Marker before it
        at = len(octets)
        fpdu = length.to_bytes(2, "big") + bytes(6)
        words += words_of(fpdu, length, position + at, False)
        words[-1]["oversize"] = 1
        bench.words.extend(words)
        bench.stream(octets + fpdu)
        beats = bench.beats.pending
        await bench.begin(position, markers)
        while bench.words:
            await RisingEdge(dut.clk)
        dut.kill.value = 1
        await bench.end(beats)
        dut.kill.value = 0
