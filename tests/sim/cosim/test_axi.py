"""The AXI slave of cocotb tests: when a write is visible, and when a read is answered."""

from typing import Any

import cocotb
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.dma.ports import AxiSignature
from stagecoach.sim.cosim.axi import OKAY, SLVERR, AxiMemory
from stagecoach.sim.cosim.host_memory import HostMemory
from stagecoach.sim.cosim.streams import start_clock_and_reset
from tests.support.runner import parameter, run_cocotb

pytestmark = pytest.mark.timeout(300)

BEFORE, WRITTEN = bytes(range(16)), bytes(range(100, 116))
WRITE_LATENCY = 20
READ_LATENCY = 3
STROBES = (0xF0, 0x3F)
AFTER = BEFORE[:4] + WRITTEN[4:14] + BEFORE[14:]


class Wires(wiring.Component):
    """An AXI master that is the test."""

    test: In(AxiSignature())
    m_axi: Out(AxiSignature())

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += Signal().eq(1)  # there is a clock
        wiring.connect(m, wiring.flipped(self.test), wiring.flipped(self.m_axi))
        return m


@pytest.mark.parametrize("late", [False, True])
def test_a_write_is_visible_when_it_is_here_or_with_its_response(late: bool):
    run_cocotb(
        Wires(),
        __name__,
        test_filter="check_visibility$",
        parameters={"LATE": str(int(late))},
    )


def test_reads_of_some_addresses_are_late_and_hold_up_the_reads_after_them():
    run_cocotb(Wires(), __name__, test_filter="check_late_reads$")


async def transfer(dut: Any, channel: str, **values: int) -> None:
    """Hands one beat over."""
    for name, value in values.items():
        getattr(dut, f"test__{channel}{name}").value = value
    valid, ready = (getattr(dut, f"test__{channel}{name}") for name in ("valid", "ready"))
    valid.value = 1
    await RisingEdge(dut.clk)
    while not ready.value:
        await RisingEdge(dut.clk)
    valid.value = 0


async def accept(dut: Any, channel: str, *names: str) -> list[int]:
    """Takes one beat; the values of `names`."""
    valid, ready = (getattr(dut, f"test__{channel}{name}") for name in ("valid", "ready"))
    ready.value = 1
    await RisingEdge(dut.clk)
    while not valid.value:
        await RisingEdge(dut.clk)
    ready.value = 0
    return [int(getattr(dut, f"test__{channel}{name}").value) for name in names]


async def write(dut: Any, address: int) -> None:
    """The burst of `WRITTEN` without its response."""
    await transfer(dut, "aw", addr=address, len=1)
    for number, strobe in enumerate(STROBES):
        word = int.from_bytes(WRITTEN[8 * number :][:8], "little")
        await transfer(dut, "w", data=word, strb=strobe, last=number)


async def read(dut: Any, address: int) -> bytes:
    await transfer(dut, "ar", addr=address, len=1)
    words = [(await accept(dut, "r", "data", "last")) for _ in range(2)]
    assert [last for _, last in words] == [0, 1]
    return b"".join(data.to_bytes(8, "little") for data, _ in words)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def check_visibility(dut: Any) -> None:
    late = parameter("LATE") == "1"
    memory, buffer = HostMemory(), bytearray(BEFORE)
    address = memory.map(buffer)
    axi = AxiMemory(
        dut,
        "m_axi",
        dut.clk,
        memory,
        read_latency=READ_LATENCY,
        write_latency=WRITE_LATENCY,
        late_writes=late,
    )
    for name in ("awvalid", "wvalid", "bready", "arvalid", "rready"):
        getattr(dut, f"test__{name}").value = 0
    await start_clock_and_reset(dut)
    cocotb.start_soon(axi.run())
    await write(dut, address)
    await ClockCycles(dut.clk, 3)
    early = BEFORE if late else AFTER
    assert bytes(buffer) == early
    assert await read(dut, address) == early
    # The response is there, but nobody has taken it.
    await ClockCycles(dut.clk, 2 * WRITE_LATENCY)
    assert bytes(buffer) == early
    assert await accept(dut, "b", "resp") == [OKAY]
    await ClockCycles(dut.clk, 2)
    assert bytes(buffer) == AFTER
    assert await read(dut, address) == AFTER
    # The second word is not mapped.
    await write(dut, address + 8)
    assert await accept(dut, "b", "resp") == [SLVERR]


@cocotb.test(timeout_time=100, timeout_unit="us")
async def check_late_reads(dut: Any) -> None:
    late_cycles = 40
    memory = HostMemory()
    address = memory.map(bytearray(64))
    axi = AxiMemory(dut, "m_axi", dut.clk, memory, read_latency=READ_LATENCY)
    axi.delay(range(address + 16, address + 32), late_cycles)
    for name in ("awvalid", "wvalid", "bready", "arvalid", "rready"):
        getattr(dut, f"test__{name}").value = 0
    await start_clock_and_reset(dut)
    cocotb.start_soon(axi.run())

    async def cycles(*offsets: int) -> int:
        """From the first address to the last word, when the reads follow each other."""
        before = axi.cycle
        for offset in offsets:
            await transfer(dut, "ar", addr=address + offset, len=1)
        for _ in range(2 * len(offsets)):
            await accept(dut, "r", "data")
        return axi.cycle - before

    usual = await cycles(0)
    assert await cycles(32) == usual
    assert await cycles(16) == await cycles(24) == usual + late_cycles
    words = 2 * (await cycles(0, 32) - usual)
    assert await cycles(16, 32) in range(usual + late_cycles, usual + late_cycles + words + 1)
    assert await cycles(32, 16) <= usual + late_cycles + words
    assert await cycles(32) == usual
