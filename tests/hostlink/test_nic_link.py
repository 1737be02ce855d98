"""The link of a NIC reaches the board's memory beside registers, whatever the line does."""

import random
from typing import Any

import cocotb
import pytest
from cocotbext.axi import AxiLiteBus, AxiLiteRam

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.hostlink.nic_link import NicLink
from stagecoach.hw.interface.hostlink import BOARD_ACCESSES, MAXIMUM_BEATS, VERSION, WINDOW, Kind
from stagecoach.sim.cosim.axi import AxiMemory
from stagecoach.sim.cosim.host_memory import HostMemory
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.hostlink.faults import Faults
from tests.hostlink.flat_ports import until
from tests.hostlink.line import CLOCK_HZ, RETRY_CYCLES, Host
from tests.support.runner import parameter, run_cocotb

pytestmark = pytest.mark.slow

WORD = 8
SIZE = 1 << 12
MEMORY_LOG2 = 20
PATIENCE = 200_000


@pytest.mark.parametrize("faults", ["none", "some"])
def test_nic_link(faults: str) -> None:
    link = NicLink(RnicConfig(), CLOCK_HZ, RETRY_CYCLES, MEMORY_LOG2)
    run_cocotb(link, __name__, parameters={"FAULTS": faults})


@pytest.mark.parametrize("log2", [16, 49])
def test_a_memory_that_no_ring_fits_in_is_refused(log2: int) -> None:
    with pytest.raises(ValueError, match=f"memory_log2 is {log2}; allowed: 17 to 48"):
        NicLink(RnicConfig(), CLOCK_HZ, RETRY_CYCLES, log2)


class Memory(AxiMemory):
    """The board's memory; while `stopped` it answers nothing and takes nothing."""

    stopped = False

    def _open(self) -> bool:
        return not self.stopped and super()._open()


class Bench:
    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.rng = rng = seeded_random(parameter("FAULTS"))
        share = {"none": 0.0, "some": 0.0005}[parameter("FAULTS")]
        faults = Faults(random.Random(rng.random()), share, share, share)
        self.told: list[tuple[int, bytes]] = []
        self.host = Host(dut, rng, "always", lambda *each: self.told.append(each), faults)
        AxiLiteRam(AxiLiteBus.from_prefix(dut, "registers_"), dut.clk, dut.rst, size=1 << 12)
        host = HostMemory()
        self.octets = bytearray(rng.randbytes(SIZE))
        self.base = host.map(self.octets)
        self.memory = Memory(dut, "board", dut.clk, host, read_latency=30, rng=rng)
        dut.irq.value = 0
        for name in ("awvalid", "wvalid", "bready", "arvalid", "rready"):
            getattr(dut, f"memory__{name}").value = 0

    async def start(self) -> "Bench":
        cocotb.start_soon(self.memory.run())
        await start_clock_and_reset(self.dut)
        hello = await self.host.open()
        fields = bytes([VERSION, 0, WINDOW, MEMORY_LOG2]) + CLOCK_HZ.to_bytes(4, "little")
        assert hello[4:] == fields
        cocotb.start_soon(self.host.run())
        return self

    def access(self, at: int, words: int, writes: bytes = b"") -> None:
        payload = (self.base + at).to_bytes(8, "little") + bytes([words]) + writes
        self.host.send(Kind.BOARD_ACCESS, payload)

    async def next(self) -> tuple[int, bytes]:
        await until(self.dut, lambda: self.told, PATIENCE)
        return self.told.pop(0)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_the_memory_is_read_and_written(dut: Any) -> None:
    bench = await Bench(dut).start()
    for _ in range(6):
        at, data = 256 * bench.rng.randrange(SIZE // 256), bench.rng.randbytes(256)
        words = b"".join(b"\xff" + data[n : n + WORD] for n in range(0, len(data), WORD))
        bench.access(at, MAXIMUM_BEATS, words)
        bench.access(at, MAXIMUM_BEATS)
        assert await bench.next() == (Kind.BOARD_ANSWER, bytes(1))
        assert await bench.next() == (Kind.BOARD_ANSWER, data + bytes(1))
        assert bench.octets[at : at + 256] == data


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_a_memory_that_does_nothing_holds_nothing_up(dut: Any) -> None:
    bench = await Bench(dut).start()
    bench.memory.stopped = True
    for _ in range(BOARD_ACCESSES):
        bench.access(0, MAXIMUM_BEATS, MAXIMUM_BEATS * (b"\xff" + bytes(WORD)))
    bench.host.send(Kind.REGISTER_WRITE, bytes([4, 0, 1, 2, 3, 4]))
    assert await bench.next() == (Kind.REGISTER_DONE, bytes(5))
    bench.host.send(0x1F, b"nobody knows it")
    bench.host.send(Kind.REGISTER_READ, bytes([4, 0]))
    assert await bench.next() == (Kind.REGISTER_DONE, bytes([0, 1, 2, 3, 4]))
    for levels in (2, 0):
        dut.irq.value = levels
        assert await bench.next() == (Kind.INTERRUPT, bytes([levels]))
    bench.memory.stopped = False
    for _ in range(BOARD_ACCESSES):
        assert await bench.next() == (Kind.BOARD_ANSWER, bytes(1))
