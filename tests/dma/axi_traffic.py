"""Random traffic of foreign AXI masters to foreign memories, compared with what was written."""

import random
from dataclasses import dataclass
from typing import Any

import cocotb
from cocotb.triggers import Combine, RisingEdge
from cocotbext.axi import AxiBus, AxiMaster, AxiRam

from tests.dma.axi_slaves import HeldMonitor, random_pauses

SHORTEST, LONGEST = 1, 256
"""Beats of a burst of AXI4 (A3.4.1)."""


def quiet(model: Any) -> Any:
    """The model, which reports no bursts."""
    model.write_if.log.setLevel("ERROR")
    model.read_if.log.setLevel("ERROR")
    return model


def make_master(dut: Any, port: str, burst: int = LONGEST, clock: str = "clk") -> Any:
    """A foreign master at a port, whose bursts have `burst` beats at most."""
    bus = AxiBus.from_prefix(dut, f"{port}_")
    return quiet(AxiMaster(bus, getattr(dut, clock), dut.rst, max_burst_len=burst))


def make_ram(dut: Any, port: str, octets: int, clock: str = "clk", reset: str = "rst") -> Any:
    """A foreign memory at a port; it has addresses modulo its size."""
    bus = AxiBus.from_prefix(dut, f"{port}_")
    return quiet(AxiRam(bus, getattr(dut, clock), getattr(dut, reset), size=octets))


def pause(model: Any, rng: random.Random, share: float) -> None:
    """Have each channel of a model stop for `share` of the time; 0 is never."""
    if share:
        write, read = model.write_if, model.read_if
        channels = (write.aw_channel, write.w_channel, write.b_channel)
        for channel in (*channels, read.ar_channel, read.r_channel):
            channel.set_pause_generator(random_pauses(rng, share))


def watch(dut: Any, master_ports: list[str], slave_ports: list[str]) -> None:
    """Assert of all ports that what the design offers is held; all are of the clock `clk`."""
    for port in master_ports:
        for channel in ("r", "b"):
            HeldMonitor(dut, channel, port)
    for port in slave_ports:
        for channel in ("ar", "aw", "w"):
            HeldMonitor(dut, channel, port)


class Tally:
    """Bursts under way at a slave; asserts that each has as many words as its address says."""

    def __init__(self, dut: Any, port: str):
        self.reads = self.writes = 0
        self.lengths: list[int] = []
        self.words = [0]
        cocotb.start_soon(self._run(dut, port))

    async def _run(self, dut: Any, port: str) -> None:
        def moves(channel: str) -> bool:
            valid, ready = (getattr(dut, f"{port}__{channel}{name}") for name in ("valid", "ready"))
            return bool(valid.value and ready.value)

        while True:
            await RisingEdge(dut.clk)
            self.reads += moves("ar") - (moves("r") and bool(getattr(dut, f"{port}__rlast").value))
            self.writes += moves("aw") - moves("b")
            if moves("aw"):
                self.lengths.append(int(getattr(dut, f"{port}__awlen").value) + 1)
            if moves("w"):
                self.words[-1] += 1
                if getattr(dut, f"{port}__wlast").value:
                    self.words.append(0)
            if moves("b"):
                assert self.words.pop(0) == self.lengths.pop(0)


@dataclass
class Region:
    """Octets of a memory from an address on, and what they should be."""

    ram: Any
    begin: int
    octets: int

    def fill(self, rng: random.Random) -> None:
        self.image = bytearray(rng.randbytes(self.octets))
        self.ram.write(self.begin % self.ram.size, self.image)

    def check(self) -> None:
        assert self.ram.read(self.begin % self.ram.size, self.octets) == self.image


async def traffic(
    master: Any, rng: random.Random, regions: list[Region], word: int, rounds: int, at_once: int = 8
) -> None:
    """Read and write at once, in different halves of the regions, with ID 0.

    Lengths from one octet to more than the longest burst of words of `word` octets, at any
    alignment.
    """
    for region in regions:
        region.fill(rng)

    def draw(upper: int) -> tuple[Region, int, int]:
        region = rng.choice(regions)
        half = region.octets // 2
        most = min(half, (LONGEST + 8) * word)
        octets = rng.choice((1, rng.randint(1, 3 * word), rng.randint(1, 40 * word), most))
        return region, rng.randint(0, half - octets) + upper * half, octets

    async def read(region: Region, offset: int, octets: int) -> None:
        answer = await master.read(region.begin + offset, octets, arid=0)
        assert answer.data == region.image[offset : offset + octets], hex(region.begin + offset)

    for number in range(rounds):
        tasks = [cocotb.start_soon(read(*draw(number % 2))) for _ in range(at_once)]
        for _ in range(at_once):
            region, offset, octets = draw(1 - number % 2)
            region.image[offset : offset + octets] = content = rng.randbytes(octets)
            tasks.append(cocotb.start_soon(master.write(region.begin + offset, content, awid=0)))
        await Combine(*tasks)
    for region in regions:
        region.check()
