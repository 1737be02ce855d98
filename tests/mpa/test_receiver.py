"""The MPA receiver passes on every whole FPDU with a good CRC, in order, and nothing else."""

import random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge, Timer

from gateware.config import RnicConfig
from gateware.interfaces import Layouts, QpCommandKind, SegmentKind
from gateware.mpa.receiver import MpaReceiver
from sim.model.mpa import frame_fpdu
from tests.mpa.llp_model import LlpReceiveModel
from tests.support.runner import parameter, run_cocotb
from tests.support.streams import (
    CLOCK_PERIOD_NS,
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)

CONFIG = RnicConfig(qps=4)
LAYOUTS = Layouts(CONFIG)
WORDS = CONFIG.fpdu_store_octets // 8


@pytest.mark.parametrize("pattern", ["always", "random", "bursty"])
def test_receiver(pattern: str) -> None:
    run_cocotb(
        MpaReceiver(CONFIG),
        __name__,
        test_filter="check_",
        parameters={"PATTERN": pattern},
        name=pattern,
    )


class Bench:
    """A receiver with an LLP, and a placer that reads every FPDU out of the store."""

    def __init__(
        self,
        dut: Any,
        rng: random.Random,
        pattern: str,
        latency: tuple[int, int] = (3, 20),
        place: bool = True,
    ) -> None:
        self.dut = dut
        self.rng = rng
        self.llp = LlpReceiveModel(dut, CONFIG, rng, pattern=pattern, latency=latency)
        self.commands = StreamSource(dut, "qp_command", LAYOUTS.qp_command)
        self.segments = StreamSink(dut, "segment", LAYOUTS.segment, rng=rng, pattern=pattern)
        StreamMonitor(dut, "segment", LAYOUTS.segment)
        self.place = place
        self.ulpdus: dict[int, list[bytes]] = {qp: [] for qp in range(CONFIG.qps)}
        self.errors: list[tuple[int, SegmentKind]] = []
        self.log: list[tuple[int, Any]] = []
        self.cycles_of_segments: list[int] = []
        dut.store__enable.value = 0
        dut.store__address.value = 0
        dut.store__release.value = 0
        dut.store__release_end.value = 0

    async def start(self) -> None:
        await start_clock_and_reset(self.dut)
        cocotb.start_soon(self._placer())

    async def connect(self, qp: int, crc: bool = True) -> None:
        self.llp.attach(qp)
        await self.command(qp, QpCommandKind.CREATE)
        await self.command(qp, QpCommandKind.CONNECT, crc=int(crc))

    async def command(self, qp: int, kind: QpCommandKind, **fields: int) -> None:
        await self.commands.send({"kind": kind.value, "qp": qp, **fields})

    def deliver(self, qp: int, octets: bytes) -> None:
        """Append octets to a connection without announcing them."""
        self.llp.octets[qp] += octets

    async def announce_in_chunks(self, qp: int, chunk: tuple[int, int], wait: int) -> None:
        llp = self.llp
        while llp.available[qp] < len(llp.octets[qp]):
            llp.announce(qp, self.rng.randint(*chunk))
            await self.cycles(self.rng.randint(0, wait))

    async def cycles(self, count: int) -> None:
        if count:
            await Timer(count * CLOCK_PERIOD_NS, unit="ns")
            await RisingEdge(self.dut.clk)

    async def wait_for(self, qp: int, count: int) -> list[bytes]:
        """Wait for `count` ULPDUs of a connection."""
        while len(self.ulpdus[qp]) < count:
            await self.cycles(20)
        return self.ulpdus[qp]

    async def wait_for_error(self) -> tuple[int, SegmentKind]:
        while not self.errors:
            await self.cycles(20)
        return self.errors.pop(0)

    async def _placer(self) -> None:
        while True:
            segment = await self.segments.get()
            qp = segment["qp"]
            kind = SegmentKind(segment["kind"])
            if kind != SegmentKind.FPDU:
                self.errors.append((qp, kind))
                self.log.append((qp, kind))
                continue
            length = segment["ulpdu_length"]
            header = segment["header"].to_bytes(46, "little")[:length]
            ulpdu = header
            if self.place:
                octets = await self._read(segment["store_address"], segment["store_end"])
                assert int.from_bytes(octets[:2], "big") == length
                assert len(octets) == (length + 9) // 4 * 4 + 7 & ~7
                ulpdu = octets[2 : 2 + length]
                assert ulpdu[:46] == header
            self.dut.store__release.value = 1
            self.dut.store__release_end.value = segment["store_end"]
            await RisingEdge(self.dut.clk)
            self.dut.store__release.value = 0
            self.ulpdus[qp].append(ulpdu)
            self.log.append((qp, ulpdu))

    async def _read(self, start: int, end: int) -> bytes:
        dut = self.dut
        words = bytearray()
        count = (end - start) % WORDS
        dut.store__enable.value = 1
        for index in range(count + 2):
            dut.store__address.value = (start + index) % WORDS
            await RisingEdge(dut.clk)
            if index >= 2:
                words += int(dut.store__data.value).to_bytes(8, "little")
        dut.store__enable.value = 0
        return bytes(words)


def random_length(rng: random.Random, longest: int = 3000) -> int:
    return rng.choice(
        [
            rng.randint(0, 8),
            rng.randint(14, 100),
            rng.randint(14, 100),
            rng.randint(0, 1500),
            rng.randint(0, longest),
        ]
    )


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_random_fpdus_of_several_connections_arrive_in_order(dut: Any) -> None:
    rng = seeded_random(parameter("PATTERN"))
    bench = Bench(dut, rng, parameter("PATTERN"))
    await bench.start()
    sent: dict[int, list[bytes]] = {}
    tasks = []
    for qp in range(CONFIG.qps):
        crc = qp != 2
        await bench.connect(qp, crc)
        sent[qp] = [rng.randbytes(random_length(rng)) for _ in range(30)]
        for ulpdu in sent[qp]:
            fpdu = bytearray(frame_fpdu(ulpdu, crc=crc)) if ulpdu else bytearray(b"")
            if not ulpdu:
                fpdu = bytearray(bytes(4) + bytes.fromhex("c74b6748"))
            bench.deliver(qp, bytes(fpdu))
        chunk = [(1, 64), (1, 3000), (1460, 1460), (1, 9000)][qp]
        tasks.append(cocotb.start_soon(bench.announce_in_chunks(qp, chunk, 100)))
    for qp in range(CONFIG.qps):
        received = await bench.wait_for(qp, len(sent[qp]))
        assert received == sent[qp], f"connection {qp}"
    await bench.cycles(200)
    assert not bench.errors
    for qp in range(CONFIG.qps):
        assert bench.llp.released[qp] == len(bench.llp.octets[qp])
