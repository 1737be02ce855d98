"""Each access reaches the block of its address alone, and writes do not wait for reads."""

from random import Random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout

from stagecoach.gateware.registers.split import RegisterSplit
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.registers.axi_lite import OKAY, SLVERR, RegisterMaster
from tests.support.runner import parameter, run_cocotb

BOUNDARIES = (4, 0x400, 0xFFC)
BLOCKS = ("below", "above")
CHANNELS = {"aw": ("awaddr", "awprot"), "w": ("wdata", "wstrb"), "ar": ("araddr", "arprot")}
ANSWERS = {"b": ("bresp",), "r": ("rdata", "rresp")}
BEYOND = 1
"""Cycles that an access takes beside those of its block."""


@pytest.mark.parametrize("pauses", ["0", "1"])
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_register_split(boundary: int, pauses: str) -> None:
    parameters = {"BOUNDARY": str(boundary), "PAUSES": pauses}
    run_cocotb(RegisterSplit(boundary), __name__, parameters=parameters)


@pytest.mark.parametrize("boundary", [0, 2, 0x1000, -4])
def test_a_boundary_that_cannot_be_is_refused(boundary: int) -> None:
    with pytest.raises(
        ValueError, match=r"boundary is .*; allowed: a multiple of 4 from 4 to 4092"
    ):
        RegisterSplit(boundary)


class Block:
    """A register block: it answers each access with its own words, after some cycles.

    It takes address and data of a write in any order. While `stuck`, it answers no write.
    """

    def __init__(self, dut: Any, name: str, rng: Random, *, pauses: bool) -> None:
        self.rng, self.pauses = rng, pauses
        self.port = {
            signal: getattr(dut, f"{name}__{signal}")
            for signal in (
                *("awaddr", "awprot", "awvalid", "awready", "wdata", "wstrb", "wvalid", "wready"),
                *("bresp", "bvalid", "bready", "araddr", "arprot", "arvalid", "arready"),
                *("rdata", "rresp", "rvalid", "rready"),
            )
        }
        self.edge = RisingEdge(dut.clk)
        self.stuck = False
        self.words: dict[int, int] = {}
        self.written: list[int] = []
        self.seen = 0  # accesses
        for signal in ("awready", "wready", "bvalid", "bresp", "arready", "rvalid", "rdata"):
            self.port[signal].value = 0
        self.port["rresp"].value = 0
        cocotb.start_soon(self._write())
        cocotb.start_soon(self._read())

    async def _take(self, channel: str) -> list[int]:
        for _ in range(self.rng.randrange(4) if self.pauses else 0):
            await self.edge
        self.port[f"{channel}ready"].value = 1
        while True:
            await self.edge
            if self.port[f"{channel}valid"].value:
                break
        self.port[f"{channel}ready"].value = 0
        return [int(self.port[signal].value) for signal in CHANNELS[channel]]

    async def _give(self, channel: str, *values: int) -> None:
        for _ in range(self.rng.randrange(4) if self.pauses else 0):
            await self.edge
        for signal, value in zip(ANSWERS[channel], values, strict=True):
            self.port[signal].value = value
        self.port[f"{channel}valid"].value = 1
        while True:
            await self.edge
            if self.port[f"{channel}ready"].value:
                break
        self.port[f"{channel}valid"].value = 0

    async def _write(self) -> None:
        while True:
            order = self.rng.sample(["aw", "w"], 2)
            first = cocotb.start_soon(self._take(order[0]))
            second = cocotb.start_soon(self._take(order[1]))
            taken = dict(zip(order, (await first, await second), strict=True))
            (address, _), (word, strobe) = taken["aw"], taken["w"]
            self.seen += 1
            while self.stuck:
                await self.edge
            if strobe == 0xF:
                self.words[address] = word
                self.written.append(address)
            await self._give("b", int(OKAY if strobe == 0xF else SLVERR))

    async def _read(self) -> None:
        while True:
            address, _ = await self._take("ar")
            self.seen += 1
            known = address in self.words
            await self._give("r", self.words.get(address, 0), int(OKAY if known else SLVERR))


class Bench:
    """The host, and both blocks."""

    def __init__(self, dut: Any) -> None:
        self.dut, self.rng = dut, seeded_random(parameter("BOUNDARY"), parameter("PAUSES"))
        self.boundary = int(parameter("BOUNDARY"))
        pauses = parameter("PAUSES") == "1"
        self.blocks = [Block(dut, name, self.rng, pauses=pauses) for name in BLOCKS]
        self.master = RegisterMaster(dut, self.rng, pauses=pauses)

    def block(self, address: int) -> Block:
        return self.blocks[address >= self.boundary]

    def address(self) -> int:
        """One near the boundary, or anywhere."""
        near = [self.boundary - 4, self.boundary, 0, 0xFFC]
        return self.rng.choice([*near, self.rng.randrange(0, 0x1000, 4)])


