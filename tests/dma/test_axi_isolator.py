"""A master is reset in the middle of its bursts; the slave, which is not, is well afterwards."""

from typing import Any

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge
from cocotbext.axi import AxiBus, AxiMaster

from stagecoach.gateware.dma.axi_isolator import ADDRESSES_AHEAD, BURSTS, AxiIsolator
from stagecoach.sim.cosim.streams import CLOCK_PERIOD_NS, seeded_random
from tests.dma.axi_slaves import LatencyReadSlave, OrderedWriteSlave
from tests.dma.axi_traffic import (
    LONGEST,
    SHORTEST,
    Region,
    Tally,
    make_master,
    make_ram,
    pause,
    quiet,
    traffic,
    watch,
)
from tests.support.runner import parameter, run_cocotb

pytestmark = pytest.mark.slow

OCTETS = 1 << 13


@pytest.mark.parametrize("width, longest", [(64, 16), (128, LONGEST), (32, SHORTEST)])
def test_axi_isolator(width: int, longest: int) -> None:
    parameters = {"LONGEST": str(longest)}
    run_cocotb(AxiIsolator(width), __name__, parameters=parameters, test_filter="traffic|resets")


def test_axi_isolator_cycles() -> None:
    run_cocotb(AxiIsolator(64), __name__, test_filter="check_limits|check_words|check_a_slave")


async def start(dut: Any) -> None:
    """A clock, and a reset of all but the master."""
    Clock(dut.clk, CLOCK_PERIOD_NS, unit="ns").start()
    dut.rst.value, dut.isolate.value = 1, 0
    await ClockCycles(dut.clk, 3)
    dut.rst.value = 0
    await RisingEdge(dut.clk)


