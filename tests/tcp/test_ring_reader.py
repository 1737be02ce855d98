"""Jobs of the ring leave in order, with the octets that are stored there and the sum of those."""

from collections import deque
from random import Random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ethernet.layouts import FRAME_WORD
from stagecoach.gateware.tcp.layouts import SendKind, send_job
from stagecoach.gateware.tcp.ring_reader import JOBS, RING, SEGMENTS, RingReader
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    pack,
    seeded_random,
    start_clock_and_reset,
)
from stagecoach.sim.model.tcp.checksum import ones_complement_sum
from tests.support.runner import parameter, run_cocotb
from tests.support.verdicts import Verdicts, each_check, simulate
from tests.tcp.read_memory import Memory, octet_at

SPACE = 1 << 32
SMALLEST, LARGEST = (2, 576), (256, 9000)
PATTERNS = ("always", "random")
SIZES = {0: 1 << 17, 13: 1 << 30}
RING_COST, WRAPPED_COST = 5, 6
PASSES_AFTER, COMMAND_AFTER, LEAVES_AFTER = 2, 5, 7


class Bench:
    """Rings in memory, jobs, and what has to leave."""

    def __init__(self, dut: Any, rng: Random, pattern: str) -> None:
        self.dut, self.rng = dut, rng
        self.connections, mtu = (int(part) for part in parameter("SIZES", "256 9000").split())
        self.longest = mtu - 40
        config = RnicConfig(qps=self.connections)
        layout = send_job(config.qp_bits)
        options: dict[str, Any] = {"rng": rng, "pattern": pattern}
        self.jobs = StreamSource(dut, "job", layout, **options)
        self.passed = StreamSink(dut, "o", layout, **options)
        self.words = StreamSink(dut, "words", FRAME_WORD, **options)
        self.failed = StreamSink(dut, "failed", **options)
        self.memory = Memory(dut, rng, pattern)
        for name in ("o", "words", "failed", "read__command"):
            StreamMonitor(dut, name, keep=False)
        self.rings: dict[int, tuple[int, int]] = {}  # address and size
        self.stored: dict[int, int] = {}
        self.lost: set[int] = set()
        self.known = True
        self.expected: deque[dict[str, int]] = deque()
        self.payloads: deque[bytes] = deque()
        self.failures: deque[int] = deque()
        self.commands: list[tuple[int, int]] = []
        dut.write.value = 0
        cocotb.start_soon(self._stored())

    async def _stored(self) -> None:
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            asked = int(dut.connection_read.value)
            dut.stored.value = self.stored.get(asked, self.rng.getrandbits(32))
            dut.lost.value = asked in self.lost
            dut.known.value = self.known

    async def give(self, connection: int, size: int = 0) -> None:
        """A ring; those of different connections do not overlap."""
        address = 0x8000_0000 * (connection + 1) + 8 * self.rng.randrange(8)
        self.rings[connection] = address, size
        dut = self.dut
        dut.write.value, dut.connection.value = 1, connection
        dut.ring.value = pack(RING, address=address, size=size)
        await RisingEdge(dut.clk)
        dut.write.value = 0
        dut.ring.value = self.rng.getrandbits(RING.size)
        self.stored[connection] = 0

    def job(self, connection: int, kind: SendKind, sequence: int, octets: int) -> dict[str, int]:
        """Put it in, and return it."""
        rng = self.rng
        fields = {"connection": connection, "kind": kind.value, "sequence": sequence}
        fields |= {"octets": octets, "sum": rng.getrandbits(16), "flags": rng.getrandbits(8)}
        fields |= {name: rng.getrandbits(1) for name in ("blocks", "needed", "again")}
        self.jobs.put(fields)
        return fields

    def pass_on(self, kind: SendKind) -> None:
        """One that reads nothing."""
        rng = self.rng
        connection = rng.choice(list(self.rings))
        self.expected.append(self.job(connection, kind, rng.getrandbits(32), rng.getrandbits(14)))

    def read(self, connection: int, sequence: int, octets: int, *, stored: bool = True) -> None:
        """A segment of the ring; it is stored, and others after it, or not yet."""
        address, size = self.rings[connection]
        octets_of_ring = SIZES[size]
        at = sequence % octets_of_ring
        payload = bytes(octet_at(address + (at + each) % octets_of_ring) for each in range(octets))
        fields = self.job(connection, SendKind.RING, sequence, octets)
        wrapped = max(at + octets - octets_of_ring, 0)
        commands = [(address + at, octets - wrapped)]
        if wrapped:
            commands.append((address, wrapped))
        self.commands += commands
        if stored:
            more = self.rng.choice([0, 0, 1, self.rng.randrange(1 << 30)])
            self.stored[connection] = (sequence + octets + more) % SPACE
        words = range(address + at & ~7, address + at + octets - wrapped, 8)
        more_words = range(address, address + wrapped, 8)
        if self.memory.bad.intersection([*words, *more_words]):
            self.failures.append(connection)
            return
        self.expected.append(fields | {"sum": ones_complement_sum(payload)})
        self.payloads.append(payload)

    async def done(self) -> None:
        """All that should have left."""
        await self.jobs.wait_idle()
        while self.expected:
            assert await self.passed.get() == self.expected.popleft()
        while self.payloads:
            payload = self.payloads.popleft()
            words = await self.words.get_until()
            found = b"".join(word["data"].to_bytes(8, "little") for word in words)
            assert len(found) == -(-len(payload) // 8) * 8
            assert found.startswith(payload)
        while self.failures:
            assert await self.failed.get() == self.failures.popleft()
        await ClockCycles(self.dut.clk, 50)
        assert not len(self.passed) + len(self.words) + len(self.failed)
        assert self.memory.commands == self.commands

    async def segment(self, connection: int, octets: int) -> None:
        """As soon as the one before is read: `stored` is of one number alone."""
        await self.jobs.wait_idle()
        ring = SIZES[self.rings[connection][1]]
        last = self.rng.randrange(-octets - 20, 20) % ring  # near the end of the ring
        high = self.rng.choice([0, SPACE - ring, self.rng.getrandbits(32) // ring * ring])
        self.read(connection, (high + last) % SPACE, octets)


async def begin(dut: Any) -> Bench:
    pattern = parameter("PATTERN")
    bench = Bench(dut, seeded_random(pattern, parameter("SIZES", "")), pattern)
    await start_clock_and_reset(dut)
    await bench.give(0)
    await bench.give(bench.connections - 1, 13)
    return bench


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_jobs_of_all_kinds(dut: Any) -> None:
    """From all lanes, of all lengths, over the end of the ring and of numbers; others between."""
    bench = await begin(dut)
    rng = bench.rng
    sizes = [*range(1, 20), 64, bench.longest - 1, bench.longest]
    sizes += [rng.randrange(1, min(bench.longest, 1500)) for _ in range(40)]
    for octets in rng.sample(sizes, len(sizes)):
        for _ in range(rng.choice([0, 0, 1, 10])):
            bench.pass_on(rng.choice([SendKind.NOTHING, SendKind.STORE]))
        await bench.segment(rng.choice(list(bench.rings)), octets)
    await bench.done()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_the_end_of_the_ring(dut: Any) -> None:
    """From it on, up to it, past it by an octet, and by a word."""
    bench = await begin(dut)
    for inside in (0, 1, 4, 8, 29, 30, 31):
        for high in (0, SPACE - SIZES[0]):
            await bench.jobs.wait_idle()
            bench.read(0, (high + SIZES[0] - inside) % SPACE, 30)
    await bench.done()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_nothing_is_read_before_it_is_stored(dut: Any) -> None:
    """Not an octet less; others wait for it, and all is in order then."""
    bench = await begin(dut)
    for end in (1000, 0, 5):
        bench.stored[0] = (end - 101) % SPACE
        before = len(bench.memory.commands)
        bench.read(0, (end - 100) % SPACE, 100, stored=False)
        bench.pass_on(SendKind.NOTHING)
        for stored in (end - 101, end - 100, end - 1):
            bench.stored[0] = stored % SPACE
            await ClockCycles(dut.clk, 40)
            assert len(bench.memory.commands) == before
            assert not len(bench.passed)
        bench.stored[0] = end
        await bench.done()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_what_is_never_stored_is_dropped(dut: Any) -> None:
    """It holds up nobody, and leaves no trace."""
    bench = await begin(dut)
    last = bench.connections - 1
    bench.stored[0] = 50
    bench.job(0, SendKind.RING, 40, 100)
    bench.pass_on(SendKind.STORE)
    await ClockCycles(dut.clk, 50)
    assert not len(bench.passed)
    bench.lost.add(0)
    bench.job(0, SendKind.RING, 140, 100)
    await ClockCycles(dut.clk, 10)
    bench.read(last, 77, 200)
    await bench.done()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_what_is_not_known_does_not_count(dut: Any) -> None:
    """Neither that it is stored, nor that it never will be."""
    bench = await begin(dut)
    for lost in (False, True):
        bench.known = False
        bench.lost = {0} if lost else set()
        await ClockCycles(dut.clk, 2)
        before = len(bench.memory.commands)
        bench.read(0, 40, 100)
        await ClockCycles(dut.clk, 50)
        assert bench.jobs.pending
        assert len(bench.memory.commands) == before
        bench.lost.clear()
        bench.known = True
        await bench.done()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_what_cannot_be_read_is_dropped(dut: Any) -> None:
    """An error in any word, of the first or the second command; those before and after leave."""
    bench = await begin(dut)
    address = bench.rings[0][0]
    ring = SIZES[0]
    for bad in (0, ring - 8, ring - 64, 56):
        bench.memory.bad = {address + bad}
        for sequence in (4096, ring - 64, 5000):
            await bench.jobs.wait_idle()
            bench.pass_on(SendKind.STORE)
            bench.read(0, sequence, 128)
            bench.pass_on(SendKind.NOTHING)
        await bench.done()
        assert not bench.failures


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def check_what_is_not_taken_waits(dut: Any) -> None:
    """Jobs, words, or a failure: those that have room are read, and all leave then."""
    bench = await begin(dut)
    words = -(-bench.longest // 8)
    room = 1 << (SEGMENTS * words - 1).bit_length()
    for sink in (bench.words, bench.passed):
        sink.paused = True
        for number in range(JOBS + 4):
            bench.read(0, 8 * number, bench.longest, stored=False)
        bench.stored[0] = 1 << 20
        sent = bench.memory.words.sent
        await ClockCycles(dut.clk, 4 * room + 400)
        taken = bench.memory.words.sent - sent
        if sink is bench.words:
            assert SEGMENTS * words <= room <= taken <= room + 24
        sink.paused = False
        await bench.done()
    bench.memory.bad = {bench.rings[0][0]}
    bench.failed.paused = True
    bench.read(0, 0, 8)
    bench.pass_on(SendKind.NOTHING)
    await ClockCycles(dut.clk, 100)
    assert not len(bench.passed)
    bench.failed.paused = False
    await bench.done()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_memory_that_does_not_answer(dut: Any) -> None:
    """Commands go out as long as jobs have room; nothing leaves out of order."""
    bench = await begin(dut)
    bench.memory.latency = 500
    for number in range(JOBS + 4):
        bench.read(0, 100 * number, 100, stored=False)
    bench.stored[0] = 1 << 20
    bench.pass_on(SendKind.NOTHING)
    await ClockCycles(dut.clk, 300)
    assert not len(bench.passed) + len(bench.words)
    assert bench.jobs.pending in (4, 5)
    await bench.done()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_rate_and_latency(dut: Any) -> None:
    bench = await begin(dut)
    memory = bench.memory
    for end in (bench.jobs, bench.passed, bench.words, memory.sink, memory.words):
        end.set_pattern("always")
    await ClockCycles(dut.clk, 20)

    async def until(name: str) -> int:
        cycles = 0
        while not getattr(dut, name).value:
            await RisingEdge(dut.clk)
            cycles += 1
        return cycles

    bench.pass_on(SendKind.NOTHING)
    await until("job__valid")
    assert await until("o__valid") == PASSES_AFTER
    await bench.done()
    bench.read(0, 3, 64)
    await until("job__valid")
    assert await until("read__command__valid") == COMMAND_AFTER
    await until("read__data__valid")
    while memory.words.pending:
        await RisingEdge(dut.clk)
    # That was the edge at which the last word was taken.
    assert await until("o__valid") == LEAVES_AFTER
    await bench.done()
    for _ in range(30):
        bench.pass_on(SendKind.STORE)
    await until("job__valid")
    cycles = 0
    while bench.jobs.pending:
        await RisingEdge(dut.clk)
        cycles += 1
    assert cycles <= 31
    await bench.done()
    # Of the least segments: the commands, in the ring and over its end.
    for first, cost, count in ((0, RING_COST, 30), (SIZES[0] - 4, WRAPPED_COST, 30)):
        for _ in range(count):
            bench.read(0, first, 8)
        await until("job__valid")
        cycles = 0
        while bench.jobs.pending:
            await RisingEdge(dut.clk)
            cycles += 1
        assert cycles <= cost * count + 1
        await bench.done()
    for octets, count in ((1400, 10), (64, 40)):
        for number in range(count):
            bench.read(0, octets * number, octets, stored=False)
        bench.stored[0] = 1 << 20
        await until("read__data__valid")
        cycles = 0
        while len(bench.words) < count * octets // 8:
            await RisingEdge(dut.clk)
            cycles += 1
        assert cycles <= count * octets // 8 + octets // 8 + 20
        await bench.done()


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    qps, mtu = LARGEST
    block = RingReader(RnicConfig(qps=qps), mtu)
    return simulate(tmp_path_factory, block, __name__, request.param, PATTERNS)


@each_check(globals())
def test_ring_reader(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)


def test_ring_reader_of_the_smallest_size() -> None:
    qps, mtu = SMALLEST
    run_cocotb(
        RingReader(RnicConfig(qps=qps), mtu),
        __name__,
        test_filter="check_jobs|check_what_is_not",
        parameters={"PATTERN": "random", "SIZES": f"{qps} {mtu}"},
    )


@pytest.mark.parametrize("mtu", [575, 16384])
def test_sizes_that_are_not_allowed(mtu: int) -> None:
    with pytest.raises(ValueError, match="576 to 16383"):
        RingReader(RnicConfig(), mtu)
