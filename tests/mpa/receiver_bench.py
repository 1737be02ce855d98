"""A receiver between an LLP and a placer, for its tests."""

import random
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge, Timer
from cocotb.utils import get_sim_time

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import ULPDU_HEADER_OCTETS, Layouts, QpCommandKind, SegmentKind
from stagecoach.gateware.mpa.ports import StorePort
from stagecoach.sim.cosim.signals import every_cycle, reader
from stagecoach.sim.cosim.streams import (
    CLOCK_PERIOD_NS,
    StreamMonitor,
    StreamSink,
    StreamSource,
    pack,
    start_clock_and_reset,
)
from tests.mpa.llp_model import LlpReceiveModel

CONFIG = RnicConfig(qps=4)
LAYOUTS = Layouts(CONFIG)
WORDS = CONFIG.fpdu_store_octets // 8


class Bench:
    """A receiver with an LLP, and a placer that reads every FPDU out of the store.

    With the probability `hold` an FPDU stays there when it was read, and is released some FPDUs
    later.
    """

    def __init__(
        self,
        dut: Any,
        rng: random.Random,
        pattern: str,
        latency: tuple[int, int] = (3, 20),
        place: bool = True,
        hold: float = 0,
    ) -> None:
        self.dut = dut
        self.rng = rng
        self.llp = LlpReceiveModel(dut, CONFIG, rng, pattern=pattern, latency=latency)
        self.commands = StreamSource(dut, "qp_command", LAYOUTS.qp_command)
        self.segments = StreamSink(dut, "segment", LAYOUTS.segment, rng=rng, pattern=pattern)
        StreamMonitor(dut, "segment", LAYOUTS.segment)
        self.place, self.hold = place, hold
        self.held: list[dict[str, int]] = []
        self.passed = 0  # FPDUs that were released while an older one was held
        self.ulpdus: dict[int, list[bytes]] = {qp: [] for qp in range(CONFIG.qps)}
        self.errors: list[tuple[int, SegmentKind]] = []
        self.log: list[tuple[int, Any]] = []
        self.rx_stalls = 0  # cycles in which octets had to wait
        self._rx_valid, self._rx_ready = reader(dut.rx__valid), reader(dut.rx__ready)
        self._store_data = reader(dut.store__data)
        dut.store__address.value = 0
        dut.store__release.value = 0
        dut.store__released.value = 0

    async def start(self) -> None:
        await start_clock_and_reset(self.dut)
        cocotb.start_soon(self._placer())
        every_cycle(self.dut, self._watch)

    async def connect(self, qp: int, crc: bool = True, markers: bool = False) -> None:
        self.llp.attach(qp)
        await self.command(qp, QpCommandKind.CREATE)
        await self.command(qp, QpCommandKind.CONNECT, crc=int(crc), receive_markers=int(markers))

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

    def now(self) -> int:
        """The time in cycles."""
        return round(get_sim_time("ns") / CLOCK_PERIOD_NS)

    async def wait_for(self, qp: int, count: int) -> list[bytes]:
        """Wait for `count` ULPDUs of a connection."""
        while len(self.ulpdus[qp]) < count:
            await self.cycles(20)
        return self.ulpdus[qp]

    async def wait_for_error(self) -> tuple[int, SegmentKind]:
        while not self.errors:
            await self.cycles(20)
        return self.errors.pop(0)

    def _watch(self, in_reset: bool) -> None:
        self.rx_stalls += not in_reset and self._rx_valid() > self._rx_ready()

    async def _placer(self) -> None:
        while True:
            if self.held and self.rng.random() < 0.5:
                await self._release(self.held.pop(self.rng.randrange(len(self.held))))
            segment = await self.segments.get()
            qp = segment["qp"]
            kind = SegmentKind(segment["kind"])
            if kind != SegmentKind.FPDU:
                self.errors.append((qp, kind))
                self.log.append((qp, kind))
                continue
            length = segment["ulpdu_length"]
            header = segment["header"].to_bytes(ULPDU_HEADER_OCTETS, "little")[:length]
            ulpdu = header
            if self.place:
                octets = await self._read(segment["store_address"], segment["stored"]["end"])
                assert int.from_bytes(octets[:2], "big") == length
                assert len(octets) == (length + 9) // 4 * 4 + 7 & ~7
                ulpdu = octets[2 : 2 + length]
                assert ulpdu[:ULPDU_HEADER_OCTETS] == header
            if self.rng.random() < self.hold:
                self.held.append(segment["stored"])
            else:
                self.passed += bool(self.held)
                await self._release(segment["stored"])
            self.ulpdus[qp].append(ulpdu)
            self.log.append((qp, ulpdu))

    async def _release(self, stored: dict[str, int]) -> None:
        self.dut.store__release.value = 1
        self.dut.store__released.value = pack(LAYOUTS.stored, stored)
        await RisingEdge(self.dut.clk)
        self.dut.store__release.value = 0

    async def _read(self, start: int, end: int) -> bytes:
        dut = self.dut
        words, edge = bytearray(), RisingEdge(dut.clk)
        count = (end - start) % WORDS
        for index in range(count + StorePort.LATENCY):
            dut.store__address.value = (start + index) % WORDS
            await edge
            if index >= StorePort.LATENCY:
                words += self._store_data().to_bytes(8, "little")
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
