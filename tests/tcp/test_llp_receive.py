"""Requests of the LLP port are answered by the octets of the ring, and by nothing else."""

from collections import deque
from random import Random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.mpa.layouts import MpaLayouts
from stagecoach.gateware.tcp.layouts import attachment_layout, release_layout
from stagecoach.gateware.tcp.llp_receive import LlpReceive
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    pack,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter
from tests.support.verdicts import Verdicts, each_check, simulate
from tests.tcp.read_memory import Memory, octet_at

CONFIG = RnicConfig()
MPA, BITS = MpaLayouts(CONFIG), CONFIG.qp_bits
SPACE = 1 << 32
PATTERNS = ("always", "random")
READ_AFTER, WORD_AFTER = 6, 2
ATTACH_AFTER = 4


class Bench:
    """The block, lanes, and what has to come out."""

    def __init__(self, dut: Any, rng: Random, pattern: str) -> None:
        self.dut, self.rng = dut, rng
        options: dict[str, Any] = {"rng": rng, "pattern": pattern}
        self.memory = Memory(dut, rng, pattern)
        self.requests = StreamSource(dut, "request", MPA.rx_request, **options)
        self.releases = StreamSource(dut, "release", MPA.rx_release, **options)
        self.answers = StreamSink(dut, "answer", **options)
        self.released = StreamSink(dut, "o", release_layout(BITS), **options)
        self.failed = StreamSink(dut, "failed", **options)
        for name in ("answer", "o", "failed", "read__command"):
            StreamMonitor(dut, name, keep=False)
        dut.attach.value = 0
        self.lanes: dict[int, dict[str, int]] = {}
        self.expected: deque[bytes] = deque()
        self.commands: list[tuple[int, int]] = []

    async def attach(self, lane: int, **fields: int) -> None:
        rng = self.rng
        size = rng.choice([0, 0, 3, 13])
        given = {
            "lane": lane,
            "connection": rng.randrange(CONFIG.qps),
            "attached": 1,
            "base": rng.choice([rng.getrandbits(32), SPACE - 3]),
            "ring": (rng.getrandbits(14) << 31) + rng.getrandbits(20) * 8,
            "size": size,
            **fields,
        }
        self.dut.attach.value = 1
        self.dut.attachment.value = pack(attachment_layout(BITS), given)
        await RisingEdge(self.dut.clk)
        self.dut.attach.value = 0
        # Without the pulse it means nothing.
        self.dut.attachment.value = rng.getrandbits(attachment_layout(BITS).size)
        await ClockCycles(self.dut.clk, ATTACH_AFTER - 1)
        self.lanes[lane] = given

    def put(self, lane: int, position: int, octets: int) -> None:
        self.requests.put({"connection": lane, "position": position, "octets": octets})
        known = self.lanes.get(lane)
        if not known or not known["attached"]:
            self.expected.append(bytes(octets))
            return
        ring, size = known["ring"], 1 << 17 + known["size"]
        place = (known["base"] + position) % SPACE % size
        self.expected.append(
            bytes(octet_at(ring + (place + number) % size) for number in range(octets))
        )
        inside = min(octets, size - place)
        self.commands.append((ring + place, inside))
        if octets > inside:
            self.commands.append((ring, octets - inside))

    def position_before_end(self, lane: int, octets: int) -> int:
        """A position, `octets` before the end of the ring."""
        known = self.lanes[lane]
        return (-octets - known["base"]) % (1 << 17 + known["size"])

    async def check(self) -> None:
        while self.expected:
            octets = self.expected.popleft()
            words = [await self.answers.get() for _ in range(-(-len(octets) // 8))]
            found = b"".join(word.to_bytes(8, "little") for word in words)
            assert found[: len(octets)] == octets
        await ClockCycles(self.dut.clk, 20)
        assert not len(self.answers)
        assert self.memory.commands == self.commands
        self.memory.commands.clear()
        self.commands.clear()


async def start(dut: Any) -> Bench:
    pattern = parameter("PATTERN")
    bench = Bench(dut, seeded_random(pattern), pattern)
    await start_clock_and_reset(dut)
    return bench


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_requests_anywhere(dut: Any) -> None:
    """At all lanes, at the end of the ring, of lanes that are attached and of others."""
    bench = await start(dut)
    rng = bench.rng
    some = [0, 1, CONFIG.qps - 1]
    for _ in range(6):
        for lane in some:
            await bench.attach(lane, attached=int(rng.random() < 0.8))
        for _ in range(20):
            lane = rng.choice(some)
            octets = 4 * rng.choice([1, 2, 3, rng.randint(1, 40)])
            position = rng.choice([0, rng.getrandbits(32)])
            if bench.lanes[lane]["attached"] and rng.random() < 0.4:
                before = octets + rng.choice([0, 1, -1, -rng.randint(0, octets)])
                position = bench.position_before_end(lane, before)
            bench.put(lane, position, octets)
        await bench.check()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_what_cannot_be_read_is_told(dut: Any) -> None:
    """Whose it is, before the answer has ended; others are answered as ever."""
    bench = await start(dut)
    for lane in (1, 2):
        await bench.attach(lane, base=0, ring=lane << 20, connection=lane + 10)
    bench.memory.bad = {1 << 20, (1 << 20) + 40, (1 << 20) + 72}
    bench.failed.paused = True
    # Two words that fail in one answer, one in the last word of the next.
    for lane, position, octets in ((2, 0, 80), (1, 0, 64), (2, 80, 8), (1, 64, 16), (2, 0, 8)):
        bench.put(lane, position, octets)
    await ClockCycles(dut.clk, 300)
    assert len(bench.answers) == 80 // 8 + 64 // 8 - 1
    bench.failed.paused = False
    await bench.check()
    assert bench.failed.take_all() == [11, 11]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_releases_have_the_number_of_their_connection(dut: Any) -> None:
    """Also while requests wait for a memory that does not answer; none of a detached lane."""
    bench = await start(dut)
    rng = bench.rng
    bench.memory.sink.paused = True
    expected = []
    for lane in (0, 5, 6, CONFIG.qps - 1):
        await bench.attach(lane, attached=int(lane != 6))
    for number in range(60):
        bench.put(5, 4 * number, 8)
    for _ in range(60):
        lane, position = rng.choice([0, 5, 6, CONFIG.qps - 1]), rng.getrandbits(32)
        bench.releases.put({"connection": lane, "position": position})
        if bench.lanes[lane]["attached"]:
            connection = bench.lanes[lane]["connection"]
            expected.append({"connection": connection, "relative": 0, "value": position})
    assert await bench.released.get_many(len(expected)) == expected
    assert bench.requests.pending
    bench.memory.sink.paused = False
    await bench.check()
    assert not len(bench.released)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_rate_and_latency(dut: Any) -> None:
    bench = await start(dut)
    for end in (bench.requests, bench.answers, bench.memory.sink, bench.memory.words):
        end.set_pattern("always")
    await bench.attach(3, base=1)
    bench.memory.latency = 20
    for number in range(6):
        bench.put(3, 2048 * number, 2048)
    first: dict[str, int] = {}
    words: list[int] = []
    cycle = 0
    while len(words) < 6 * 256:
        await RisingEdge(dut.clk)
        cycle += 1
        for name in ("request", "read__command", "read__data"):
            if getattr(dut, f"{name}__valid").value:
                first.setdefault(name, cycle)
        words += [cycle] * int(dut.answer__valid.value and dut.answer__ready.value)
    assert first["read__command"] - first["request"] == READ_AFTER
    # The first word of the answer ends in the second one of memory.
    assert words[0] - first["read__data"] == WORD_AFTER + 1
    assert words[-1] - words[0] <= 6 * 257
    await bench.check()


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    return simulate(tmp_path_factory, LlpReceive(CONFIG), __name__, request.param, PATTERNS)


@each_check(globals())
def test_llp_receive(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)