@cocotb.test(timeout_time=5, timeout_unit="ms")
@cocotb.parametrize(share=[0, 0.4])
async def check_traffic(dut: Any, share: float) -> None:
    rng = seeded_random(share)
    longest = int(parameter("LONGEST"))
    master, ram = make_master(dut, "axi", longest), make_ram(dut, "m_axi", OCTETS)
    for model in (master, ram):
        pause(model, rng, share)
    watch(dut, ["axi"], ["m_axi"])
    await start(dut)
    rounds = 1 if longest == SHORTEST else 3
    await traffic(master, rng, [Region(ram, 0, OCTETS)], len(dut.axi__wdata) // 8, rounds)


@cocotb.test(timeout_time=8, timeout_unit="ms")
@cocotb.parametrize(share=[0, 0.4])
async def check_resets_of_the_master(dut: Any, share: float) -> None:
    """Each octet is as it was or as it was written, and the next session begins with nothing."""
    rng = seeded_random(share)
    longest = int(parameter("LONGEST"))
    word = len(dut.axi__wdata) // 8
    ram = make_ram(dut, "m_axi", OCTETS)
    bus = AxiBus.from_prefix(dut, "axi_")
    master = quiet(AxiMaster(bus, dut.clk, dut.isolate, max_burst_len=longest))
    for model in (master, ram):
        pause(model, rng, share)
    watch(dut, [], ["m_axi"])
    await start(dut)
    tally = Tally(dut, "m_axi")
    region = Region(ram, 0, OCTETS)
    half, most = OCTETS // 2, 256 * word
    cut = 0
    for _ in range(16):
        region.fill(rng)
        image, written = bytes(region.image), {}
        for _ in range(4):
            cocotb.start_soon(master.read(rng.randrange(half), most, arid=0))
            begin, octets = rng.randrange(OCTETS - most), rng.randint(1, most)
            content = rng.randbytes(octets)
            cocotb.start_soon(master.write(begin, content, awid=0))
            for place in range(octets):
                written.setdefault(begin + place, set()).add(content[place])
        await ClockCycles(dut.clk, rng.randint(1, 150))
        cut += bool(tally.reads or tally.writes)
        dut.isolate.value = 1
        for _ in range(rng.randint(1, 20)):
            await ReadOnly()
            for name in ("arready", "awready", "wready", "rvalid", "bvalid"):
                assert not getattr(dut, f"axi__{name}").value, name
            await RisingEdge(dut.clk)
        dut.isolate.value = 0
        # At once, while the slave still has bursts of before.
        fresh = (await master.read(0, 2 * word, arid=0)).data
        found = ram.read(0, OCTETS)
        assert fresh == found[: 2 * word]
        for place, octet in enumerate(found):
            assert octet == image[place] or octet in written.get(place, ()), place
        await traffic(master, rng, [region], word, rounds=1, at_once=2)
        assert (tally.reads, tally.writes, tally.words, tally.lengths) == (0, 0, [0], [])
    print(f"{cut} resets with bursts under way")
    assert cut > 8


def rest(dut: Any) -> None:
    """Nothing is offered, and all is taken."""
    for name in ("arvalid", "awvalid", "wvalid"):
        getattr(dut, f"axi__{name}").value = 0
    for name in ("rready", "bready"):
        getattr(dut, f"axi__{name}").value = 1
    for name in ("araddr", "arlen", "awaddr", "awlen", "wdata", "wlast"):
        getattr(dut, f"axi__{name}").value = 0
    dut.axi__wstrb.value = 0xFF


async def taken(dut: Any, channel: str, cycles: int) -> int:
    """How many items of a channel the isolator takes in so many cycles."""
    count = 0
    for _ in range(cycles):
        await ReadOnly()
        count += bool(
            getattr(dut, f"axi__{channel}valid").value
            and getattr(dut, f"axi__{channel}ready").value
        )
        await RisingEdge(dut.clk)
    return count


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_limits_and_a_slave_that_never_answers(dut: Any) -> None:
    """The slave takes all and says nothing: the master's reset is not held up, its bursts are."""
    rest(dut)
    for name in ("rvalid", "bvalid"):
        getattr(dut, f"m_axi__{name}").value = 0
    for name in ("arready", "awready", "wready"):
        getattr(dut, f"m_axi__{name}").value = 1
    await start(dut)
    dut.axi__arvalid.value = dut.axi__awvalid.value = 1
    assert await taken(dut, "aw", 20) == ADDRESSES_AHEAD
    dut.axi__wvalid.value = 1
    await ClockCycles(dut.clk, 2 * BURSTS)
    for name in ("arready", "awready", "wready"):
        assert not getattr(dut, f"axi__{name}").value, name
    assert not dut.idle.value
    dut.isolate.value = 1
    await RisingEdge(dut.clk)
    dut.isolate.value = 0
    assert await taken(dut, "ar", 100) == await taken(dut, "aw", 100) == 0
    # Each of its answers comes after all, and the master sees none.
    dut.m_axi__rlast.value = dut.m_axi__rvalid.value = dut.m_axi__bvalid.value = 1
    for answered in range(BURSTS):
        await ReadOnly()
        assert not dut.idle.value, answered
        assert not (dut.axi__rvalid.value or dut.axi__bvalid.value)
        await RisingEdge(dut.clk)
    dut.m_axi__rvalid.value = dut.m_axi__bvalid.value = 0
    await ReadOnly()
    assert dut.idle.value
    await RisingEdge(dut.clk)
    assert await taken(dut, "ar", 1) == 1


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(beats=[1, 2, 16, 256])
async def check_words_without_a_gap(dut: Any, beats: int) -> None:
    """A word of each direction per cycle, whatever the length of the bursts."""
    rest(dut)
    reads, writes = LatencyReadSlave(dut, 20), OrderedWriteSlave(dut, "any", 20)
    await start(dut)
    dut.axi__arlen.value = dut.axi__awlen.value = beats - 1
    dut.axi__arvalid.value = dut.axi__awvalid.value = dut.axi__wvalid.value = 1
    left = beats
    for _ in range(900):
        dut.axi__wlast.value = int(left == 1)
        await ReadOnly()
        left = (left - 1 or beats) if dut.axi__wready.value else left
        await RisingEdge(dut.clk)
    assert writes.words == writes.final - writes.first + 1 > 600
    assert reads.words == reads.final - reads.first + 1 > 600
