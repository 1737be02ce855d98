"""Markers leave the words of FPDUs, and are checked (RFC 5044, 4.2, 4.3 and 8)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import MAX_ULPDU_LENGTH
from stagecoach.gateware.mpa.layouts import FPDU_WORD
from stagecoach.gateware.mpa.marker_remove import MarkerRemover
from stagecoach.sim.cosim.drive import Drive
from stagecoach.sim.cosim.signals import reader
from stagecoach.sim.cosim.streams import pack, seeded_random, start_clock_and_reset
from stagecoach.sim.model.markers import MARKER_INTERVAL, MARKER_OCTETS
from stagecoach.sim.model.mpa import frame_fpdu, parse_fpdu
from tests.support.runner import run_cocotb

LATENCY = 2
WORD_OCTETS = 8
POSITIONS = range(0, MARKER_INTERVAL, MARKER_OCTETS)
Change = Callable[[int, bytes], bytes]


def test_marker_remover() -> None:
    run_cocotb(MarkerRemover(), __name__)


@dataclass
class Word:
    """One that has to come: the octets that count, and its cycle as soon as that is known."""

    octets: bytes
    first: bool
    last: bool
    wrong: bool
    cycle: int | None = None


class Bench:
    """Gives the words of FPDUs and knows which ones have to come."""

    def __init__(self, dut: Any, density: float = 1.0) -> None:
        self.dut, self.density = dut, density
        self.rng = seeded_random(density)
        self.cycle = 0
        self.expected: list[Word] = []
        self._o_valid, self._o, self._wrong = map(reader, (dut.o_valid, dut.o, dut.wrong))
        self._drive = Drive({name: getattr(dut, name) for name in ("valid", "clear", "word")})
        self._edge = RisingEdge(dut.clk)
        self._bits = len(dut.word)

    async def start(self) -> None:
        self.dut.clear.value = self.dut.valid.value = 0
        await start_clock_and_reset(self.dut)

    async def step(self, word: dict[str, Any] | None = None, *, clear: bool = False) -> None:
        """One cycle: with a word, with `clear`, or with nothing."""
        bits = self.rng.getrandbits(self._bits) if word is None else pack(FPDU_WORD, word)
        self._drive(valid=int(word is not None), clear=int(clear), word=bits)
        await self._edge
        self.cycle += 1
        if not self._o_valid():
            assert not any(word.cycle == self.cycle for word in self.expected), "too late"
            return
        assert self.expected, "a word too many"
        wanted = self.expected.pop(0)
        value = self._o()
        octets = (value & ((1 << 64) - 1)).to_bytes(WORD_OCTETS, "little")
        assert octets[: len(wanted.octets)] == wanted.octets
        assert (value >> 64 & 1, value >> 65) == (wanted.first, wanted.last)
        assert wanted.cycle in (None, self.cycle), "too early"
        assert not wanted.last or bool(self._wrong()) == wanted.wrong

    async def rest(self) -> None:
        """Waits until all that has to come has come, and nothing else."""
        for _ in range(2 * LATENCY):
            await self.step()
        assert not self.expected

    async def fpdu(
        self,
        length: int,
        position: int | None,
        change: Change = lambda _, marker: marker,
        wrong: bool = False,
        words: int | None = None,
    ) -> None:
        """An FPDU at a position of the stream, or without Markers; all its words, or so many."""
        marked = position is not None
        fpdu = bytearray(
            frame_fpdu(self.rng.randbytes(length), markers=marked, position=position or 0)
        )
        found = parse_fpdu(bytes(fpdu), markers=marked, position=position or 0).markers
        offsets = {marker.offset for marker in found}
        for index, offset in enumerate(sorted(offsets)):
            place = slice(offset, offset + MARKER_OCTETS)
            fpdu[place] = change(index, bytes(fpdu[place]))
        units = [bytes(fpdu[at : at + 4]) for at in range(0, len(fpdu), 4) if at not in offsets]
        plain = [b"".join(units[at : at + 2]) for at in range(0, len(units), 2)]
        coming = [
            Word(octets, number == 0, number == len(plain) - 1, wrong)
            for number, octets in enumerate(plain)
        ]
        self.expected += coming
        for number, start in enumerate(range(0, len(fpdu), WORD_OCTETS)[:words]):
            while self.rng.random() >= self.density:
                await self.step()
            octets = bytes(fpdu[start : start + WORD_OCTETS])
            final = start + WORD_OCTETS >= len(fpdu)
            if not offsets:
                coming[number].cycle = self.cycle + 1 + LATENCY
            elif final:
                coming[-1].cycle = self.cycle + 1 + LATENCY
            after = self.rng.randbytes(WORD_OCTETS - len(octets))
            word = {
                "data": int.from_bytes(octets + after, "little"),
                "first": start == 0,
                "final": final,
                "half": len(octets) == 4,
                "markers": (start in offsets) | (start + 4 in offsets) << 1,
            }
            await self.step(word)


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_short_fpdus_at_every_position(dut: Any) -> None:
    for density in (1.0, 0.5):
        bench = Bench(dut, density)
        await bench.start()
        for position in POSITIONS:
            to_marker = -position % MARKER_INTERVAL
            lengths = {bench.rng.randint(1, 600), *range(1, 12, 4)}
            lengths |= {max(1, to_marker + near) for near in range(-10, 7, 4)}
            for length in bench.rng.sample(sorted(lengths), 5):
                await bench.fpdu(length, position)
            await bench.fpdu(bench.rng.randint(1, 40), None)
        await bench.rest()


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_the_longest_fpdu(dut: Any) -> None:
    """Its FPDUPTRs reach their largest value; those of the next FPDU begin again."""
    bench = Bench(dut)
    await bench.start()
    for position in (0, 4, MARKER_INTERVAL - 4):
        await bench.fpdu(MAX_ULPDU_LENGTH, position)
        await bench.fpdu(1, 0)
    await bench.rest()


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_every_bit_of_each_marker(dut: Any) -> None:
    """Two bits of FPDUPTR count as zero, the reserved bits are ignored (RFC 5044, 4.2)."""
    bench = Bench(dut)
    await bench.start()
    for position in (0, 8, 508):
        for bit in range(32):
            for marker in range(2):

                def change(
                    index: int, octets: bytes, bit: int = bit, marker: int = marker
                ) -> bytes:
                    value = int.from_bytes(octets, "big") ^ (1 << bit if index == marker else 0)
                    return value.to_bytes(MARKER_OCTETS, "big")

                await bench.fpdu(1100, position, change, wrong=2 <= bit < 16)
                # What was wrong is that of one FPDU: no Marker, a good one
                await bench.fpdu(5, None)
                await bench.fpdu(5, 0)
    await bench.rest()


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_clear_forgets_what_is_there(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    for position in (0, 4, 488, 496, 500, 504, 508):
        for words in range(1, 70):
            await bench.fpdu(520, position, words=words)
            await bench.step(clear=True)
            bench.expected.clear()  # what has not come by now never does
            await bench.step()
            await bench.fpdu(bench.rng.choice([1, 10, 600]), bench.rng.choice(POSITIONS))
            await bench.rest()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_words_wait_for_a_neighbour_that_gives_no_more(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    for words in range(1, 4):
        await bench.fpdu(40, 504, words=words)
        for _ in range(300):
            await bench.step()
        assert len(bench.expected) in (6 - words, 7 - words)
        await bench.step(clear=True)
        bench.expected.clear()
        await bench.step()
        await bench.fpdu(40, 504)
        await bench.rest()
