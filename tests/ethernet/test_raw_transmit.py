"""The driver's frames leave whole and in order, or not at all; each descriptor is done once."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.ethernet.layouts import FRAME_BEAT, HOST_RING
from stagecoach.gateware.ethernet.raw_transmit import RawTransmit
from stagecoach.hw.interface.network_entries import FRAME_DESCRIPTOR, FRAME_DESCRIPTOR_OCTETS
from stagecoach.sim.cosim.signals import cycles, every_cycle
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    pack,
    seeded_random,
    start_clock_and_reset,
)
from tests.ethernet.host_memory import ReadMemory
from tests.support.runner import parameter, run_cocotb
from tests.support.verdicts import Verdicts, each_check, simulate

PATTERNS = ("always", "random")
MTU, SHORTEST, LONGEST = 1500, 576, 16369
RING, FRAMES = 0x12_3450_0000_0000, 0x7_8000_0000
FRAME_PLACE = 32768
LOW = 0x1230  # octets of the base that count for nothing in rings of 2^9 places and more
SIZES = (0, 1, 3, 15)
"""log2 of the places of the ring."""


class Bench:
    """The block, the memory, the reader, and what has to leave."""

    def __init__(self, dut: Any) -> None:
        pattern = parameter("PATTERN")
        self.dut = dut
        self.most = int(parameter("MTU", str(MTU))) + 14
        self.rng = rng = seeded_random(pattern)
        self.memory = ReadMemory(dut, rng, pattern)
        self.reader = StreamSink(dut, "frame", FRAME_BEAT, rng=rng, pattern=pattern)
        StreamMonitor(dut, "frame", FRAME_BEAT, keep=False)
        self.expected: list[bytes] = []
        self.refused = self.failed = self.seen_refused = self.seen_failed = 0
        self.producer = self.log2 = 0
        dut.enable.value = 0
        every_cycle(dut, self.watch)

    def watch(self, in_reset: bool) -> None:
        if not in_reset:
            self.seen_refused += int(self.dut.refused.value)
            self.seen_failed += int(self.dut.failed.value)

    async def start(self, log2: int, number: int) -> None:
        """Use a ring of this size, from this number on."""
        dut = self.dut
        dut.enable.value = 0
        await cycles(dut, 2)
        while not dut.idle.value:
            await RisingEdge(dut.clk)
        self.log2, self.producer = log2, number % 2**16
        dut.queue.value = pack(HOST_RING, base=RING + (LOW if log2 >= 9 else 0), log2=log2)
        dut.producer.value = self.producer
        await cycles(dut, 3)
        assert dut.consumer.value == self.producer
        dut.enable.value = 1

    def post(self, octets: int, *, bad: int | None = None, lane: int = 0) -> None:
        """Write a descriptor and its frame; `bad`: a word of both that cannot be read.

        lane: octets by which the address misses a multiple of 8.
        """
        place = self.producer % (1 << self.log2)
        at = RING + place * FRAME_DESCRIPTOR_OCTETS
        address = FRAMES + place * FRAME_PLACE + 8 * self.rng.randrange(8)
        fields = {"address": address + lane, "octets": octets}
        entry = b"".join(
            fields.get(name, self.rng.getrandbits(8 * size)).to_bytes(size, "little")
            for name, size, _ in FRAME_DESCRIPTOR
        )
        frame = self.rng.randbytes(min(octets, self.most))
        self.memory.write(at, entry)
        self.memory.write(address, frame)
        spots = [at, at + 8, *range(address, address + len(frame), 8)]
        self.memory.bad.difference_update(spots)
        if bad is not None:
            self.memory.bad.add(spots[bad])
        allowed = 14 <= octets <= self.most and not lane
        if bad is not None and (bad in (0, 1) or allowed):
            self.failed += 1
        elif not allowed:
            self.refused += 1
        else:
            self.expected.append(frame)
        self.producer = (self.producer + 1) % 2**16
        self.dut.producer.value = self.producer

    async def room(self) -> None:
        """Wait for a place that is done; what was in it is then any other octets."""
        while (self.producer - int(self.dut.consumer.value)) % 2**16 >= 1 << self.log2:
            await RisingEdge(self.dut.clk)

    async def finish(self) -> None:
        """All is done, and what left is what had to."""
        dut = self.dut
        while dut.consumer.value != self.producer:
            await RisingEdge(dut.clk)
        await cycles(dut, 2)
        for frame in self.expected:
            beats = [self.reader._items.popleft() for _ in range(-(-len(frame) // 8))]
            assert [beat["last"] for beat in beats] == [0] * (len(beats) - 1) + [1]
            parts = [beat["data"].to_bytes(8, "little")[: beat["octets"]] for beat in beats]
            assert b"".join(parts) == frame
        assert not len(self.reader)
        assert (self.seen_refused, self.seen_failed) == (self.refused, self.failed)
        self.expected.clear()
        await cycles(dut, 20)
        assert dut.idle.value and not dut.frame__valid.value


async def begin(dut: Any, log2: int = 3, number: int = 0) -> Bench:
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    await bench.start(log2, number)
    return bench


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_frames(dut: Any) -> None:
    """In rings of all sizes, whose numbers pass 2^16, among some that cannot be sent."""
    bench = await begin(dut)
    rng = bench.rng
    most = bench.most
    for log2 in SIZES:
        await bench.start(log2, 2**16 - 15)
        for octets in (14, most, 15, most - 1, *(rng.randrange(14, 150) for _ in range(26))):
            await bench.room()
            kind = rng.randrange(8)
            words = -(-octets // 8)
            if kind == 0:
                bench.post(rng.choice([0, 1, 13, most + 1, most + 8, 16383, 16384, 65535]))
            elif kind == 1:
                bench.post(octets, bad=rng.choice([0, 1, 2, 2 + words - 1, 2 + words // 2]))
            else:
                bench.post(octets)
        await bench.finish()
    assert bench.refused > 5 and bench.failed > 5


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_frames_at_the_limits(dut: Any) -> None:
    """A length too large or too small is refused by itself, and so is an address between words."""
    bench = await begin(dut, 4, 2**16 - 1)
    for octets in (13, 14, bench.most, bench.most + 1):
        bench.post(octets)
    await bench.finish()
    assert bench.refused == 2
    ring = [address for address, octets in bench.memory.commands if address >= RING]
    assert ring == [RING + place * FRAME_DESCRIPTOR_OCTETS for place in (15, 0, 1, 2)]
    assert len(bench.memory.commands) == 4 + 2, "a refused frame is read"
    bench.memory.commands.clear()
    for lane in range(1, 8):
        bench.post(60, lane=lane)
    await bench.finish()
    assert bench.refused == 2 + 7
    assert len(bench.memory.commands) == 7, "a frame between words is read"
    bench.memory.commands.clear()
    for bad in (0, 1):
        bench.post(60, bad=bad)
    await bench.finish()
    assert len(bench.memory.commands) == 2, "what cannot be read is taken for an address"


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_full_ring_and_a_reader_that_waits(dut: Any) -> None:
    bench = await begin(dut, 2, 2**16 - 2)
    bench.reader.paused = True
    for _ in range(4):
        bench.post(100)
    await cycles(dut, 600)
    assert dut.consumer.value == 2**16 - 2, "done before it has left"
    assert dut.frame__valid.value
    bench.reader.paused = False
    await bench.finish()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_memory_that_never_answers(dut: Any) -> None:
    """Nothing leaves, nothing is done, and nothing else is asked for."""
    bench = await begin(dut)
    bench.memory.latencies = (900,)
    bench.post(100)
    bench.post(100)
    await cycles(dut, 850)
    assert len(bench.memory.commands) == 1
    assert dut.consumer.value == 0 and not dut.frame__valid.value
    bench.memory.latencies = (0,)
    await bench.finish()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_disabled(dut: Any) -> None:
    """What was begun is done, and nothing else."""
    bench = await begin(dut)
    bench.memory.latencies = (50,)
    bench.post(64)
    await cycles(dut, 20)
    dut.enable.value = 0
    for _ in range(2):
        bench.post(64)
        bench.expected.pop()
    await cycles(dut, 400)
    await bench.finish()
    assert len(bench.memory.commands) == 2
    await bench.start(1, 77)
    bench.post(64)
    await bench.finish()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_cycles(dut: Any) -> None:
    """From the doorbell to the last word, which leave one in each cycle."""
    bench = await begin(dut)
    for side in (bench.memory.asked, bench.memory.words, bench.reader):
        side.set_pattern("always")
    bench.memory.latencies = (0,)
    await cycles(dut, 5)
    names = ("read__command__valid", "read__data__valid", "frame__valid")
    seen: dict[str, list[int]] = {name: [] for name in (*names, "done", "waits")}
    now = 0
    consumer = int(dut.consumer.value)

    def look(in_reset: bool) -> None:
        nonlocal now, consumer
        now += 1
        for name in names:
            if getattr(dut, name).value:
                seen[name].append(now)
        if dut.producer.value != dut.consumer.value:
            seen["waits"].append(now)
        if dut.consumer.value != consumer:
            consumer = int(dut.consumer.value)
            seen["done"].append(now)

    every_cycle(dut, look)
    octets, words = 100, 13
    bench.post(octets)
    bench.post(octets)
    await bench.finish()
    commands, data, frame, done, waits = seen.values()
    assert commands[0] == waits[0] + 1
    assert commands[1] == data[1] + 2
    assert frame[0] == data[2 + words - 1] + 3
    assert frame[:words] == list(range(frame[0], frame[0] + words)), "a gap"
    assert done[0] == frame[words - 1] + 2
    assert commands[2] == done[0] + 1
    # Without what memory takes: 9, and its words twice.
    latency = (data[0] - commands[0] - 1) + (data[2] - commands[1] - 1)
    assert commands[2] - commands[0] - latency == 9 + 2 * words


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    return simulate(tmp_path_factory, RawTransmit(MTU), __name__, request.param, PATTERNS)


@each_check(globals())
def test_raw_transmit(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)


@pytest.mark.parametrize("mtu", [SHORTEST, LONGEST])
def test_other_sizes_of_frames(mtu: int) -> None:
    run_cocotb(
        RawTransmit(mtu),
        __name__,
        test_filter="check_frames$|check_frames_at",
        parameters={"PATTERN": "random", "MTU": str(mtu)},
    )


@pytest.mark.parametrize("mtu", [575, 16370])
def test_sizes_that_are_not_allowed(mtu: int) -> None:
    with pytest.raises(ValueError, match="576 to 16369"):
        RawTransmit(mtu)
