"""FPDUs stand in the ring at their numbers, and are stored when memory has answered for them."""

from random import Random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.ethernet.layouts import FRAME_WORD
from stagecoach.gateware.host_memory import MEMORY_COMMAND, WORD
from stagecoach.gateware.tcp.layouts import transmit_job
from stagecoach.gateware.tcp.transmit_ring import TransmitRing
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb
from tests.support.verdicts import Verdicts, each_check, simulate

SPACE = 1 << 32
SMALLEST, LARGEST = 2, 256
PATTERNS = ("always", "random")
LONGEST = 1460
COMMAND_AFTER, STORED_AFTER = 3, 3
SIZES = {0: 1 << 17, 13: 1 << 30}


class Memory:
    """Takes writes, keeps their octets, and answers late, or when it is told to."""

    def __init__(self, dut: Any, rng: Random, pattern: str) -> None:
        self.dut = dut
        self.octets: dict[int, int] = {}
        self.writes: list[tuple[int, int]] = []
        self.answered = 0  # of the writes
        self.bad: set[int] = set()  # numbers of writes that fail
        self.answers = True
        self.commands = StreamSink(dut, "write__command", MEMORY_COMMAND, rng=rng, pattern=pattern)
        self.words = StreamSink(dut, "write__data", WORD, rng=rng, pattern=pattern)
        for name in ("write__command", "write__data"):
            StreamMonitor(dut, name, keep=False)
        dut.write__done.value = dut.write__error.value = 0
        cocotb.start_soon(self._store())
        cocotb.start_soon(self._answer(rng))

    async def _store(self) -> None:
        while True:
            command = await self.commands.get()
            address, octets = command["address"], command["octets"]
            for at in range(address // 8 * 8, address + octets, 8):
                word = await self.words.get()
                assert word["last"] == (at + 8 >= address + octets)
                for lane, value in enumerate(word["data"].to_bytes(8, "little")):
                    if address <= at + lane < address + octets:
                        self.octets[at + lane] = value
            self.writes.append((address, octets))

    async def _answer(self, rng: Random) -> None:
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            answers = self.answers and self.answered < len(self.writes) and rng.random() < 0.3
            dut.write__done.value = answers
            dut.write__error.value = answers and self.answered in self.bad
            self.answered += answers


class Bench:
    """Connections, their rings, and what has to be stored."""

    def __init__(self, dut: Any, rng: Random, pattern: str) -> None:
        self.dut, self.rng = dut, rng
        self.last = int(parameter("CONNECTIONS", str(LARGEST))) - 1
        layout = transmit_job(self.last.bit_length())
        self.jobs = StreamSource(dut, "job", layout, rng=rng, pattern=pattern)
        self.words = StreamSource(dut, "words", FRAME_WORD, rng=rng, pattern=pattern)
        self.failed = StreamSink(dut, "failed", rng=rng, pattern=pattern)
        StreamMonitor(dut, "failed", keep=False)
        self.memory = Memory(dut, rng, pattern)
        dut.connection_read.value = 0
        self.rings: dict[int, tuple[int, int]] = {}  # address and size
        self.ends: dict[int, int] = {}  # numbers after what was queued
        self.expected: dict[int, int] = {}  # octets of memory
        self.writes: list[tuple[int, int]] = []

    def put(self, connection: int, **fields: int) -> None:
        ring, size = self.rings[connection]
        numbers = {"number": self.ends[connection], "ring": ring, "size": size}
        self.jobs.put({"connection": connection, **numbers, **fields})

    def begin(self, connection: int, number: int, size: int = 0) -> None:
        """A connection; rings of different ones do not overlap."""
        self.rings[connection] = 0x8000_0000 * (connection + 1) + 8 * self.rng.randrange(8), size
        self.ends[connection] = number
        self.put(connection, begin=1)

    def send(self, connection: int, octets: int) -> None:
        """An FPDU; lanes after it mean nothing."""
        fpdu = self._fpdu(octets)
        self.put(connection, fpdu=1, octets=octets)
        ring, size = self.rings[connection]
        place = self.ends[connection] % SIZES[size]
        for at, value in enumerate(fpdu):
            self.expected[ring + (place + at) % SIZES[size]] = value
        wrapped = max(place + octets - SIZES[size], 0)
        self.writes.append((ring + place, octets - wrapped))
        if wrapped:
            self.writes.append((ring, wrapped))
        self.ends[connection] = (self.ends[connection] + octets) % SPACE

    def _fpdu(self, octets: int) -> bytes:
        fpdu = self.rng.randbytes(octets)
        for at in range(0, octets, 8):
            word = fpdu[at : at + 8] + self.rng.randbytes(8)
            data = int.from_bytes(word[:8], "little")
            self.words.put({"data": data, "last": at + 8 >= octets})
        return fpdu

    def forget(self, connection: int, octets: int) -> None:
        """An FPDU that is not written: the connection has ended."""
        self._fpdu(octets)
        self.put(connection, fpdu=1)

    def told(self, connection: int, octets: int) -> None:
        """Octets that the driver wrote."""
        self.put(connection, octets=octets)
        self.ends[connection] = (self.ends[connection] + octets) % SPACE

    async def stored(self, connection: int) -> int:
        assert await self.known(connection)
        return int(self.dut.stored.value)

    async def known(self, connection: int) -> bool:
        self.dut.connection_read.value = connection
        await ClockCycles(self.dut.clk, 2)
        return bool(self.dut.known.value)

    async def done(self) -> None:
        """All is in memory, and stored."""
        await self.jobs.wait_idle()
        await self.words.wait_idle()
        while self.memory.answered < len(self.writes):
            await RisingEdge(self.dut.clk)
        # Notes without an answer, at most so many.
        await ClockCycles(self.dut.clk, 100)
        assert self.memory.writes == self.writes
        assert self.memory.octets == self.expected
        for connection, end in self.ends.items():
            assert await self.stored(connection) == end


async def begin(dut: Any) -> Bench:
    pattern = parameter("PATTERN")
    bench = Bench(dut, seeded_random(pattern, parameter("CONNECTIONS", "")), pattern)
    await start_clock_and_reset(dut)
    return bench


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_jobs_of_all_kinds(dut: Any) -> None:
    """From all lanes, over the end of the ring and of all numbers, in the smallest and largest."""
    bench = await begin(dut)
    rng = bench.rng
    for round in range(3):
        bench.begin(0, SPACE - rng.randrange(1, 400), 13 * (round % 2))
        bench.begin(1, SIZES[0] - rng.randrange(400) + (rng.getrandbits(15) << 17))
        bench.begin(bench.last, rng.getrandbits(32))
        for _ in range(40):
            connection = rng.choice([0, 1, bench.last])
            octets = rng.choice([4, 8, 24, rng.randrange(1, 150), rng.randrange(1, 150)])
            kind = rng.choice([bench.send] * 6 + [bench.forget, bench.told])
            kind(connection, octets)
        await bench.done()
        assert not len(bench.failed)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_the_end_of_the_ring(dut: Any) -> None:
    """From it on, up to it, past it by an octet, and by a word."""
    bench = await begin(dut)
    for inside in (0, 1, 4, 8, 29, 30):
        bench.begin(0, (SPACE - inside) % SPACE)
        bench.send(0, 30)
    await bench.done()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_nothing_is_stored_before_its_answer(dut: Any) -> None:
    """Jobs of other connections are answered before; a number waits for both commands."""
    bench = await begin(dut)
    bench.begin(0, SPACE - 20)
    bench.begin(1, 7)
    await bench.done()
    bench.memory.answers = False
    bench.send(1, 64)
    bench.send(0, 40)
    bench.told(0, 5)
    await ClockCycles(dut.clk, 300)
    for connection, number in ((0, SPACE - 20), (1, 7)):
        assert await bench.stored(connection) == number
    for answers in range(1, 4):
        bench.memory.answers = True
        while bench.memory.answered < answers:
            await RisingEdge(dut.clk)
        bench.memory.answers = False
        await ClockCycles(dut.clk, 20)
        assert bench.memory.answered == answers
        assert await bench.stored(1) == 71
        assert await bench.stored(0) == (25 if answers == 3 else SPACE - 20)
    bench.memory.answers = True
    await bench.done()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_number_of_an_earlier_connection_is_not_known(dut: Any) -> None:
    """Until the beginning is settled, after what was told before of others, several at once."""
    bench = await begin(dut)
    some = [1, bench.last] if bench.last > 1 else [1]
    for round in range(3):
        for connection in (0, *some):
            bench.begin(connection, 5000 + round)
        await bench.done()
        bench.memory.answers = False
        bench.send(0, 40)
        for connection in some:
            bench.begin(connection, 9)
        await bench.jobs.wait_idle()
        for _ in range(20):
            for connection in some:
                assert not await bench.known(connection)
            assert await bench.known(0)
        bench.memory.answers = True
        await bench.done()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_an_error_ends_one_connection(dut: Any) -> None:
    bench = await begin(dut)
    bench.begin(0, 100)
    bench.begin(1, 200)
    bench.failed.paused = True
    bench.memory.bad.add(0)
    for _ in range(3):
        bench.send(1, 64)
    bench.send(0, 64)
    await ClockCycles(dut.clk, 400)
    # What was not told yet holds up the numbers after it.
    assert await bench.stored(0) == 100
    bench.failed.paused = False
    assert await bench.failed.get() == 1
    await ClockCycles(dut.clk, 100)
    assert await bench.stored(1) == 200
    assert await bench.stored(0) == 164
    bench.begin(1, 5000)
    bench.send(1, 12)
    await bench.done()
    assert not len(bench.failed)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_rate_and_latency(dut: Any) -> None:
    bench = await begin(dut)
    for end in (bench.jobs, bench.words, bench.memory.commands, bench.memory.words):
        end.set_pattern("always")
    bench.begin(0, 3)
    await bench.done()
    bench.memory.answers = False
    bench.send(0, 64)
    while not dut.job__valid.value:
        await RisingEdge(dut.clk)
    cycles = 0
    while not dut.write__command__valid.value:
        await RisingEdge(dut.clk)
        cycles += 1
    assert cycles == COMMAND_AFTER
    await bench.words.wait_idle()
    await ClockCycles(dut.clk, 20)
    bench.memory.answers = True
    while not dut.write__done.value:
        await RisingEdge(dut.clk)
    cycles = 0
    while int(dut.stored.value) != 67:
        await RisingEdge(dut.clk)
        cycles += 1
    assert cycles <= STORED_AFTER + 1
    for octets, count in ((LONGEST, 4), (64, 20)):
        for _ in range(count):
            bench.send(0, octets)
        words, cycles = bench.words.pending, 0
        while bench.words.pending:
            await RisingEdge(dut.clk)
            cycles += 1
        assert cycles <= words + 2 * count + 5
        await bench.done()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_what_is_not_taken_waits(dut: Any) -> None:
    """Memory takes no command, or no word: the words wait where they are."""
    bench = await begin(dut)
    bench.begin(1, 77)
    for sink in (bench.memory.commands, bench.memory.words):
        sink.paused = True
        for _ in range(4):
            bench.send(1, 100)
        await ClockCycles(dut.clk, 200)
        assert bench.words.pending
        sink.paused = False
        await bench.done()


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    block = TransmitRing(LARGEST)
    return simulate(tmp_path_factory, block, __name__, request.param, PATTERNS)


@each_check(globals())
def test_transmit_ring(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)


def test_transmit_ring_of_the_smallest_size() -> None:
    run_cocotb(
        TransmitRing(SMALLEST),
        __name__,
        test_filter="check_jobs",
        parameters={"PATTERN": "random", "CONNECTIONS": str(SMALLEST)},
    )


@pytest.mark.parametrize("connections", [1, 257])
def test_sizes_that_are_not_allowed(connections: int) -> None:
    with pytest.raises(ValueError, match="2 to 256"):
        TransmitRing(connections)
