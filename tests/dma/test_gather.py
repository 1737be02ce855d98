"""The gatherer packs the octets of an FPDU's pieces without gaps, in order."""

from collections import deque

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.dma.gather import Gather
from stagecoach.gateware.host_memory import MEMORY_COMMAND, PAYLOAD_BEAT, READ_WORD
from stagecoach.gateware.layouts import Layouts
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.dma.axi_slaves import host_octets, words_of
from tests.support.runner import parameter, run_cocotb

PIECE = Layouts(RnicConfig()).gather_piece


@pytest.mark.parametrize("pattern", ["always", "random", "bursty"])
def test_pieces_are_packed(pattern):
    run_cocotb(
        Gather(RnicConfig()), __name__, test_filter="check_random", parameters={"PATTERN": pattern}
    )


def test_every_pair_of_lane_and_length():
    run_cocotb(Gather(RnicConfig()), __name__, test_filter="check_pairs")


def test_error_is_told_with_the_last_beat_of_its_fpdu_only():
    run_cocotb(Gather(RnicConfig()), __name__, test_filter="check_errors")


def test_one_word_per_cycle():
    run_cocotb(Gather(RnicConfig()), __name__, test_filter="check_throughput")


class Reader:
    """Stands for the read engine: answers commands, in order, by the memory's rule."""

    def __init__(self, dut, rng, pattern):
        self.bad = set()
        self._commands = StreamSink(dut, "read__command", MEMORY_COMMAND, rng=rng, pattern=pattern)
        self._words = StreamSource(dut, "read__data", READ_WORD, rng=rng, pattern=pattern)
        self.commands = []
        cocotb.start_soon(self._run())

    async def _run(self):
        while True:
            command = await self._commands.get()
            self.commands.append(command)
            address, octets = command["address"], command["octets"]
            count = words_of(address, octets)
            for number in range(count):
                word = (address & ~7) + 8 * number
                self._words.put(
                    {
                        "data": int.from_bytes(host_octets(word, 8), "little"),
                        "last": number == count - 1,
                        "error": word in self.bad,
                    }
                )


class Bench:
    def __init__(self, dut, rng, pattern):
        self.dut = dut
        self.rng = rng
        self.pieces = StreamSource(dut, "piece", PIECE, rng=rng, pattern=pattern)
        self.inline = StreamSource(dut, "inline", 64, rng=rng, pattern=pattern)
        self.reader = Reader(dut, rng, pattern)
        self.sink = StreamSink(dut, "o", PAYLOAD_BEAT, rng=rng, pattern=pattern)
        StreamMonitor(dut, "o", keep=False)
        StreamMonitor(dut, "read__command", keep=False)
        self._expected = deque()

    def put(self, pieces):
        """Send the pieces (address, octets) of one FPDU; with address None an inline piece."""
        content, words = b"", set()
        for number, (address, octets) in enumerate(pieces):
            last = number == len(pieces) - 1
            inline = address is None
            if inline:
                given = self.rng.randbytes(octets)
                padded = given + self.rng.randbytes(-octets % 8)
                for start in range(0, octets, 8):
                    self.inline.put(int.from_bytes(padded[start : start + 8], "little"))
            else:
                given = host_octets(address, octets)
                words |= {word & ~7 for word in range(address & ~7, address + octets, 8)}
            content += given
            self.pieces.put(
                {"address": address or 0, "octets": octets, "last": last, "inline": inline}
            )
        self._expected.append((content, words))

    async def check_all(self):
        while self._expected:
            content, words = self._expected.popleft()
            beats = await self.sink.get_until("last")
            assert all(beat["octets"] == 8 for beat in beats[:-1])
            assert not any(beat["error"] for beat in beats[:-1])
            assert beats[-1]["error"] == bool(words & self.reader.bad)
            got = b"".join(b["data"].to_bytes(8, "little")[: b["octets"]] for b in beats)
            assert got == content
            assert 1 <= beats[-1]["octets"] <= 8


def random_pieces(rng):
    top = rng.choice([3, 20, 200, 1460])
    count = rng.choice([1, 1, 2, 3, 6])
    pieces = [(rng.getrandbits(62), rng.randint(1, top)) for _ in range(count)]
    if rng.random() < 0.3:
        pieces.insert(rng.randint(0, count), (None, rng.randint(1, 60)))
    return pieces


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_random(dut):
    rng = seeded_random()
    bench = Bench(dut, rng, parameter("PATTERN"))
    await start_clock_and_reset(dut)
    for _ in range(80):
        bench.put(random_pieces(rng))
    bench.put([(rng.getrandbits(62), 65535)])
    await bench.check_all()


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_pairs(dut):
    rng = seeded_random()
    bench = Bench(dut, rng, "always")
    await start_clock_and_reset(dut)
    for lane in range(8):
        for octets in range(1, 18):
            for first in range(1, 9):
                bench.put([(0x1000 + rng.randrange(8), first), (0x20000 + lane, octets)])
    await bench.check_all()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_errors(dut):
    rng = seeded_random()
    bench = Bench(dut, rng, "random")
    await start_clock_and_reset(dut)
    bench.reader.bad = {0x8000 + 8 * rng.randrange(1000) for _ in range(40)}
    for _ in range(60):
        bench.put([(0x8000 + rng.randrange(8000), rng.randint(1, 90)) for _ in range(2)])
    await bench.check_all()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_throughput(dut):
    rng = seeded_random()
    bench = Bench(dut, rng, "always")
    await start_clock_and_reset(dut)
    for octets, count, pieces in ((1448, 20, 1), (1448, 10, 3), (16, 60, 1)):
        words = 0
        for _ in range(count):
            fpdu = [(rng.getrandbits(60), octets) for _ in range(pieces)]
            words += sum(words_of(*piece) for piece in fpdu)
            bench.put(fpdu)
        check = cocotb.start_soon(bench.check_all())
        cycles = begin = end = 0
        while not check.done():
            await RisingEdge(dut.clk)
            cycles += 1
            if dut.read__data__valid.value and dut.read__data__ready.value:
                begin = begin or cycles
            if dut.o__valid.value and dut.o__ready.value:
                end = cycles
        print(
            f"gather, {count} FPDUs of {pieces} x {octets} octets: {words} words in "
            f"{end - begin + 1} cycles"
        )
        if octets > 16:
            assert end - begin + 1 <= words + count + 8
