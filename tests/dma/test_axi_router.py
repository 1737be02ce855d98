"""Bursts go to the slave that has their address; their answers come back in order."""

from typing import Any

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge

from stagecoach.gateware.dma.axi import connect_axi
from stagecoach.gateware.dma.axi_router import AxiReadRouter, AxiWriteRouter
from stagecoach.gateware.dma.ports import AxiSignature
from stagecoach.hw.interface.device_memory import DEVICE_MEMORY_BASE
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
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
SIDES = ("below", "above")


class Routers(wiring.Component):
    """The two routers between three ports."""

    def __init__(self, width: int):
        self._width = width
        port = AxiSignature(width)
        super().__init__({"axi": In(port), "below": Out(port), "above": Out(port)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.read = read = AxiReadRouter(DEVICE_MEMORY_BASE, self._width)
        m.submodules.write = write = AxiWriteRouter(DEVICE_MEMORY_BASE, self._width)
        connect_axi(m, self.axi, read.axi, write.axi)
        connect_axi(m, self.below, read.below, write.below)
        connect_axi(m, self.above, read.above, write.above)
        return m


@pytest.mark.parametrize("burst", [SHORTEST, LONGEST])
@pytest.mark.parametrize("width", [64, 128])
def test_axi_router(width: int, burst: int) -> None:
    parameters = {"BURST": str(burst)}
    run_cocotb(Routers(width), __name__, parameters=parameters, test_filter="check_traffic")


@pytest.mark.parametrize("boundary", [0, 1 << 64])
@pytest.mark.parametrize("block", [AxiReadRouter, AxiWriteRouter])
def test_wrong_boundary(block: type, boundary: int) -> None:
    named = f"{block.__name__} boundary is {boundary}; allowed: 1 to 2\\^64 - 1"
    with pytest.raises(ValueError, match=named):
        block(boundary)


def test_axi_router_cycles() -> None:
    run_cocotb(Routers(64), __name__, test_filter="check_cycles|check_never")


class OneSideMonitor:
    """Asserts that bursts are under way on one side at a time, and counts changes of the side."""

    def __init__(self, dut: Any, address: str, answer: str):
        self.bursts = dict.fromkeys(SIDES, 0)
        self.changes = 0
        cocotb.start_soon(self._run(dut, address, answer))

    async def _run(self, dut: Any, address: str, answer: str) -> None:
        under_way = dict.fromkeys(SIDES, 0)
        latest = None
        while True:
            await RisingEdge(dut.clk)
            for side in SIDES:

                def port(name: str, side: str = side) -> Any:
                    return getattr(dut, f"{side}__{name}").value

                if port(f"{answer}valid") and port(f"{answer}ready"):
                    under_way[side] -= answer == "b" or int(port("rlast"))
                if port(f"{address}valid"):
                    others = [under_way[name] for name in SIDES if name != side]
                    assert others == [0], f"{address} of {side} is not alone"
                    place = int(port(f"{address}addr"))
                    assert (place >= DEVICE_MEMORY_BASE) == (side == "above"), hex(place)
                    if port(f"{address}ready"):
                        under_way[side] += 1
                        self.bursts[side] += 1
                        self.changes += latest not in (None, side)
                        latest = side


async def check_traffic(dut: Any, share: float) -> None:
    rng = seeded_random(share, parameter("BURST"), len(dut.axi__wdata))
    word = len(dut.axi__wdata) // 8
    master = make_master(dut, "axi", int(parameter("BURST")))
    rams = [make_ram(dut, side, OCTETS) for side in SIDES]
    for model in (master, *rams):
        pause(model, rng, share)
    watch(dut, ["axi"], list(SIDES))
    monitors = [OneSideMonitor(dut, "ar", "r"), OneSideMonitor(dut, "aw", "b")]
    await start_clock_and_reset(dut)
    # The last octets of the one side, and the first ones of the other.
    begins = (DEVICE_MEMORY_BASE - OCTETS, DEVICE_MEMORY_BASE)
    regions = [Region(ram, begin, OCTETS) for ram, begin in zip(rams, begins, strict=True)]
    await traffic(master, rng, regions, word, rounds=4)
    for monitor in monitors:
        print(monitor.bursts, monitor.changes)
        assert monitor.changes > 8 and min(monitor.bursts.values()) > 8


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_traffic_without_stalls(dut: Any) -> None:
    await check_traffic(dut, 0)


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_traffic_with_stalls(dut: Any) -> None:
    await check_traffic(dut, 0.4)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_cycles_of_a_side(dut: Any) -> None:
    """Bursts of one side follow each other without a gap, as the models do without the router."""
    rng = seeded_random()
    master = make_master(dut, "axi", 16)
    ram = make_ram(dut, "above", OCTETS)
    await start_clock_and_reset(dut)
    region = Region(ram, DEVICE_MEMORY_BASE, OCTETS)
    region.fill(rng)
    words = {"r": 0, "w": 0}
    first, final = dict.fromkeys(words, 0), dict.fromkeys(words, 0)

    async def count() -> None:
        cycle = 0
        while True:
            await RisingEdge(dut.clk)
            cycle += 1
            for channel in words:
                valid = getattr(dut, f"axi__{channel}valid").value
                if valid and getattr(dut, f"axi__{channel}ready").value:
                    words[channel] += 1
                    first[channel] = first[channel] or cycle
                    final[channel] = cycle

    cocotb.start_soon(count())
    assert (await master.read(DEVICE_MEMORY_BASE, OCTETS, arid=0)).data == region.image
    region.image[:] = content = rng.randbytes(OCTETS)
    await master.write(DEVICE_MEMORY_BASE, content, awid=0)
    region.check()
    for channel, count_of in words.items():
        assert count_of == OCTETS // 8
        cycles = final[channel] - first[channel] + 1
        print(f"{channel}: {count_of} words in {cycles} cycles")
        assert cycles == count_of


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_never_answered_reads_hold_up_reads_alone(dut: Any) -> None:
    rng = seeded_random()
    master = make_master(dut, "axi")
    ram = make_ram(dut, "above", OCTETS)
    for name in ("rvalid", "bvalid", "awready", "wready"):
        getattr(dut, f"below__{name}").value = 0
    dut.below__arready.value = 1
    await start_clock_and_reset(dut)
    region = Region(ram, DEVICE_MEMORY_BASE, OCTETS)
    region.fill(rng)
    stuck = cocotb.start_soon(master.read(0x1000, 8, arid=0))
    await ClockCycles(dut.clk, 10)
    behind = cocotb.start_soon(master.read(DEVICE_MEMORY_BASE, 8, arid=0))
    for number in range(20):
        place = rng.randrange(OCTETS - 64)
        region.image[place : place + 64] = content = rng.randbytes(64)
        await master.write(DEVICE_MEMORY_BASE + place, content, awid=0)
        await ReadOnly()
        assert not dut.above__arvalid.value, number
        await RisingEdge(dut.clk)
    region.check()
    assert not stuck.done() and not behind.done()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_never_more_bursts_than_are_counted(dut: Any) -> None:
    """A slave that takes addresses and answers none gets 128 and 32 of them."""
    for name in ("arvalid", "awvalid", "wvalid", "rready", "bready"):
        getattr(dut, f"axi__{name}").value = int(name.endswith("ready"))
    for name in ("rvalid", "bvalid"):
        for side in SIDES:
            getattr(dut, f"{side}__{name}").value = 0
    for name in ("arready", "awready", "wready"):
        getattr(dut, f"below__{name}").value = 1
    await start_clock_and_reset(dut)
    for name in ("araddr", "awaddr"):
        getattr(dut, f"axi__{name}").value = 0
    for name in ("arvalid", "awvalid", "wvalid", "wlast"):
        getattr(dut, f"axi__{name}").value = 1
    taken = {"ar": 0, "aw": 0, "w": 0}
    for _ in range(300):
        await ReadOnly()
        for channel in taken:
            valid = getattr(dut, f"below__{channel}valid").value
            taken[channel] += bool(valid and getattr(dut, f"axi__{channel}ready").value)
        await RisingEdge(dut.clk)
    assert taken == {"ar": 128, "aw": 32, "w": 32}
