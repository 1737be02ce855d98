"""Octets of frames go to their place in the ring, each once and no other; all frames are taken."""

from itertools import product
from random import Random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.ethernet.layouts import FRAME_WORD, RAW_WORD
from stagecoach.gateware.host_memory import MEMORY_COMMAND, WORD
from stagecoach.gateware.tcp.layouts import receive_job, written_note
from stagecoach.gateware.tcp.receive_ring import ReceiveRing
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb
from tests.support.verdicts import Verdicts, each_check, simulate

SMALLEST, LARGEST = 2, 256
PATTERNS = ("always", "random")
RING, RING_OCTETS = 0x1234_5678_9008, 1 << 17
LONGEST = 1514


class Bench:
    """The block between a store of frames and memory, and what has to be in memory."""

    def __init__(self, dut: Any, rng: Random, pattern: str) -> None:
        self.dut, self.rng = dut, rng
        self.connections = int(parameter("CONNECTIONS", str(LARGEST)))
        bits = (self.connections - 1).bit_length()
        options: dict[str, Any] = {"rng": rng, "pattern": pattern}
        self.jobs = StreamSource(dut, "job", receive_job(bits), **options)
        self.frames = StreamSource(dut, "frames", FRAME_WORD, **options)
        self.sinks = {
            name: StreamSink(dut, name, layout, **options)
            for name, layout in (
                ("write__command", MEMORY_COMMAND),
                ("write__data", WORD),
                ("note", written_note(bits)),
                ("raw", RAW_WORD),
            )
        }
        for name, sink in self.sinks.items():
            StreamMonitor(dut, name, sink._stream.layout, keep=False)
        self.expected: dict[int, int] = {}  # octets of memory
        self.commands: list[tuple[int, int]] = []
        self.notes: list[dict[str, Any]] = []
        self.raw: list[bytes] = []
        self.words = 0  # of frames

    def put(self, **fields: Any) -> None:
        """A job, and its note if it has one."""
        rng = self.rng
        number, edge = rng.getrandbits(32), rng.getrandbits(32)
        note = {"connection": rng.randrange(self.connections), "number": number, "edge": edge}
        note |= {"due": rng.randrange(3), "fin": rng.getrandbits(1), "begin": rng.getrandbits(1)}
        settle = fields.setdefault("settle", rng.getrandbits(1))
        self.jobs.put({"note": note, **fields})
        if settle:
            writes = (fields["octets"] > 0) + (fields.get("wrapped", 0) > 0)
            self.notes.append({"writes": 0 if fields.get("raw") else writes, "note": note})

    def frame(self, octets: int) -> bytes:
        """Send a frame; lanes after it mean nothing."""
        frame = self.rng.randbytes(octets)
        for at in range(0, octets, 8):
            part = frame[at : at + 8]
            word = part + self.rng.randbytes(8 - len(part))
            self.frames.put({"data": int.from_bytes(word, "little"), "last": at + 8 >= octets})
            self.words += 1
        return frame

    def store(self, skip: int, octets: int, place: int, after: int = 0) -> None:
        """A job with a frame, whose octets go to a place in the ring."""
        frame = self.frame(skip + octets + after)
        wrapped = max(place + octets - RING_OCTETS, 0)
        numbers = {"skip": skip, "octets": octets, "wrapped": wrapped}
        self.put(frame=1, address=RING + place, ring=RING, settle=1, **numbers)
        for number in range(octets):
            address = RING + (place + number) % RING_OCTETS
            self.expected[address] = frame[skip + number]
        self.commands.append((RING + place, octets - wrapped))
        if wrapped:
            self.commands.append((RING, wrapped))

    def driver(self, octets: int) -> None:
        """A frame for the driver."""
        self.raw.append(self.frame(octets))
        self.put(frame=1, raw=1, octets=octets, skip=self.rng.randrange(64))

    async def done(self) -> None:
        """All is taken, and what came out is what had to."""
        await self.frames.wait_idle()
        await self.jobs.wait_idle()
        while len(self.sinks["note"]) < len(self.notes):
            await RisingEdge(self.dut.clk)
        # Words of memory that a slow sink has not taken yet.
        await ClockCycles(self.dut.clk, 50)
        assert self.sinks["note"].take_all() == self.notes
        commands = self.sinks["write__command"].take_all()
        assert [(each["address"], each["octets"]) for each in commands] == self.commands
        words = iter(self.sinks["write__data"].take_all())
        found: dict[int, int] = {}
        for address, octets in self.commands:
            first, end = address // 8 * 8, address + octets
            for at in range(first, end, 8):
                word = next(words)
                assert word["last"] == (at + 8 >= end), hex(at)
                for lane, value in enumerate(word["data"].to_bytes(8, "little")):
                    if address <= at + lane < end:
                        found[at + lane] = value
        assert next(words, None) is None
        assert found == self.expected
        for frame in self.raw:
            beats = [await self.sinks["raw"].get() for _ in range(-(-len(frame) // 8))]
            assert [each["last"] for each in beats] == [0] * (len(beats) - 1) + [1]
            assert [each["octets"] for each in beats] == list(range(len(frame), 0, -8))
            data = b"".join(each["data"].to_bytes(8, "little") for each in beats)
            assert data[: len(frame)] == frame
        assert not len(self.sinks["raw"])
        for mine in (self.notes, self.commands, self.raw, self.expected):
            mine.clear()


async def begin(dut: Any) -> Bench:
    pattern = parameter("PATTERN")
    bench = Bench(dut, seeded_random(pattern), pattern)
    await start_clock_and_reset(dut)
    return bench


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_every_pair_of_lanes(dut: Any) -> None:
    """With so few octets that all kinds of first and last words occur."""
    bench = await begin(dut)
    place = 0
    for skip, lane, octets in product(range(48, 56), range(8), (1, 4, 8, 9, 15, 17)):
        bench.store(skip, octets, place + lane, after=(skip + octets + lane) % 3 * 4)
        place += 40
    await bench.done()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_jobs_of_all_kinds(dut: Any) -> None:
    bench = await begin(dut)
    rng = bench.rng
    place = RING_OCTETS - 2000
    for _ in range(150):
        kind = rng.randrange(6)
        octets = rng.choice([1, 7, 8, rng.randrange(1, 100), rng.randrange(1, 100)])
        if kind == 0:
            bench.frame(rng.choice([14, 60, rng.randrange(14, 200)]))
            bench.put(frame=1, octets=0, skip=rng.randrange(100))
        elif kind == 1:
            bench.driver(rng.choice([14, 60, rng.randrange(14, 200)]))
        elif kind == 2:
            bench.put(frame=0, octets=0, settle=1)
        else:
            bench.store(rng.choice([0, 3, 54, 66]), octets, place, rng.choice([0, 0, 6, 20]))
            # Beside each other, so that an octet too many is seen.
            place = (place + octets) % RING_OCTETS
    await bench.done()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_the_end_of_the_ring(dut: Any) -> None:
    """Octets up to it, past it by one, and by a word, from all lanes."""
    bench = await begin(dut)
    for skip, octets, inside in product((53, 54, 58), (9, 30), (1, 2, 8, 9, 30)):
        if inside <= octets:
            bench.store(skip, octets, RING_OCTETS - inside, after=4)
            await bench.done()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_rate(dut: Any) -> None:
    """A word in each cycle, none between frames, though jobs without a frame are between them."""
    bench = await begin(dut)
    for source in (bench.jobs, bench.frames):
        source.set_pattern("always")
    for sink in bench.sinks.values():
        sink.set_pattern("always")
    # Octets of a frame, and lanes: of its first octet, and of that in memory. A cycle more if they
    # fill a word more in memory, or if no word is before them.
    for frames, skip, octets, lane, more in (
        (6, 54, LONGEST - 54, 0, 0),
        (6, 54, LONGEST - 54, 5, 1),
        (40, 54, 6, 0, 0),
        (40, 54, 6, 6, 0),
        (40, 54, 6, 3, 1),
        (40, 54, 0, 0, 0),
        (20, 0, 64, 0, 1),
        (20, 0, 64, 4, 2),
    ):
        words = bench.words
        for number in range(frames):
            if octets:
                bench.store(skip, octets, -(-octets // 8) * 8 * number + lane)
            else:
                bench.frame(60)
                bench.put(frame=1, octets=0, settle=0)
            bench.put(frame=0, octets=0, settle=1)
            if octets > 1000:
                bench.put(frame=0, octets=0, settle=1)
        cycles = 0
        while bench.frames.pending:
            await RisingEdge(dut.clk)
            cycles += 1
        assert cycles <= bench.words - words + more * frames + 3, (skip, octets, lane)
        await bench.done()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_what_is_not_taken_waits(dut: Any) -> None:
    """Memory, the list of notes, or the driver's queue: the frame waits, and comes whole then."""
    bench = await begin(dut)
    for name, sink in bench.sinks.items():
        sink.paused = True
        bench.driver(70)
        for number in range(3):
            bench.store(54, 100, 200 * number + 3)
        bench.driver(70)
        await ClockCycles(dut.clk, 200)
        assert bench.frames.pending, name
        sink.paused = False
        await bench.done()


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    block = ReceiveRing(LARGEST)
    return simulate(tmp_path_factory, block, __name__, request.param, PATTERNS)


@each_check(globals())
def test_receive_ring(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)


def test_receive_ring_of_the_smallest_size() -> None:
    run_cocotb(
        ReceiveRing(SMALLEST),
        __name__,
        test_filter="check_jobs",
        parameters={"PATTERN": "random", "CONNECTIONS": str(SMALLEST)},
    )


@pytest.mark.parametrize("connections", [1, 257])
def test_sizes_that_are_not_allowed(connections: int) -> None:
    with pytest.raises(ValueError, match="2 to 256"):
        ReceiveRing(connections)