async def begin(dut: Any) -> Bench:
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    for name in BLOCKS:
        cocotb.start_soon(check_held(dut, name))
    return bench


async def check_held(dut: Any, name: str) -> None:
    """What is offered to a block stays until it is taken."""
    before: dict[str, tuple[int, ...]] = {}
    while True:
        await RisingEdge(dut.clk)
        for channel, signals in CHANNELS.items():
            valid, ready = (
                int(getattr(dut, f"{name}__{channel}{end}").value) for end in ("valid", "ready")
            )
            shown = tuple(int(getattr(dut, f"{name}__{signal}").value) for signal in signals)
            if channel in before:
                assert valid and shown == before[channel], (name, channel)
            before.pop(channel, None)
            if valid and not ready:
                before[channel] = shown


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_each_access_reaches_its_block_alone(dut: Any) -> None:
    bench = await begin(dut)
    for _ in range(60):
        address, word = bench.address(), bench.rng.getrandbits(32)
        before = [block.seen for block in bench.blocks]
        assert await bench.master.write(address, word) == OKAY
        assert bench.block(address).words[address] == word
        assert await bench.master.read(address) == (word, OKAY)
        after = [block.seen for block in bench.blocks]
        mine = address >= bench.boundary
        assert [b - a for a, b in zip(before, after, strict=True)] == [2 * (not mine), 2 * mine]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_errors_and_strobes_of_a_block_pass(dut: Any) -> None:
    bench = await begin(dut)
    for address in (0, bench.boundary - 4, bench.boundary, 0xFFC):
        for octets in (1, 2, 3):
            assert await bench.master.write(address, 0x12345678, octets) == SLVERR
        assert (await bench.master.read(address))[1] == SLVERR
        assert not bench.block(address).words


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_reads_and_writes_at_once_do_not_disturb_each_other(dut: Any) -> None:
    bench = await begin(dut)
    held = {bench.boundary - 4: 0x01020304, bench.boundary: 0xA0B0C0D0}
    for address, word in held.items():
        assert await bench.master.write(address, word) == OKAY

    async def read() -> None:
        for _ in range(50):
            address = bench.rng.choice(list(held))
            assert await bench.master.read(address) == (held[address], OKAY)

    reading = cocotb.start_soon(read())
    sent: list[list[int]] = [[], []]
    for block in bench.blocks:
        block.written.clear()
    for _ in range(50):
        address = bench.address()
        if address not in held:
            assert await bench.master.write(address, bench.rng.getrandbits(32)) == OKAY
            sent[address >= bench.boundary].append(address)
    await reading
    assert [block.written for block in bench.blocks] == sent


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_write_that_waits_holds_up_later_writes_and_no_read(dut: Any) -> None:
    bench = await begin(dut)
    below, above = bench.boundary - 4, bench.boundary
    await bench.master.write(below, 1)
    await bench.master.write(above, 2)
    for stuck, other in ((below, above), (above, below)):
        bench.block(stuck).stuck = True
        first = cocotb.start_soon(bench.master.write(stuck, 3))
        await ClockCycles(dut.clk, 20)
        later = cocotb.start_soon(bench.master.write(other, 4))
        await ClockCycles(dut.clk, 40)
        assert not first.done() and not later.done()
        for address in (below, above):
            assert (await with_timeout(bench.master.read(address), 1, "us"))[1] == OKAY
        bench.block(stuck).stuck = False
        assert (await first, await later) == (OKAY, OKAY)
        assert bench.block(other).words[other] == 4


@cocotb.test(timeout_time=100, timeout_unit="us", skip=parameter("PAUSES", "0") == "1")
async def check_an_access_takes_one_cycle_more_than_its_block(dut: Any) -> None:
    bench = await begin(dut)
    await bench.master.write(bench.boundary, 5)
    for signals in (("awvalid", "awready"), ("arvalid", "arready")):
        taken: list[int] = []

        async def watch(signals: tuple[str, str] = signals, taken: list[int] = taken) -> None:
            cycle = 0
            while len(taken) < 2:
                await RisingEdge(dut.clk)
                cycle += 1
                for place, name in enumerate(("bus", "above")):
                    if len(taken) == place and all(
                        getattr(dut, f"{name}__{signal}").value for signal in signals
                    ):
                        taken.append(cycle)

        watching = cocotb.start_soon(watch())
        if signals[0] == "awvalid":
            await bench.master.write(bench.boundary, 6)
        else:
            await bench.master.read(bench.boundary)
        await watching
        assert taken[1] - taken[0] == BEYOND
