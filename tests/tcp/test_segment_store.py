"""FPDUs of attached lanes reach both readers whole, in order, with the sum of their octets."""

from random import Random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ethernet.layouts import FRAME_WORD
from stagecoach.gateware.mpa.layouts import MpaLayouts
from stagecoach.gateware.tcp.layouts import FATE, attachment_layout, fpdu_layout
from stagecoach.gateware.tcp.segment_store import (
    FPDU_RECORDS,
    FPDUS,
    RECORDS_MARGIN,
    SegmentStore,
)
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

SMALLEST, LARGEST = (2, 576), (256, 16383)
PATTERNS = ("always", "random")
RECORD_AFTER, RING_AFTER, SEGMENT_AFTER = 5, 4, 5


class Bench:
    """A device, lanes, two readers, and what they have to get."""

    def __init__(self, dut: Any, rng: Random, pattern: str) -> None:
        self.dut, self.rng = dut, rng
        self.lanes, mtu = (int(part) for part in parameter("SIZES", "256 16383").split())
        self.longest = (mtu - 40) // 4 * 4
        config = RnicConfig(qps=self.lanes)
        self.bits = config.qp_bits
        options: dict[str, Any] = {"rng": rng, "pattern": pattern}
        self.tx = StreamSource(dut, "tx", MpaLayouts(config).tx, **options)
        self.fate = StreamSource(dut, "fate", FATE, **options)
        self.fpdu = StreamSink(dut, "fpdu", fpdu_layout(self.bits), **options)
        self.ring = StreamSink(dut, "ring", FRAME_WORD, **options)
        self.segment = StreamSink(dut, "segment", FRAME_WORD, **options)
        for name in ("fpdu", "ring", "segment"):
            StreamMonitor(dut, name, keep=False)
        dut.attach.value = 0
        self.connections: dict[int, int] = {}  # of lanes
        self.records: list[dict[str, int]] = []
        self.kept: list[bytes] = []
        self.sent: list[bytes] = []

    async def attach(self, lane: int, connection: int | None) -> None:
        fields = {"lane": lane, "attached": connection is not None, "connection": connection or 0}
        self.dut.attachment.value = pack(attachment_layout(self.bits), fields)
        self.dut.attach.value = 1
        await RisingEdge(self.dut.clk)
        self.dut.attach.value = 0
        self.connections.pop(lane, None)
        if connection is not None:
            self.connections[lane] = connection

    def offer(self, lane: int, octets: int, *, close: bool = False) -> bytes:
        """Beats of an FPDU; lanes after it mean nothing."""
        fpdu = self.rng.randbytes(octets)
        for at in range(0, max(octets, 1), 8):
            part = fpdu[at : at + 8]
            word = part + self.rng.randbytes(8 - len(part))
            beat = {"connection": lane, "data": int.from_bytes(word, "little")}
            beat |= {"octets": len(part), "first": at == 0, "last": at + 8 >= octets}
            self.tx.put(beat | {"close": close & beat["last"]})
        return fpdu

    def send(self, lane: int, octets: int, *, close: bool = False) -> None:
        """An FPDU, or the end of a connection without one."""
        fpdu = self.offer(lane, octets, close=close)
        if lane in self.connections:
            record = {"connection": self.connections[lane], "octets": octets}
            self.records.append(record | {"sum": ones_complement_sum(fpdu), "close": int(close)})
            if octets:
                self.kept.append(fpdu)

    async def decide(self, chance: float = 0.6) -> None:
        """Compare what is said of FPDUs, and say what becomes of them."""
        # Those before were decided.
        kept = iter(self.kept[len(self.kept) - sum(each["octets"] > 0 for each in self.records) :])
        for expected in self.records:
            assert await self.fpdu.get() == expected
            if expected["octets"]:
                fpdu, sends = next(kept), self.rng.random() < chance
                self.fate.put({"octets": len(fpdu), "sends": sends})
                if sends:
                    self.sent.append(fpdu)
        self.records.clear()

    async def done(self) -> None:
        """All that was kept came out."""
        await self.tx.wait_idle()
        for sink, expected in ((self.ring, self.kept), (self.segment, self.sent)):
            for fpdu in expected:
                words = await sink.get_until()
                found = b"".join(word["data"].to_bytes(8, "little") for word in words)
                assert len(found) == -(-len(fpdu) // 8) * 8
                assert found.startswith(fpdu)
            expected.clear()
        await ClockCycles(self.dut.clk, 20)
        assert not len(self.fpdu) + len(self.ring) + len(self.segment)


async def begin(dut: Any) -> Bench:
    pattern = parameter("PATTERN")
    bench = Bench(dut, seeded_random(pattern, parameter("SIZES", "")), pattern)
    await start_clock_and_reset(dut)
    last = bench.lanes - 1
    await bench.attach(0, last)
    await bench.attach(last, 0)
    return bench


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_fpdus_reach_both_readers(dut: Any) -> None:
    """Of all lengths, those of lanes that are not attached not at all; with and without fates."""
    bench = await begin(dut)
    rng = bench.rng
    # The third one is not attached, if there are so many.
    lanes = [0, bench.lanes - 1, bench.lanes // 2]
    for _ in range(5):
        for _ in range(25):
            some = rng.randrange(4, 100, 4), rng.randrange(4, min(bench.longest, 1500), 4)
            octets = rng.choice([0, 4, 8, *some, *some])
            bench.send(rng.choice(lanes), octets, close=not octets or rng.random() < 0.1)
        await bench.decide()
        await bench.done()
    for chance in (1, 0):
        for _ in range(3):
            bench.send(0, bench.longest)
        await bench.decide(chance)
        await bench.done()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_lane_that_was_not_attached_all_the_while_is_forgotten(dut: Any) -> None:
    bench = await begin(dut)
    last = bench.lanes - 1
    for before, connection in ((None, 1), (1, None)):
        bench.send(0, 40)
        await bench.decide()
        await bench.attach(last, before)
        bench.offer(last, 2000)
        while bench.tx.pending > 100:
            await RisingEdge(dut.clk)
        await bench.attach(last, connection)
        await bench.tx.wait_idle()
        if connection is not None:
            bench.send(last, 100)
        bench.send(0, 60)
        await bench.decide()
        await bench.done()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_what_is_not_taken_waits(dut: Any) -> None:
    """By either reader, or its fate, or its record: the device waits, and all of it comes then."""
    bench = await begin(dut)
    words = -(-bench.longest // 8)
    room = 1 << (FPDUS * words - 1).bit_length()
    for sink in (bench.ring, bench.segment, bench.fpdu):
        sink.paused = True
        for _ in range(room // words + 2):
            bench.send(0, bench.longest)
        deciding = cocotb.start_soon(bench.decide(1))
        before = bench.tx.pending
        await ClockCycles(dut.clk, 3 * room + 200)
        taken = before - bench.tx.pending
        # Words that a reader holds are no longer in the store.
        assert FPDUS * words <= room <= taken <= room + 16
        sink.paused = False
        await deciding
        await bench.done()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_records_that_are_not_taken_wait(dut: Any) -> None:
    """The shortest FPDUs, while nobody wants to know of them."""
    bench = await begin(dut)
    bench.fpdu.paused = True
    for _ in range(3 * FPDU_RECORDS):
        bench.send(0, 4)
    await ClockCycles(dut.clk, 200)
    taken = 3 * FPDU_RECORDS - bench.tx.pending
    assert FPDU_RECORDS - RECORDS_MARGIN <= taken <= FPDU_RECORDS
    bench.fpdu.paused = False
    await bench.decide()
    await bench.done()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_rate_and_latency(dut: Any) -> None:
    bench = await begin(dut)
    for end in (bench.tx, bench.fate, bench.fpdu, bench.ring, bench.segment):
        end.set_pattern("always")
    bench.send(0, 64)
    await bench.tx.wait_idle()
    bench.segment.paused = True
    waits = [("fpdu", RECORD_AFTER), ("ring", RING_AFTER)]
    cycles = 0
    while waits:
        for name, latency in [each for each in waits if getattr(dut, f"{each[0]}__valid").value]:
            assert cycles == latency, name
            waits.remove((name, latency))
        await RisingEdge(dut.clk)
        cycles += 1
    await bench.decide(1)
    await bench.fate.wait_idle()
    cycles = 0
    while not dut.segment__valid.value:
        await RisingEdge(dut.clk)
        cycles += 1
    assert cycles == SEGMENT_AFTER
    bench.segment.paused = False
    await bench.done()
    for octets, count in ((64, 30), (536, 6)):
        for _ in range(count):
            bench.send(0, octets)
        words = bench.tx.pending
        deciding = cocotb.start_soon(bench.decide(1))
        await bench.tx.wait_idle()
        cycles = 0
        # Behind the device by one FPDU, its fate, and a cycle for each FPDU.
        while len(bench.segment) < words:
            await RisingEdge(dut.clk)
            cycles += 1
        assert cycles <= octets // 8 + 20 + count
        await deciding
        await bench.done()


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    qps, mtu = LARGEST
    block = SegmentStore(RnicConfig(qps=qps), mtu)
    return simulate(tmp_path_factory, block, __name__, request.param, PATTERNS)


@each_check(globals())
def test_segment_store(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)


def test_segment_store_of_the_smallest_size() -> None:
    qps, mtu = SMALLEST
    run_cocotb(
        SegmentStore(RnicConfig(qps=qps), mtu),
        __name__,
        test_filter="check_fpdus|check_what",
        parameters={"PATTERN": "random", "SIZES": f"{qps} {mtu}"},
    )


@pytest.mark.parametrize("mtu", [575, 16384])
def test_sizes_that_are_not_allowed(mtu: int) -> None:
    with pytest.raises(ValueError, match="576 to 16383"):
        SegmentStore(RnicConfig(), mtu)
