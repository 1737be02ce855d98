"""The device's AXI ports served by cocotbext-axi: models that nobody here wrote."""

import logging
import random
from collections.abc import Iterator
from typing import Any

from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiSlave

from stagecoach.sim.cosim.host_memory import HostMemory

PAUSE_SHARE = 0.3
LONGEST_PAUSE = 12


def _pauses(rng: random.Random) -> Iterator[bool]:
    """Yields for each cycle whether a channel pauses."""
    while True:
        pauses = rng.random() < PAUSE_SHARE
        for _ in range(rng.randint(1, LONGEST_PAUSE)):
            yield pauses


def _pause(channels: tuple[Any, ...], rng: random.Random | None) -> None:
    if rng is not None:
        for channel in channels:
            # One generator per channel: the order in which the models ask does not matter.
            channel.set_pause_generator(_pauses(random.Random(rng.getrandbits(64))))


class _Target:
    """What the slave model reads and writes; an exception becomes SLVERR."""

    def __init__(self, memory: HostMemory):
        self._memory = memory

    async def read(self, address: int, octets: int) -> bytes:
        """The model reads one beat of the port at a time."""
        word = self._memory.read_word(address, octets)
        if word is None:
            raise ValueError(f"0x{address:X} is not mapped")
        return word.to_bytes(octets, "little")

    async def write(self, address: int, octets: bytes) -> None:
        """The model writes runs of bytes inside a beat."""
        count = len(octets)
        word = int.from_bytes(octets, "little")
        if not self._memory.write_word(address, word, (1 << count) - 1, count):
            raise ValueError(f"0x{address:X} is not mapped")


class ForeignMemory:
    """AXI slave of the device's master port: `AxiSlave` on the mapped buffers.

    Parameters
    ----------
    dut, prefix, clock: the port. memory: what is read and written.
    rng: if given, every channel pauses at random.
    """

    def __init__(
        self,
        dut: Any,
        prefix: str,
        clock: Any,
        memory: HostMemory,
        *,
        rng: random.Random | None = None,
    ):
        self._clock = clock
        self.cycle = 0
        bus = AxiBus.from_prefix(dut, f"{prefix}_")
        self._slave = slave = AxiSlave(bus, clock, target=_Target(memory))
        write, read = slave.write_if, slave.read_if
        channels = (write.aw_channel, write.w_channel, write.b_channel)
        _pause((*channels, read.ar_channel, read.r_channel), rng)
        write.log.setLevel(logging.WARNING)
        read.log.setLevel(logging.WARNING)

    async def run(self) -> None:
        """Counts cycles; the model serves the port by itself."""
        while True:
            await RisingEdge(self._clock)
            self.cycle += 1


class ForeignRegisters:
    """AXI4-Lite master of the device's register port: `AxiLiteMaster`.

    Parameters
    ----------
    dut, prefix, clock: the port. rng: if given, every channel pauses at random.
    """

    def __init__(self, dut: Any, prefix: str, clock: Any, *, rng: random.Random | None = None):
        bus = AxiLiteBus.from_prefix(dut, f"{prefix}_")
        self._master = master = AxiLiteMaster(bus, clock)
        write, read = master.write_if, master.read_if
        channels = (write.aw_channel, write.w_channel, write.b_channel)
        _pause((*channels, read.ar_channel, read.r_channel), rng)
        write.log.setLevel(logging.WARNING)
        read.log.setLevel(logging.WARNING)

    async def write(self, address: int, value: int) -> int:
        """Writes a register; returns the response."""
        answer = await self._master.write(address, value.to_bytes(4, "little"))
        return int(answer.resp)

    async def read(self, address: int) -> tuple[int, int]:
        """Reads a register; returns its value and the response."""
        answer = await self._master.read(address, 4)
        return int.from_bytes(answer.data, "little"), int(answer.resp)
