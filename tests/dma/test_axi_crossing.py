"""An AXI port in another clock: everything arrives, in order, at the pace of the slower clock."""

from typing import Any

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, Timer

from stagecoach.gateware.dma.axi_crossing import AxiCrossing
from stagecoach.sim.cosim.streams import CLOCK_PERIOD_NS, seeded_random
from tests.dma.axi_slaves import HeldMonitor
from tests.dma.axi_traffic import Region, make_master, make_ram, pause, traffic
from tests.support.runner import parameter, run_cocotb

pytestmark = pytest.mark.slow

OCTETS = 1 << 13


@pytest.mark.parametrize("period_ns", [10, 7, 23])
def test_axi_crossing(period_ns: int) -> None:
    run_cocotb(AxiCrossing(128), __name__, parameters={"PERIOD_NS": str(period_ns)})


def test_smallest_fifos() -> None:
    parameters = {"PERIOD_NS": "7"}
    run_cocotb(AxiCrossing(64, 4, 4), __name__, parameters=parameters, test_filter="traffic")


@pytest.mark.parametrize("sizes, named", [((2, 16), "bursts is 2"), ((16, 24), "words is 24")])
def test_wrong_depth(sizes: tuple[int, int], named: str) -> None:
    with pytest.raises(ValueError, match=f"{named}; allowed: powers of two from 4"):
        AxiCrossing(64, *sizes)


async def reset(dut: Any) -> None:
    """Reset both sides for 4 cycles of the slower clock."""
    dut.rst.value = dut.memory_rst.value = 1
    for clock in (dut.clk, dut.memory_clk):
        await ClockCycles(clock, 4)
    dut.rst.value = 0
    await RisingEdge(dut.memory_clk)
    dut.memory_rst.value = 0


async def start(dut: Any) -> tuple[Any, Any]:
    """A foreign master, and a foreign memory in the other clock."""
    master = make_master(dut, "axi")
    ram = make_ram(dut, "m_axi", OCTETS, "memory_clk", "memory_rst")
    for channel in ("r", "b"):
        HeldMonitor(dut, channel, "axi")
    for channel in ("ar", "aw", "w"):
        HeldMonitor(dut, channel, "m_axi", "memory_clk", "memory_rst")
    Clock(dut.clk, CLOCK_PERIOD_NS, unit="ns").start()
    await Timer(3, "ns")
    Clock(dut.memory_clk, int(parameter("PERIOD_NS")), unit="ns").start(start_high=False)
    await reset(dut)
    return master, ram


async def check_traffic(dut: Any, share: float) -> None:
    rng = seeded_random(share, parameter("PERIOD_NS"))
    master, ram = await start(dut)
    for model in (master, ram):
        pause(model, rng, share)
    await traffic(master, rng, [Region(ram, 0, OCTETS)], len(dut.axi__wdata) // 8, rounds=3)


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_traffic_without_stalls(dut: Any) -> None:
    await check_traffic(dut, 0)


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_traffic_with_stalls(dut: Any) -> None:
    await check_traffic(dut, 0.4)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_cycles_of_words(dut: Any) -> None:
    """Every cycle of the slower clock has a word, in both directions at once."""
    rng = seeded_random(parameter("PERIOD_NS"))
    master, ram = await start(dut)
    region = Region(ram, 0, OCTETS)
    region.fill(rng)
    slower = max(CLOCK_PERIOD_NS, int(parameter("PERIOD_NS")))
    words = OCTETS // 2 // (len(dut.axi__wdata) // 8)
    times: dict[str, list[float]] = {"axi__r": [], "m_axi__w": []}

    async def watch(channel: str, clock: Any) -> None:
        while True:
            await RisingEdge(clock)
            valid = getattr(dut, f"{channel}valid").value
            if valid and getattr(dut, f"{channel}ready").value:
                times[channel].append(cocotb.utils.get_sim_time("ns"))

    cocotb.start_soon(watch("axi__r", dut.clk))
    cocotb.start_soon(watch("m_axi__w", dut.memory_clk))
    region.image[OCTETS // 2 :] = content = rng.randbytes(OCTETS // 2)
    writes = cocotb.start_soon(master.write(OCTETS // 2, content, awid=0))
    answer = await master.read(0, OCTETS // 2, arid=0)
    assert answer.data == region.image[: OCTETS // 2]
    await writes
    region.check()
    for channel, each in times.items():
        cycles = (each[-1] - each[0]) / slower + 1
        print(f"{channel}: {len(each)} words in {cycles:.1f} cycles of {slower} ns")
        assert len(each) == words
        assert words - 2 <= cycles <= words + 2


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_nothing_is_left_after_a_reset_of_both(dut: Any) -> None:
    rng = seeded_random(parameter("PERIOD_NS"))
    master, ram = await start(dut)
    region = Region(ram, 0, OCTETS)
    for number in range(8):
        region.fill(rng)
        for _ in range(4):
            place = rng.randrange(OCTETS // 2)
            cocotb.start_soon(master.read(place, OCTETS // 2, arid=0))
            cocotb.start_soon(master.write(place, bytes(OCTETS // 2), awid=0))
        await ClockCycles(dut.clk, rng.randint(5, 90))
        await reset(dut)
        for _ in range(40):
            await RisingEdge(dut.clk)
            for channel in ("axi__r", "axi__b", "m_axi__ar", "m_axi__aw", "m_axi__w"):
                assert not getattr(dut, f"{channel}valid").value, (number, channel)
        await traffic(master, rng, [region], len(dut.axi__wdata) // 8, rounds=1, at_once=2)
