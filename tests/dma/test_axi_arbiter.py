"""Masters take turns at a slave; each has its own answers, and none waits for another one."""

from itertools import pairwise
from typing import Any

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for
from cocotb.triggers import ClockCycles, Combine, ReadOnly, RisingEdge

from stagecoach.gateware.dma.axi import connect_axi
from stagecoach.gateware.dma.axi_arbiter import MASTERS, AxiReadArbiter, AxiWriteArbiter
from stagecoach.gateware.dma.ports import AxiSignature
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.dma.axi_slaves import LatencyReadSlave, OrderedWriteSlave
from tests.dma.axi_traffic import (
    LONGEST,
    SHORTEST,
    Region,
    make_master,
    make_ram,
    pause,
    traffic,
    watch,
)
from tests.support.runner import parameter, run_cocotb

pytestmark = pytest.mark.slow

OCTETS = 1 << 13
PORTS = ["axi__0", "axi__1"]
MOST = MASTERS[-1]


class Arbiters(wiring.Component):
    """The two arbiters between the ports of masters and that of the slave."""

    def __init__(self, width: int, longest: int, masters: int = 2):
        self._width, self._longest, self._masters = width, longest, masters
        slave = AxiSignature(width, bits_for(masters - 1))
        super().__init__({"axi": In(AxiSignature(width)).array(masters), "m_axi": Out(slave)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.read = read = AxiReadArbiter(self._width, self._masters)
        m.submodules.write = write = AxiWriteArbiter(self._width, self._longest, self._masters)
        for number in range(self._masters):
            connect_axi(m, self.axi[number], read.axi[number], write.axi[number])
        connect_axi(m, self.m_axi, read.m_axi, write.m_axi)
        return m


@pytest.mark.parametrize(
    "width, longest, masters", [(64, 32, 3), (128, LONGEST, 2), (64, SHORTEST, 2), (32, 8, MOST)]
)
def test_axi_arbiter(width: int, longest: int, masters: int) -> None:
    parameters = {"LONGEST": str(longest), "MASTERS": str(masters)}
    design = Arbiters(width, longest, masters)
    run_cocotb(design, __name__, parameters=parameters, test_filter="traffic", quick=True)


def test_axi_arbiter_cycles() -> None:
    run_cocotb(Arbiters(64, 32), __name__, test_filter="check_cycles|check_never|check_turns")


@pytest.mark.parametrize("longest", [0, 257])
def test_wrong_longest_burst(longest: int) -> None:
    with pytest.raises(ValueError, match=f"longest is {longest}; allowed: 1 to 256"):
        AxiWriteArbiter(64, longest)


@pytest.mark.parametrize("masters", [1, MOST + 1])
@pytest.mark.parametrize("block", [AxiReadArbiter, AxiWriteArbiter])
def test_wrong_number_of_masters(block: type, masters: int) -> None:
    named = f"{block.__name__} masters is {masters}; allowed: 2 to {MOST}"
    with pytest.raises(ValueError, match=named):
        block(64, masters=masters)


async def check_traffic(dut: Any, share: float) -> None:
    longest, number = int(parameter("LONGEST")), int(parameter("MASTERS"))
    rng = seeded_random(share, longest)
    word = len(dut.m_axi__wdata) // 8
    ports = [f"axi__{each}" for each in range(number)]
    masters = [make_master(dut, port, longest) for port in ports]
    ram = make_ram(dut, "m_axi", number * OCTETS)
    for model in (*masters, ram):
        pause(model, rng, share)
    watch(dut, ports, ["m_axi"])
    await start_clock_and_reset(dut)
    rounds = 3 if number < MOST and longest != SHORTEST else 1
    await Combine(
        *(
            cocotb.start_soon(
                traffic(master, rng, [Region(ram, number * OCTETS, OCTETS)], word, rounds)
            )
            for number, master in enumerate(masters)
        )
    )


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_traffic_without_stalls(dut: Any) -> None:
    await check_traffic(dut, 0)


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_traffic_with_stalls(dut: Any) -> None:
    await check_traffic(dut, 0.4)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_never_given_words_hold_up_nobody_else(dut: Any) -> None:
    """The one master gives an address and all words but the last one, and takes no turn."""
    rng = seeded_random()
    master = make_master(dut, PORTS[1], 32)
    ram = make_ram(dut, "m_axi", OCTETS)
    for name in ("arvalid", "awvalid", "wvalid", "rready", "bready"):
        getattr(dut, f"axi__0__{name}").value = 0
    await start_clock_and_reset(dut)
    region = Region(ram, 0, OCTETS)
    region.fill(rng)
    dut.axi__0__awaddr.value, dut.axi__0__awlen.value = 0, 3
    dut.axi__0__awsize.value, dut.axi__0__awburst.value = 3, 1
    dut.axi__0__wlast.value, dut.axi__0__wstrb.value = 0, 0xFF
    dut.axi__0__awvalid.value = dut.axi__0__wvalid.value = 1
    await ClockCycles(dut.clk, 3)
    dut.axi__0__wvalid.value = 0
    for _ in range(20):
        place = rng.randrange(OCTETS - 64)
        region.image[place : place + 64] = content = rng.randbytes(64)
        await master.write(place, content, awid=0)
    region.check()
    assert not dut.axi__0__awready.value
    # The last word comes after all, and the slave has the burst at once.
    dut.axi__0__wvalid.value = dut.axi__0__wlast.value = dut.axi__0__bready.value = 1
    dut.axi__0__wdata.value = 0
    await RisingEdge(dut.clk)
    dut.axi__0__wvalid.value = 0
    await ReadOnly()
    while not dut.axi__0__awready.value:
        await RisingEdge(dut.clk)
        await ReadOnly()
    await RisingEdge(dut.clk)
    dut.axi__0__awvalid.value = 0
    while not dut.axi__0__bvalid.value:
        await RisingEdge(dut.clk)
    assert not dut.axi__1__bvalid.value
    assert ram.read(24, 8) == bytes(8)


async def offer(dut: Any, beats: int, cycles: int) -> list[list[int]]:
    """Both masters offer bursts all the time; the addresses of each that the slave has taken."""
    taken: list[list[int]] = [[], []]
    for port in PORTS:
        for channel in ("ar", "aw"):
            getattr(dut, f"{port}__{channel}len").value = beats - 1
            getattr(dut, f"{port}__{channel}addr").value = 0
            getattr(dut, f"{port}__{channel}id").value = 0
            getattr(dut, f"{port}__{channel}valid").value = 1
        for name in ("wvalid", "rready", "bready"):
            getattr(dut, f"{port}__{name}").value = 1
    left = [beats, beats]
    for _ in range(cycles):
        for number, port in enumerate(PORTS):
            getattr(dut, f"{port}__wlast").value = int(left[number] == 1)
        await RisingEdge(dut.clk)
        for number, port in enumerate(PORTS):
            if getattr(dut, f"{port}__wready").value:
                left[number] = left[number] - 1 or beats
        for channel, found in zip(("ar", "aw"), taken, strict=True):
            valid = getattr(dut, f"m_axi__{channel}valid").value
            if valid and getattr(dut, f"m_axi__{channel}ready").value:
                found.append(int(getattr(dut, f"m_axi__{channel}id").value))
    return taken


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(beats=[1, 2, 32])
async def check_turns_without_a_gap(dut: Any, beats: int) -> None:
    """Masters that always ask get each second burst, and a word goes in every cycle."""
    for port in PORTS:
        for name in ("arvalid", "awvalid", "wvalid"):
            getattr(dut, f"{port}__{name}").value = 0
    reads, writes = LatencyReadSlave(dut, 20), OrderedWriteSlave(dut, "any", 20)
    await start_clock_and_reset(dut)
    for found in await offer(dut, beats, 640):
        assert len(found) > 12
        assert all(a != b for a, b in pairwise(found[2:])), found
    cycles = writes.final - writes.first + 1
    print(f"bursts of {beats}: {writes.words} words in {cycles} cycles")
    assert writes.words == cycles > 500
    assert reads.words == reads.final - reads.first + 1 > 500


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_cycles_of_a_burst(dut: Any) -> None:
    """AWVALID two cycles after the last word was taken, WVALID one later; ARVALID after one."""
    for port in PORTS:
        for name in ("arvalid", "awvalid", "wvalid"):
            getattr(dut, f"{port}__{name}").value = 0
    for name in ("arready", "awready", "wready"):
        getattr(dut, f"m_axi__{name}").value = 1
    dut.m_axi__rvalid.value = dut.m_axi__bvalid.value = 0
    await start_clock_and_reset(dut)
    dut.axi__1__wlast.value = dut.axi__1__awlen.value = dut.axi__1__arlen.value = 0
    for name in ("arvalid", "awvalid", "wvalid"):
        getattr(dut, f"axi__1__{name}").value = 1
    seen: dict[str, int] = {}
    last = 0
    for cycle in range(10):
        dut.axi__1__wlast.value = int(cycle == 1)
        await ReadOnly()
        if dut.axi__1__wvalid.value and dut.axi__1__wready.value and cycle == 1:
            last = cycle
        for name in ("arvalid", "awvalid", "wvalid"):
            if getattr(dut, f"m_axi__{name}").value:
                seen.setdefault(name, cycle)
        taken = {channel: getattr(dut, f"axi__1__{channel}ready").value for channel in ("ar", "aw")}
        await RisingEdge(dut.clk)
        for channel, ready in taken.items():
            if ready:
                getattr(dut, f"axi__1__{channel}valid").value = 0
        if cycle == 1:
            dut.axi__1__wvalid.value = 0
    assert last == 1
    assert seen == {"arvalid": 1, "awvalid": last + 2, "wvalid": last + 3}
