"""A device's masters at both memories: each burst at its place, and resets that nobody notices."""

from typing import Any

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, Combine, RisingEdge
from cocotbext.axi import AxiBus, AxiMaster, AxiResp

from stagecoach.gateware.dma.board_memory import BoardMemoryPaths
from stagecoach.hw.interface.device_memory import DEVICE_MEMORY_BASE
from stagecoach.sim.cosim.streams import CLOCK_PERIOD_NS, seeded_random
from tests.dma.axi_traffic import Region, Tally, make_ram, pause, quiet, traffic, watch
from tests.support.runner import run_cocotb

pytestmark = pytest.mark.slow

MEMORY_LOG2 = 15
OCTETS = 1 << 13
MASTERS = ("m_axi", "t_axi", "h_axi")
LONGEST = 32


def test_board_memory() -> None:
    run_cocotb(BoardMemoryPaths(MEMORY_LOG2, LONGEST), __name__)


@pytest.mark.parametrize("memory_log2", [11, 49])
def test_wrong_size(memory_log2: int) -> None:
    with pytest.raises(ValueError, match=f"memory_log2 is {memory_log2}; allowed: 12 to 48"):
        BoardMemoryPaths(memory_log2)


@pytest.mark.parametrize("memory_log2", [12, 48])
def test_smallest_and_largest_memory(memory_log2: int) -> None:
    BoardMemoryPaths(memory_log2).elaborate(None)


class Board:
    """The masters of a device, which are reset, and two memories, which are not."""

    def __init__(self, dut: Any, rng: Any, share: float):
        self.dut = dut
        self.masters = {
            name: quiet(
                AxiMaster(
                    AxiBus.from_prefix(dut, f"{name}_"),
                    dut.clk,
                    # The host link begins anew a cycle before the device.
                    dut.isolate if name == "h_axi" else dut.device_rst,
                    max_burst_len=LONGEST,
                )
            )
            for name in MASTERS
        }
        self.memory = make_ram(dut, "memory", 1 << MEMORY_LOG2)
        self.host = make_ram(dut, "host", OCTETS, reset="device_rst")
        for model in (*self.masters.values(), self.memory, self.host):
            pause(model, rng, share)
        watch(dut, [], ["memory"])
        self.tally = Tally(dut, "memory")

    async def start(self) -> None:
        dut = self.dut
        Clock(dut.clk, CLOCK_PERIOD_NS, unit="ns").start()
        Clock(dut.device_clk, CLOCK_PERIOD_NS, unit="ns").start()
        dut.rst.value, dut.isolate.value = 1, 0
        await self.reset()
        dut.rst.value = 0
        await RisingEdge(dut.clk)

    async def reset(self) -> None:
        """A session begins."""
        dut = self.dut
        dut.isolate.value = 1
        await RisingEdge(dut.clk)
        dut.device_rst.value = 1
        await ClockCycles(dut.clk, 16)
        dut.device_rst.value = dut.isolate.value = 0

    def regions(self) -> dict[str, list[Region]]:
        """Of each master, its own part of the board's memory; the first one has the host's, too."""
        base = {"m_axi": DEVICE_MEMORY_BASE}
        places = {
            name: [Region(self.memory, base.get(name, 0) + number * OCTETS, OCTETS)]
            for number, name in enumerate(MASTERS)
        }
        places["m_axi"].append(Region(self.host, 0, OCTETS))
        return places

    async def traffic(self, rng: Any, rounds: int) -> None:
        regions = self.regions()
        tasks = [
            cocotb.start_soon(traffic(self.masters[name], rng, regions[name], 8, rounds))
            for name in MASTERS
        ]
        await Combine(*tasks)


@cocotb.test(timeout_time=4, timeout_unit="ms")
@cocotb.parametrize(share=[0, 0.4])
async def check_all_at_once(dut: Any, share: float) -> None:
    rng = seeded_random(share)
    board = Board(dut, rng, share)
    await board.start()
    await board.traffic(rng, rounds=2)


@cocotb.test(timeout_time=4, timeout_unit="ms")
@cocotb.parametrize(share=[0, 0.4])
async def check_sessions(dut: Any, share: float) -> None:
    """The device is reset in the middle of everything, and all works at once."""
    rng = seeded_random(share)
    board = Board(dut, rng, share)
    await board.start()
    cut = 0
    for _ in range(5):
        for master in board.masters.values():
            for _ in range(4):
                place = rng.randrange(OCTETS)
                cocotb.start_soon(master.read(place, 2000, arid=0))
                cocotb.start_soon(master.write(place, bytes(2000), awid=0))
        place = DEVICE_MEMORY_BASE + rng.randrange(OCTETS)
        cocotb.start_soon(board.masters["m_axi"].write(place, bytes(2000), awid=0))
        await ClockCycles(dut.clk, rng.randint(50, 400))
        cut += bool(board.tally.reads or board.tally.writes)
        await board.reset()
        await board.traffic(rng, rounds=1)
    print(f"{cut} resets with bursts under way")
    assert cut > 2


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_beyond_the_end(dut: Any) -> None:
    rng = seeded_random()
    board = Board(dut, rng, 0)
    await board.start()
    end = 1 << MEMORY_LOG2
    for name, master in board.masters.items():
        base = DEVICE_MEMORY_BASE if name == "m_axi" else 0
        for place in (end, end + 4096, (1 << 48) - 4096 if base else (1 << 64) - 4096):
            assert (await master.read(base + place, 64, arid=0)).resp == AxiResp.DECERR
            assert (await master.write(base + place, bytes(64), awid=0)).resp == AxiResp.DECERR
        content = rng.randbytes(64)
        assert (await master.write(base + end - 64, content, awid=0)).resp == AxiResp.OKAY
        assert (await master.read(base + end - 64, 64, arid=0)).data == content


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_host_that_does_not_answer_holds_up_the_rnic_alone(dut: Any) -> None:
    rng = seeded_random()
    board = Board(dut, rng, 0)
    board.host.read_if.ar_channel.pause = board.host.write_if.aw_channel.pause = True
    await board.start()
    cocotb.start_soon(board.masters["m_axi"].read(0, 64, arid=0))
    cocotb.start_soon(board.masters["m_axi"].write(0, bytes(64), awid=0))
    for name in ("t_axi", "h_axi"):
        content = rng.randbytes(2000)
        await board.masters[name].write(64, content, awid=0)
        assert (await board.masters[name].read(64, 2000, arid=0)).data == content


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_memory_that_does_not_answer_holds_up_no_session(dut: Any) -> None:
    rng = seeded_random()
    board = Board(dut, rng, 0)
    await board.start()
    channels = board.memory.read_if.r_channel, board.memory.write_if.b_channel
    for channel in channels:
        channel.pause = True
    for name, master in board.masters.items():
        place = DEVICE_MEMORY_BASE if name == "m_axi" else 0
        cocotb.start_soon(master.read(place, 64, arid=0))
        cocotb.start_soon(master.write(place, bytes(64), awid=0))
    await ClockCycles(dut.clk, 100)
    await board.reset()
    # The host's memory is there at once, the board's own when it has answered.
    content = rng.randbytes(64)
    await board.masters["m_axi"].write(0, content, awid=0)
    assert (await board.masters["m_axi"].read(0, 64, arid=0)).data == content
    reads = cocotb.start_soon(board.masters["h_axi"].read(0, 64, arid=0))
    await ClockCycles(dut.clk, 100)
    assert not reads.done()
    for channel in channels:
        channel.pause = False
    await reads
    await board.traffic(rng, rounds=1)
